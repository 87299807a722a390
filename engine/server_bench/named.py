"""``NAME=URL`` as a server to be measured."""

from __future__ import annotations

from collections.abc import Sequence

from engine.server.client import address_of
from engine.server_bench.lot import Door

LONGEST = 60  # characters of a name


def doors_of(words: Sequence[str], *, timeout: float, key: str | None) -> list[Door]:
    """In the order given. Raises ``ValueError`` for anything else than names, each once, with addresses."""
    doors: list[Door] = []
    for word in words:
        name, equals, url = word.partition("=")
        usable = 0 < len(name) <= LONGEST and name.isprintable() and name.strip() == name
        if not equals or not usable or "://" in name:
            raise ValueError(f"server: expected NAME=URL, found {word!r}")
        if name in [door.name for door in doors]:
            raise ValueError(f"server: expected each name once, found {name!r} twice")
        try:
            address = address_of(url)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        doors.append(Door(name, address, timeout, key))
    if not doors:
        raise ValueError("server: expected at least one NAME=URL, found none")
    return doors
