"""The manifest of a snapshot: what is in it, what is left out, who made it, and the digest of every
other member.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from engine.trace import archive
from engine.trace.errors import FieldProblem, describe
from engine.trace.json_codec import parse_json
from engine.trace.reader import Trace

FORMAT = "ddtree.snapshot"
VERSION = 1
TEXTS = ("token texts", "prompts and plain texts", "command and notes")


def new_manifest(
    trace: Trace,
    members: dict[str, bytes],
    roles: list[dict[str, Any]],
    include_text: bool,
    selection: str,
) -> dict[str, Any]:
    """The manifest of members that are complete. ``roles``: step, rank and role of each step."""
    kept = ["steps with token ids, masks, offsets and outcomes", "findings", "reproducing test"]
    kept += ["report"] if archive.REPORT in members else []
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "included": [*kept, *(TEXTS if include_text else ())],
        "left_out": [] if include_text else [*TEXTS, "(token ids are included)"],
        "steps": roles,
        "selection": selection,
        "source_digest": trace.digest,
        "versions": _versions(),
        "header": asdict(trace.header.without_texts()),
        "members": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            for name, data in members.items()
        },
    }


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    found |= {name: version(name) for name in ("numpy", "pyarrow")}
    if "torch" in sys.modules:
        found["torch"] = str(sys.modules["torch"].__version__)
    return found


def verified_manifest(members: dict[str, bytes]) -> dict[str, Any]:
    """The manifest, once every other member is the one that it names."""
    try:
        manifest = parse_json(utf8(members, archive.MANIFEST))
        if type(manifest) is not dict or manifest.get("format") != FORMAT:
            raise FieldProblem(repr(FORMAT), describe(manifest), "format")
        if manifest.get("version") != VERSION:
            raise FieldProblem(str(VERSION), describe(manifest.get("version")), "version")
        named = manifest.get("members")
        if type(named) is not dict or named.keys() != members.keys() - {archive.MANIFEST}:
            raise FieldProblem(
                f"{sorted(members.keys() - {archive.MANIFEST})}", describe(named), "members"
            )
    except FieldProblem as problem:
        raise problem.inside(archive.MANIFEST) from None
    for name, facts in named.items():
        digest = hashlib.sha256(members[name]).hexdigest()
        if type(facts) is not dict or facts.get("sha256") != digest:
            raise FieldProblem("the content that the manifest names", f"sha256 {digest}", name)
    return manifest


def utf8(members: dict[str, bytes], name: str) -> str:
    """A member as text. Raises ``FieldProblem``."""
    try:
        return members[name].decode()
    except UnicodeDecodeError:
        raise FieldProblem("UTF-8", "other bytes", name) from None
