"""DDTREE: tree verification of a DFlash drafter's marginals as an out-of-tree speculative algorithm of SGLang 0.5.12.

    pip install --no-deps ddtree-workbench          # beside SGLang, with SGLang's own Python
    DDTREE_BUDGET=32 python -m sglang.launch_server --attention-backend triton --page-size 1 \\
        --speculative-algorithm DDTREE --speculative-draft-model-path DRAFTER

| option | says |
| --- | --- |
| ``DDTREE_BUDGET`` or ``--speculative-num-draft-tokens`` (budget + 1) | nodes without the root; 16 |
| ``--speculative-dflash-block-size`` | tokens of a drafter's block; the drafter's own |
| ``DDTREE_TOPK`` | ranks that a depth may use; as many as the budget, at most 256 |
| ``DDTREE_SPINE`` (0 or 1) | the chain of best tokens takes its nodes first; 0 |
| ``DDTREE_FAULT`` | breaks one stage on purpose, see :mod:`.faults`; none |

A step: DFLASH's draft step, unchanged (:mod:`.worker` leaves it where the chain would be chosen); the best tokens of
each draft position over the vocab-parallel head (:mod:`.head`); the tree on the device (:mod:`.spine`,
``decoding.device_tree``); ``budget + 1`` rows a request with a tree mask (:mod:`.rows`); the target's forward; its
choices (:mod:`.choose`), the accepted path (:mod:`.accept`), one copy to the host, stops, and the remap of KV slots
(:mod:`.commit`, :mod:`.verify`).

On one GPU with CUDA graphs, the tree with its rows (:mod:`.treed`), the acceptance and the drafter's cache
(:mod:`.ahead`) are one graph each, and the last one runs while the host commits. They are captured when the server
starts, for the batch sizes of the target's own graphs (:mod:`.step_graphs`); other batches are padded (:mod:`.padded`).

The target's width is ``budget + 1``, the drafter's its block size, and :class:`.options.Options` alone decides both.

The host waits for the device where DFLASH does: once for the accepted paths (``verify``), and in DFLASH's own drafting
(draft lengths to the host, their sum, boolean indexing when several requests append features; without graphs the
Triton backend reads the number of KV indices). Freeing and keeping slots, where DFLASH indexes by booleans twice, needs
no further wait here: rows are named on the host, from the copy that is there already.

The buffers of CUDA graphs hold ``budget + 1`` rows for each request of ``--cuda-graph-max-bs``, times the context
length, and a block of the target's features: keep that number as small as the concurrency that is really served.

What cannot be served is refused with a sentence: arguments in :mod:`.arguments`, models, requests in :mod:`.refusals`.
"""
