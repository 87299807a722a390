"""Raw steps as the hooks hand them over, without hooks: the worked example of the step format."""

from __future__ import annotations

from typing import Any

import torch

from engine.sglang.host import HostCopies
from engine.sglang.parcel import Parcel
from engine.sglang.raw import Layout, RawStep, Tree
from tests.sglang.worked import MASK, ints, mask_of


def best_two(*tokens: int) -> torch.Tensor:
    """As ``top2`` gives them in one part: the token before each one second, logits 2 and 1."""
    bits = torch.tensor([2.0, 1.0]).view(torch.int32).tolist()
    return torch.tensor([[token, token + 1, *bits] for token in tokens], dtype=torch.int32)[:, None]


def packed(number: int, **others: Any) -> Parcel:
    """:func:`worked_raw` ready to be sent."""
    return Parcel.of(worked_raw(number, **others))


def worked_raw(
    number: int, broken: bool = False, without: str = "", **others: torch.Tensor
) -> RawStep:
    """``broken``: one cell of the mask hides the root from node 1; ``without``: an array that is left out;
    ``others``: arrays instead of those of the same names.
    """
    mask = mask_of(MASK)
    if broken:
        mask[8] = False
    copies = HostCopies()
    arrays = {
        "qo_indptr": ints(0, 4),
        "kv_indptr": ints(0, 2),
        "kv_indices": ints(7, 8),
        "mask_indptr": ints(0, 24),
        "custom_mask": mask,
        "seq_lens": ints(2),
        "draft_token": ints(5, 9, 12, 30),
        "own_positions": ints(2, 3, 3, 4),
        "own_out_cache_loc": ints(20, 21, 22, 23),
        "prefix_lens": ints(2),
        "prefix_slots": ints(7, 8)[None],
        "next_token": ints(1, -1, 3, -1)[None],
        "next_sibling": ints(-1, 2, -1, -1)[None],
        "top2": best_two(12, 4, 30, 44),
        "accept_lens": ints(3),
        "accept_index": ints(0, 2, 3, -1)[None],
    }
    for name, array in (arrays | others).items():
        if name != without:
            copies.take(name, array)
    copies.mark()
    return RawStep(
        number=number,
        laid=Layout("eager", 1, 4, 4, 4, None, 64, 128, False),
        rids=(f"r{number}",),
        greedy=True,
        vocab_size=50,
        logits_dtype="float32",
        topk=2,
        page_size=1,
        algorithm="EagleVerifyInput",
        tree=Tree("links"),
        ends=None,
        packs=copies.packs,
    )
