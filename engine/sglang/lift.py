"""Hooks that step aside while the server runs, so that its own pace can be told from the tap's."""

from __future__ import annotations

import pkgutil
import sys
from types import ModuleType
from typing import Any, NamedTuple


class _Place(NamedTuple):
    owner: Any  # class or module
    name: str
    bare: Any
    hooked: Any


class Lift:
    """:meth:`note` a path before its hook is put on, :meth:`settle` once all are; then :meth:`set` moves them.

    Attributes that hold something else by then, such as another plugin's hook over this one, are left alone.
    """

    def __init__(self) -> None:
        self.lifted = False
        self._noted: list[tuple[Any, str, Any]] = []
        self._places: list[_Place] = []
        self._modules = 0  # there were so many when the hooks were last taken off

    def note(self, path: str) -> None:
        """Keep what lies at a dotted path, unless its owner only inherits it."""
        holder, _, name = path.rpartition(".")
        owner = pkgutil.resolve_name(holder)
        if name in vars(owner):
            self._noted.append((owner, name, vars(owner)[name]))

    def settle(self) -> None:
        """Look where hooks lie now: at the place itself, and wherever a function was imported from its module."""
        for owner, name, bare in self._noted:
            hooked = vars(owner).get(name)
            if hooked is bare or hooked is None:
                continue
            self._places.append(_Place(owner, name, bare, hooked))
            if isinstance(owner, ModuleType):
                self._places += [_Place(m, n, bare, hooked) for m, n in _copies(owner, hooked)]
        self._noted.clear()

    def set(self, lifted: bool) -> None:
        """Take the hooks off, or put them back; costs nothing where that is so already."""
        if lifted == self.lifted:
            return
        self.lifted = lifted
        if (
            not lifted and len(sys.modules) != self._modules
        ):  # one may have imported a bare function
            for place in [p for p in self._places if isinstance(p.owner, ModuleType)]:
                known = {(p.owner, p.name) for p in self._places}
                copies = _copies(place.owner, place.bare)
                new = [(m, n) for m, n in copies if (m, n) not in known]
                self._places += [_Place(m, n, place.bare, place.hooked) for m, n in new]
        self._modules = len(sys.modules)
        for owner, name, bare, hooked in self._places:
            new, old = (bare, hooked) if lifted else (hooked, bare)
            if vars(owner).get(name) is old:
                setattr(owner, name, new)


def _copies(owner: ModuleType, function: Any) -> list[tuple[ModuleType, str]]:
    """Where other modules than its own hold a function."""
    modules = [
        m for m in list(sys.modules.values()) if isinstance(m, ModuleType) and m is not owner
    ]
    return [
        (module, name)
        for module in modules
        for name, value in list(vars(module).items())
        if value is function
    ]
