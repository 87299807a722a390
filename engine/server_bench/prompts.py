"""What servers are asked where nobody says otherwise: prose, code, lists, sums, translation, dialogue."""

PROMPTS = (
    "Explain to a child why the sky is blue.",
    "Write a Python function that merges two sorted lists, with a docstring.",
    "What caused the First World War? Answer in one paragraph.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey? Think step by step.",
    "List seven things to check before a long car trip.",
    "Write a short story about a lighthouse keeper who cannot swim.",
    "Translate into German: The meeting was moved to Thursday because the room was taken.",
    "Write a SQL query for the three customers with the highest total of orders in 2024.",
    "Compare the advantages of trains and planes for a journey of 600 km.",
    "Write a polite email that asks a landlord to repair the heating.",
    "Continue the dialogue:\nA: You are late again.\nB: I know, but you will not believe why.\nA:",
    'Give the JSON for a book with title, author, year and three keywords: "Moby-Dick".',
)
