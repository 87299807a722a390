"""A running server asked over HTTP: is it ready, does it answer the same twice, how well does it speculate."""
