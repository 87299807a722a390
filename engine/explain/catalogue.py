"""Reads the two data files once and answers by key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from engine.explain.entries import Explanation, Grade, Kind, Report, link_name

Entry = Mapping[str, Any]

NEAR_MATCHES = 4
_CITED = re.compile(r"\[(\d+(?:, \d+)*)\]")


def explain(key: str) -> Explanation:
    """The explanation of a check (``I8`` or ``mask-content``), a diagnosis or a class, in any case of letters."""
    catalogue = _catalogue()
    found = catalogue.by_name.get(key.casefold())
    if found is None:
        raise ValueError(
            f"explain: expected a check, a diagnosis or a class, got {key!r}; {_near(key)}"
        )
    return found


def explain_finding(check: str, diagnosis: str | None) -> Explanation | None:
    """The most specific explanation of a finding: its diagnosis', else its check's, else None."""
    by_name = _catalogue().by_name
    found = by_name.get((diagnosis or "").casefold())
    if found is not None and check in found.checks:
        return found
    return by_name.get(check.casefold())


def keys() -> tuple[str, ...]:
    """Every key once: each check before its diagnoses, then the classes."""
    return tuple(entry.key for entry in _catalogue().entries)


def reports() -> tuple[Report, ...]:
    """All public reports by number."""
    return _catalogue().reports


@dataclass(frozen=True)
class _Catalogue:
    entries: tuple[Explanation, ...]
    by_name: Mapping[str, Explanation]  # keys and the checks' names, in lower case
    reports: tuple[Report, ...]


@cache
def _catalogue() -> _Catalogue:
    texts, known = _load("explanations.toml"), tuple(map(_report, _load("reports.toml")["report"]))
    owners: dict[str, list[str]] = {}
    for check in texts["check"]:
        for diagnosis in check["diagnoses"]:
            owners.setdefault(diagnosis, []).append(check["key"])
    diagnoses = {
        entry["key"]: _diagnosis(entry, owners[entry["key"]], known) for entry in texts["diagnosis"]
    }
    entries: dict[str, Explanation] = {}
    for check in texts["check"]:
        entries[check["key"]] = _check(check, known)
        entries |= {key: diagnoses[key] for key in check["diagnoses"] if key in diagnoses}
    entries |= {entry["key"]: _class(entry, known) for entry in texts["class"]}
    names = {
        name.casefold(): entry
        for entry in entries.values()
        for name in (entry.key, entry.name)
        if entry.kind is not Kind.CLASS or name == entry.key
    }
    return _Catalogue(tuple(entries.values()), names, known)


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _report(entry: Entry) -> Report:
    links = tuple(entry["links"])
    return Report(
        entry["id"],
        links,
        entry.get("source") or link_name(links[0]),
        entry["title"],
        entry["class"],
        Grade(entry["grade"]),
        tuple(entry["checks"]),
        tuple(entry["diagnoses"]),
        entry["fix"],
    )


def _check(entry: Entry, known: Iterable[Report]) -> Explanation:
    """A check's reports are those that it would have caught, whatever the diagnosis."""
    own = [report for report in known if entry["key"] in report.checks]
    place = (Kind.CHECK, entry["name"], (entry["key"],), tuple(entry["diagnoses"]))
    return _explanation(entry, *place, own, known)


def _diagnosis(entry: Entry, owners: Iterable[str], known: Iterable[Report]) -> Explanation:
    own = [report for report in known if entry["key"] in report.diagnoses]
    return _explanation(entry, Kind.DIAGNOSIS, entry["key"], tuple(owners), (), own, known)


def _class(entry: Entry, known: Iterable[Report]) -> Explanation:
    """A class is found by the checks made for it and by those that would have caught its reports."""
    own = [report for report in known if entry["key"] == report.fault_class]
    checks = set(entry["checks"]).union(*(report.checks for report in own))
    ordered = tuple(sorted(checks, key=lambda check: int(check.removeprefix("I"))))
    return _explanation(entry, Kind.CLASS, entry["name"], ordered, (), own, known)


def _explanation(
    entry: Entry,
    kind: Kind,
    name: str,
    checks: tuple[str, ...],
    diagnoses: tuple[str, ...],
    own: Iterable[Report],
    known: Iterable[Report],
) -> Explanation:
    fixed = _paragraph(entry["fixed"])
    wanted = {report.id for report in own} | cited(fixed)
    return Explanation(
        entry["key"],
        kind,
        name,
        entry["title"],
        checks,
        diagnoses,
        _paragraph(entry["meaning"]),
        _paragraph(entry["symptom"]),
        _paragraph(entry["confirm"]),
        fixed,
        tuple(report for report in known if report.id in wanted),
    )


def cited(text: str) -> set[int]:
    """Numbers of the reports that a text names: ``[3, 14]`` gives 3 and 14."""
    return {int(number) for group in _CITED.findall(text) for number in group.split(", ")}


def _paragraph(text: str) -> str:
    return " ".join(text.split())


def _near(key: str) -> str:
    """Words on the keys that look like this one."""
    by_name = _catalogue().by_name
    close = get_close_matches(key.casefold(), by_name, NEAR_MATCHES, cutoff=0.5)
    near = [name if name == by_name[name].name else by_name[name].key for name in close]
    return f"near: {', '.join(near)}" if near else "`ddtree explain` lists all"
