"""X-rays in a child process, and SGLang's kernels imported alone."""

from __future__ import annotations

import os
import sys
import threading
import time

import numpy as np
import pytest

from engine.layout import MaskKind
from engine.xray import XRayError
from engine.xray.kernels import Kernel
from engine.xray.process import XRayStopped, xray_step
from engine.xray.sglang_kernel import VARIABLE, find_folder, load_sglang
from tests.sglang_wheels import sglang_folder
from tests.xray.steps import step_of, story, with_inputs


def test_a_child_process_answers_and_leaves_this_one_alone(monkeypatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    said = []
    found = xray_step(story(8), Kernel.ENGINE, progress=lambda *words: said.append(words))
    assert found.report["requests"][0]["fault"] == "metadata"
    assert found.cells[MaskKind.MEASURED, 0].dtype == np.int8
    assert found.mask(MaskKind.MEASURED, 0, 5).q_len == 17
    assert said[-1] == ("engine's Triton kernel: pass 1", 1.0)
    assert "TRITON_INTERPRET" not in os.environ


def test_what_the_child_refuses_is_said_here() -> None:
    with pytest.raises(XRayError, match=r"^kv_indptr: expected at least 2 entries, found 1$"):
        xray_step(with_inputs(story(None), kv_indptr=[0]), Kernel.ADDRESSED)


def test_a_stopped_child_is_gone_soon() -> None:
    stop, begun = threading.Event(), time.monotonic()
    stop.set()
    with pytest.raises(XRayStopped):
        xray_step(step_of([[-1]], [2000], budget=0), Kernel.ENGINE, stop=stop)
    assert time.monotonic() - begun < 5


def test_sglang_is_imported_without_a_trace() -> None:
    before = {name for name in sys.modules if name.startswith("sglang")}
    kernels = load_sglang(str(sglang_folder()))
    assert kernels.version == "0.5.12"
    assert kernels.extend_attention_fwd_unified is not None
    assert {name for name in sys.modules if name.startswith("sglang")} == before


def test_where_sglang_is_looked_for(monkeypatch, tmp_path) -> None:
    folder = str(sglang_folder())
    monkeypatch.setenv(VARIABLE, folder)
    assert find_folder() == find_folder(f"{folder}/sglang")
    with pytest.raises(XRayError, match="expected a folder with SGLang's sglang/kernels/ops"):
        find_folder(tmp_path)


def test_another_signature_is_refused(tmp_path) -> None:
    file = tmp_path / "sglang/kernels/ops/attention/extend_attention.py"
    file.parent.mkdir(parents=True)
    file.write_text("def extend_attention_fwd(q, k, v):\n    pass\n")
    with pytest.raises(XRayError, match=r"expected arguments q_extend, .*, found q, k, v$"):
        load_sglang(tmp_path)
    file.write_text("import sglang.nowhere\n")
    with pytest.raises(XRayError, match="cannot be imported alone: No module named"):
        load_sglang(tmp_path)


@pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("sglang") is not None, reason="sglang is installed"
)
def test_no_sglang_is_one_sentence(monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(XRayError, match=r"^sglang is not installed: give --sglang-path"):
        find_folder()
