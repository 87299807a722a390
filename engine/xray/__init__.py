"""X-ray: what an attention kernel really attends to, found by running it on a recorded step's own metadata.

Queries and keys are zero, so every key that a row attends to has the same weight; values are one-hot, so the output
names the keys. The fourth mask, *measured*, is read from that output.

Run: ``ddtree xray FILE --step N --kernel sglang``. Path: :mod:`keys` (who is who) → :mod:`bounds` (nothing is read
outside a buffer) → :mod:`launch` (the kernel, in as many passes as needed) → :mod:`measure` → :mod:`verdict`, with
:mod:`formula` beside it: the same facts by the address formula alone.
"""

from engine.xray.errors import XRayError as XRayError
