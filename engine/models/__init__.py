"""Target models: configuration, decoder, KV memory, weights, tokenizers and where they come
from.
"""
