"""What ``tests.sanitized`` shows to a memory checker: every kernel there is, and products that change nothing.

Run: pytest tests/graphs/test_sanitized.py
"""

from __future__ import annotations

import pytest
import torch

from engine.attention import chain

pytest.importorskip("triton")

from tests import sanitized
from tests.sanitized import Decoding, Filled, kernels

OTHERS = {"decode_rows._kernel", "softmax_rows._kernel", "snapshot_kernel.gather_arrays"}


def test_kernels_are_found_and_what_they_call_is_none() -> None:
    found = {".".join(name.split(".")[-2:]) for name in kernels()}
    known = {
        *OTHERS,
        "tree_verify_kernel.over_parts",
        "tree_verify_kernel.merge",
        "tree_verify_hopper_kernel.over_parts_hopper",
        "device_tree_kernel.search_trees",
        "heads_kernel.few_rows_heads",
        "linear_kernel.few_rows",
        "walk_kernel.compact_pools",
        "top2_kernel.top2_rows",
    }
    assert known <= found
    assert not found & {
        "tree_verify_tiles.add",
        "hopper_warpgroups.attend",
        "linear_kernel.scale_of",
    }


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_filled_products_are_the_same_and_are_written_over_zeros(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitized, "DEVICE", "cpu")
    monkeypatch.setattr(chain, "DEPTH", 0)
    seen: list[bool] = []

    def watched(form: object) -> object:
        def call(*args: object, out: torch.Tensor, **kwargs: object) -> torch.Tensor:
            seen.append(bool((out == 0).all()))
            return form(*args, out=out, **kwargs)  # type: ignore[operator]

        return call

    way = Decoding(family, torch.float32, drafted=True, graphs=False)
    plain = way.run(0)
    for product, form in Filled.FORMS.items():
        monkeypatch.setitem(Filled.FORMS, product, watched(form))
    with Filled():
        assert way.run(0) == plain
    assert len(seen) > 100
    assert all(seen)
