"""What a compiled kernel does before it waits for the one before it in a chain."""

from __future__ import annotations


def reads_before_wait(ptx: str) -> int:
    """Reads of memory before the wait. Raises ``ValueError`` for writes there, or where a program may pass by it."""
    if ptx.count("griddepcontrol.wait") != 1:
        raise ValueError(f"waits: expected 1, found {ptx.count('griddepcontrol.wait')}")
    early = ptx[ptx.index("{", ptx.index(".entry")) : ptx.index("griddepcontrol.wait")]
    for word in ("st.global", "atom.", "red.global", "bra", "ret;"):
        if word in early:
            raise ValueError(f"before the wait: expected no {word}, found one")
    return early.count("ld.global") + early.count("cp.async.c")
