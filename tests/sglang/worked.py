"""The worked example of the step format as the double's batch, verify input and logits."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from tests.sglang.server_double import CONTEXT, VOCAB, EagleVerifyInput, Mode, Req


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def logits_for(predictions: list[int]) -> torch.Tensor:
    """Rows whose best token is the given one, the next one second."""
    logits = torch.zeros(len(predictions), VOCAB)
    for row, token in enumerate(predictions):
        logits[row, token], logits[row, (token + 1) % VOCAB] = 2.0, 1.0
    return logits


def mask_of(rows: str) -> torch.Tensor:
    return torch.tensor([c == "1" for c in rows if c in "01"])


MASK = "111000 111100 111010 111011"  # prefix 2; parents -1, 0, 0, 2
TREE_MASK = np.array([1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1], np.uint8)


def batch(limit: int = 1000) -> SimpleNamespace:
    """The worked example of the step format as a batch: slots 7 and 8 hold the prefix, 20 … 23 the rows."""
    table = torch.zeros(4, CONTEXT, dtype=torch.int32)
    table[1, :6] = torch.tensor([7, 8, 20, 21, 22, 23])
    return SimpleNamespace(
        reqs=[Req("r0", limit)],
        forward_mode=Mode("verify"),
        seq_lens=ints(2),
        seq_lens_cpu=ints(2),
        req_pool_indices=ints(1),
        req_to_token_pool=SimpleNamespace(req_to_token=table),
        out_cache_loc=ints(20, 21, 22, 23),
        sampling_info=SimpleNamespace(is_all_greedy=True),
        tree_cache=SimpleNamespace(page_size=1),
    )


def verify_input(kind: type[EagleVerifyInput] = EagleVerifyInput) -> EagleVerifyInput:
    """Its tree, mask and links as a verify input."""
    return kind(
        ints(5, 9, 12, 30),
        mask_of(MASK),
        positions=ints(2, 3, 3, 4),
        retrieve_next_token=ints(1, -1, 3, -1)[None],
        retrieve_next_sibling=ints(-1, 2, -1, -1)[None],
        draft_token_num=4,
    )


PREDICTIONS = [12, 4, 30, 44]
