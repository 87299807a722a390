"""The test that goes into a snapshot: it fails on the recorded faults and passes once they are
mended.
"""

REPRODUCTION_TEST = '''\
"""Fails on the faults in steps.ddtree.arrow beside it; passes on a recording made after the mend.

    pytest test_repro.py
    DDTREE_STEPS=after-the-mend.ddtree.arrow pytest test_repro.py
"""

import os
from pathlib import Path

import pytest

from engine.checks.registry import check_trace
from engine.trace import open_trace

STEPS = Path(os.environ.get("DDTREE_STEPS") or Path(__file__).with_name("steps.ddtree.arrow"))


def test_steps_are_as_their_trees_say():
    report = check_trace(open_trace(STEPS))
    assert report.steps > 0, f"{STEPS} holds no step"
    faults = [
        f"step {fault.step}, rank {fault.rank}: {fault.check} {fault.name}: {fault.message}"
        for fault in report.faults
    ]
    if faults:
        pytest.fail("\\n".join(faults), pytrace=False)
'''
