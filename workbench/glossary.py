"""What the words on the screen mean; used as tooltips."""

from __future__ import annotations

GLOSSARY: dict[str, str] = {
    "accepted length": "Nodes of the accepted path, the root included. The step emits as many tokens: the path "
    "without the root, and the bonus token.",
    "bonus token": "The target's own next token after the accepted path. It becomes the next step's root.",
    "node": "A token of the draft tree. Node 0 is the root: the bonus token of the step before.",
    "row": "One query row of the verify step. Row k of a request is node k; rows past the last node are padding.",
    "rank": "One process of a tensor-parallel server. All ranks must agree on every token.",
    "step": "One verify step: the target reads the whole draft tree at once.",
    "request": "One sequence of the batch, by its id.",
    "intended": "The mask that follows from the draft tree and the prefix length alone.",
    "built": "The mask buffer as it lies in memory, decoded with the layout that its builder used.",
    "addressed": "What the kernel's own address formula reads from the buffer with the metadata it was given.",
    "difference": "Cells in which a mask is not the intended one: extra (attends but must not) and missing "
    "(must attend but does not).",
    "measured": "What a kernel did attend to, found by running it on the step's metadata with zero queries and keys "
    "and one-hot values. It is not part of a recording.",
    "leak mass": "Share of a row's attention on keys that it must not see: padding, nodes that are no ancestors, other "
    "requests, stale slots. The step is run again with the recorded target on a clean cache.",
    "mask_indptr": "Where each request's cells begin in the flat mask buffer.",
    "stride": "Cells from one mask row to the next: prefix length + rows of the request.",
    "budget": "Nodes of the draft tree without the root. A step verifies budget + 1 rows a request.",
    "top-k": "Most children that a node may have; none: as many as the budget allows.",
    "spine": "The chain of the drafter's best tokens is in the tree first; the search gets the other nodes.",
    "block size": "Tokens that the drafter writes in one pass, the root included.",
    "slot": "Where a token's key and value lie in the KV cache (`out_cache_loc`).",
    "margin": "Logit of the target's best token less that of its second: small margins flip by rounding.",
    "log-probability": "The drafter's, of the whole path from the root.",
    "drafter's rank": "Rank of the node's token in the drafter's distribution at its depth; 0 is its best.",
    "drafter against target": "At each depth of each step: how highly the drafter had rated the token that the target "
    "chose. A walk stops at the first depth whose token is not in the tree; deeper ones are not asked.",
    "cause": "A fault that no earlier finding of the same step explains.",
    "consequence": "A finding that vanishes when its cause is put right.",
    "replay": "The step was replayed from a CUDA graph's fixed buffers, where stale contents can survive.",
}


def explain(word: str) -> str:
    """Tooltip of a word; unknown words are a programmer's error."""
    return GLOSSARY[word]
