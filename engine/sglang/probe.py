"""Looks for the watched functions in the version at hand: what is there, what is not, and why."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engine.sglang.table import REPLACED_BY, REQUIRED, TARGETS, Target

Find = Callable[[str], tuple[str, ...] | None]  # parameters of what lies at a path; None: nothing


@dataclass(frozen=True)
class Probe:
    """Targets that match and reasons for the others."""

    found: tuple[tuple[Target, tuple[str, ...]], ...]  # with the parameters of each
    refused: tuple[str, ...]  # there, but with other parameters
    missing: tuple[str, ...]  # groups that no target stands for

    @property
    def usable(self) -> bool:
        """Whether anything can be recorded: a layout and a verification."""
        groups = {target.group for target, _ in self.found}
        return all(name in groups for name in REQUIRED[:1]) and any(
            name.startswith("verification") for name in groups
        )


def probe(find: Find, targets: Iterable[Target] = TARGETS) -> Probe:
    """Compare each target with what ``find`` says about its path."""
    found, refused, groups = [], [], dict[str, bool]()
    for target in targets:
        parameters = find(target.path)
        lacking = [] if parameters is None else _lacking(target, parameters)
        if lacking:
            refused.append(
                f"{target.path}: expected parameters {', '.join(target.parameters)}, "
                f"found {', '.join(parameters or ())}"
            )
        matches = parameters is not None and not lacking
        groups[target.group] = groups.get(target.group, False) or matches
        if parameters is not None and matches:
            found.append((target, parameters))
    names = {target.path.rpartition(".")[2] for target, _ in found}
    missing = [g for g, there in groups.items() if not there and REPLACED_BY.get(g) not in names]
    return Probe(tuple(found), tuple(refused), tuple(missing))


def _lacking(target: Target, parameters: tuple[str, ...]) -> list[str]:
    return [name for name in target.parameters if name not in parameters]


def installed(path: str) -> tuple[str, ...] | None:
    """Parameters of a function of the installed package; None where there is none."""
    function = resolve(path)
    return None if function is None else tuple(inspect.signature(function).parameters)


def resolve(path: str) -> Any:
    """What lies at a dotted path; None where there is nothing, or its module cannot be imported."""
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError):
        return None
