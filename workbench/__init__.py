"""The workbench: a Streamlit app that reads recordings and shows what the checks say about them."""
