"""The source of SGLang's wheels for the hook tables: read, never imported."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.sglang_wheels import file_of


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def definition(folder: Path, path: str) -> ast.ClassDef | ast.FunctionDef | None:
    """The class or function that a file defines at a dotted path; None where there is none."""
    file = folder / file_of(path + ("" if not path.split(".")[-1][0].isupper() else ".x"))
    if not file.is_file():
        return None
    body: list[ast.stmt] = _parsed(file).body
    found = None
    for part in path.removeprefix(
        ".".join(file.relative_to(folder).with_suffix("").parts) + "."
    ).split("."):
        kinds = (ast.ClassDef, ast.FunctionDef)
        found = next((n for n in body if isinstance(n, kinds) and n.name == part), None)
        if found is None:
            return None
        body = found.body
    return found


def parameters(folder: Path, path: str) -> tuple[str, ...] | None:
    """Parameters of the function at a path; None where there is none."""
    found = definition(folder, path)
    if not isinstance(found, ast.FunctionDef):
        return None
    given = found.args
    return tuple(a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs))


def attributes(folder: Path, path: str) -> set[str]:
    """Attributes that a class sets on ``self``."""
    found = definition(folder, path)
    return {
        node.attr
        for node in ast.walk(found or ast.Module([], []))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
