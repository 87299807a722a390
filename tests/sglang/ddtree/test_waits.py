"""Where the host waits for the device: once a verification, nowhere while rows are made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.decoding.device_tree import TreeTensors
from engine.sglang.ddtree import head, verify
from engine.sglang.ddtree.accept import accept
from engine.sglang.ddtree.choose import choose
from engine.sglang.ddtree.options import Options
from engine.sglang.ddtree.rows import verify_rows
from engine.sglang.ddtree.spine import with_spine
from engine.tree import make_tree
from tests.pretend_device import PretendDevice, There
from tests.sglang.ddtree.tensors import tensors

TREES = [make_tree([-1, 0, 0, 2], [5, 9, 12, 30]), make_tree([-1, 0], [5, 9])]


def there(trees: TreeTensors) -> TreeTensors:
    return TreeTensors(*(There(part) for part in vars(trees).values()))


def test_rows_are_made_without_a_copy_to_the_host() -> None:
    made = tensors(TREES, 4)
    with PretendDevice(lenient=True) as device:
        rows = verify_rows(there(made), There(torch.tensor([3, 5])))
        rows.custom_mask(8)
        assert not device.copies
        mask = rows.custom_mask(8).to("cpu")
    assert torch.equal(mask, verify_rows(made, torch.tensor([3, 5])).custom_mask(8))


def test_a_spine_is_added_without_a_copy_to_the_host() -> None:
    log_probs = (
        torch.log_softmax(torch.randn(2, 3, 4), dim=-1).sort(descending=True).values.double()
    )
    with PretendDevice(lenient=True) as device:
        with_spine(
            there(tensors(TREES, 4)), There(log_probs), There(torch.arange(24).view(2, 3, 4))
        )
        assert not device.copies


def test_candidates_of_all_ranks_are_merged_without_a_copy_to_the_host() -> None:
    parts = torch.stack([torch.randn(6, 9).double() for _ in range(2)])
    with PretendDevice(lenient=True) as device:
        head.merge(There(parts), 4)
        assert not device.copies


@pytest.mark.parametrize("greedy", [True, False])
def test_choices_are_made_without_a_copy_to_the_host(greedy: bool) -> None:
    ones = torch.ones(2)
    with PretendDevice(lenient=True) as device:
        sampling = SimpleNamespace(
            logit_bias=There(torch.zeros(2, 6)), is_all_greedy=greedy,
            temperatures=There(ones.view(2, 1)), top_ks=There(ones.int() * 3),
            top_ps=There(ones * 0.9), min_ps=There(ones * 0.1), need_top_k_sampling=True,
            need_top_p_sampling=True, need_min_p_sampling=True,
        )  # fmt: skip
        choose(There(torch.randn(10, 6)), sampling, 5)
        assert not device.copies


def test_a_verification_copies_to_the_host_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the table kernel, which is Triton's."""
    predict = torch.tensor([[12, 1, 30, 41, 12], [3, 1, 0, 0, 0]])
    logits = torch.nn.functional.one_hot(predict.flatten(), 50).float()
    calls: list[Any] = []
    monkeypatch.setitem(
        __import__("sys").modules,
        "sglang.srt.speculative.spec_utils",
        SimpleNamespace(assign_req_to_token_pool_func=lambda *args: calls.append(args)),
    )
    from tests.sglang.ddtree.scheduled import Req

    reqs = [Req([1, 2, 3], 9), Req([1, 2, 3, 4, 5], 9)]
    freed: list[Any] = []
    with PretendDevice(lenient=True) as device:
        batch = SimpleNamespace(
            forward_mode=SimpleNamespace(is_idle=lambda: False), batch_size=lambda: 2, reqs=reqs,
            sampling_info=None, model_config=SimpleNamespace(), out_cache_loc=There(torch.arange(10)),
            token_to_kv_pool_allocator=SimpleNamespace(free=freed.append), req_pool_indices=None,
            req_to_token_pool=SimpleNamespace(req_to_token=None), seq_lens_sum=8,
            seq_lens=There(torch.tensor([3, 5])), seq_lens_cpu=torch.tensor([3, 5]),
        )  # fmt: skip
        out = SimpleNamespace(
            next_token_logits=There(logits), hidden_states=There(torch.arange(10.0)[:, None])
        )
        given = SimpleNamespace(
            tree=there(tensors(TREES, 4)), options=Options(4, 4), ahead=None, appended=False
        )
        bonus, lengths, features, drafts = verify.verify(given, batch, out, 1)
        assert sum(device.copies.values()) == 1
        assert (bonus.tolist(), lengths.tolist(), drafts) == ([41, 3], [3, 1], [2, 0])
        assert features.tolist() == [[0.0], [2.0], [3.0], [5.0]]
        assert batch.out_cache_loc.tolist() == [0, 2, 3, 5]
        assert freed[0].tolist() == [1, 4, 6, 7, 8, 9]
        assert batch.seq_lens.tolist() == batch.seq_lens_cpu.tolist() == [6, 6]
    assert [req.output_ids for req in reqs] == [[12, 30, 41], [3]]
    assert accept(tensors(TREES, 4), predict, 4).accept_length.tolist() == [3, 1]
    assert len(calls) == 1


def test_an_idle_batch_is_left_alone() -> None:
    idle = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: True), device="cpu")
    bonus, lengths, features, drafts = verify.verify(None, idle, None, 1)
    assert (len(bonus), len(lengths), len(features), drafts) == (0, 0, 0, [])
    assert lengths.dtype is torch.int32
