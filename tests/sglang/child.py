"""A child process that serves one step after the other with the tap on, until it is ended or so many were served:
FOLDER FORMAT [COUNT]."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.argv[2] == "jsonl":
    for absent in ("pyarrow", "pandas", "streamlit", "plotly", "typer", "networkx"):
        sys.modules[absent] = None  # type: ignore[assignment]

from engine.sglang.attach import attach
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.serving import Server

folder = Path(sys.argv[1])
with double.installed() as hook_on:
    server = Server(folder, attach(folder, hook_on, {"DDTREE_TRACE_FORMAT": sys.argv[2]}))
    left = int(sys.argv[3]) if len(sys.argv) > 3 else -1
    while left:
        left -= 1
        server.run_eager(worked.verify_input(), worked.batch())
