"""The process that a kernel runs in: ``python -m engine.xray.child FOLDER``.

Reads ``step.json`` and ``options.json`` there, writes the answer beside them; each line on standard output is a label
and a fraction. Exit status 0; 2: it cannot be X-rayed, and ``error.txt`` says why.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

STEP, OPTIONS, ERROR = "step.json", "options.json", "error.txt"
REFUSED = 2


def main(folder: Path) -> int:
    """Exit status."""
    warnings.simplefilter("ignore")  # of the interpreter, about what kernels do on purpose
    from engine.models.device import find_device
    from engine.trace.json_codec import loads
    from engine.xray.kernels import Kernel
    from engine.xray.report import examine, save

    options = json.loads((folder / OPTIONS).read_text(encoding="utf-8"))
    try:
        xray = examine(
            loads((folder / STEP).read_text(encoding="utf-8")),
            Kernel(options["kernel"]),
            device=find_device(options["device"]),
            sglang_path=options["sglang_path"],
            progress=_say,
        )
    except ValueError as error:
        (folder / ERROR).write_text(str(error), encoding="utf-8")
        return REFUSED
    save(folder, xray)
    return 0


def _say(label: str, fraction: float) -> None:
    print(json.dumps([label, fraction]), flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
