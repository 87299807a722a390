"""The tap: watches a live SGLang server through its plugin hooks and writes what each verify step saw as VerifySteps.

``plugin`` is the entry point, ``table`` says which functions are watched, ``laid`` and ``verified`` read them on the
hot path, ``assemble`` makes the record in the writer's thread. Nothing here imports sglang when it is imported, and
nothing but torch and numpy is needed beside it. ``ddtree`` is a speculative algorithm for the same servers.
"""
