"""JSON objects of a model folder, read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_object(file: Path) -> dict[str, Any]:
    """The object in ``file``. Raises ValueError naming the file if it is missing or holds something
    else.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{file}: expected a JSON file, found none") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: expected a JSON object, found damage: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file}: expected a JSON object, found {type(found).__name__}")
    return found


def write_object(file: Path, value: Mapping[str, Any]) -> None:
    """Write ``value`` to ``file`` as indented JSON."""
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
