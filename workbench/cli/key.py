"""The API key of a server."""

from __future__ import annotations

import os


def key_in(name: str | None) -> str | None:
    """From the environment: what stands on a command line is seen by everybody."""
    if name is None:
        return None
    found = os.environ.get(name)
    if not found:
        raise ValueError(
            f"--key-env: expected a variable that holds the key, found none named {name!r}"
        )
    return found
