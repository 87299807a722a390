"""Ranks in words: people count from the best one, recordings from 0."""

from __future__ import annotations


def place(rank: int) -> str:
    """``best``, ``2nd``, ``3rd`` for ranks 0, 1, 2."""
    if rank == 0:
        return "best"
    number = rank + 1
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def nth(rank: int) -> str:
    """``best (rank 0)``, ``2nd best (rank 1)``: both ways of counting, where there is room."""
    return f"{place(rank)}{' best' if rank else ''} (rank {rank})"
