"""Which functions of SGLang are watched, and what must be true of them for that.

A function is looked for by its place and its parameters, never by a version number. Functions of one group stand in
for each other in different versions; a group of which none is found is a gap that the health file names.

Read in the wheels of 0.5.11 to 0.5.23. Not covered: backends other than Triton.
"""

from __future__ import annotations

from dataclasses import dataclass

ATTENTION = "sglang.srt.layers.attention.triton_backend.TritonAttnBackend"
SPECULATIVE = "sglang.srt.speculative"


@dataclass(frozen=True)
class Target:
    """One function: ``path`` is ``module.Class.method`` or ``module.function``."""

    group: str  # what is known through it
    path: str
    parameters: tuple[str, ...]  # that it must have
    handler: str  # name in ``engine.sglang.handlers.HANDLERS``


@dataclass(frozen=True)
class Attributes:
    """What a class must set on its instances; each entry names alternatives."""

    path: str
    names: tuple[tuple[str, ...], ...]
    with_method: str | None = None  # only where the class has it


TARGETS = (
    Target("start", "sglang.srt.managers.scheduler.Scheduler.__init__", ("server_args",), "start"),
    Target("eager", f"{ATTENTION}.init_forward_metadata", ("forward_batch",), "eager"),
    Target(
        "replay",
        f"{ATTENTION}.init_forward_metadata_replay_cuda_graph",
        ("bs", "req_pool_indices", "seq_lens", "forward_mode", "spec_info", "seq_lens_cpu"),
        "replay",
    ),
    Target(
        "replay",
        f"{ATTENTION}.init_forward_metadata_out_graph",
        ("forward_batch", "in_capture"),
        "out_graph",
    ),
    Target(
        "padding",
        "sglang.srt.model_executor.cuda_graph_runner.CudaGraphRunner.replay_prepare",
        ("forward_batch",),
        "padding",
    ),
    Target(
        "padding",
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.load_batch",
        ("forward_batch",),
        "padding",
    ),
    Target(
        "tree of EAGLE",
        f"{SPECULATIVE}.eagle_utils.build_tree_kernel_efficient",
        ("parent_list", "top_scores_index", "draft_tokens", "topk"),
        "eagle_tree",
    ),
    Target(
        "tree of NGRAM",
        f"{SPECULATIVE}.ngram_worker.NGRAMWorker._prepare_draft_tokens",
        ("batch",),
        "ngram_tree",
    ),
    Target(
        "verification of EAGLE",
        f"{SPECULATIVE}.eagle_info.EagleVerifyInput.verify",
        ("self", "batch", "logits_output"),
        "verify",
    ),
    Target(
        "verification of EAGLE with overlap",
        f"{SPECULATIVE}.eagle_info_v2.EagleVerifyInputV2Mixin.sample",
        ("self", "batch", "logits_output"),
        "sample",
    ),
    Target(
        "verification of EAGLE",
        f"{SPECULATIVE}.eagle_utils.eagle_sample",
        ("verify_input", "batch", "logits_output"),
        "sample",
    ),
    Target(
        "verification of EAGLE with overlap",
        f"{SPECULATIVE}.eagle_utils.eagle_sample",
        ("verify_input", "batch", "logits_output"),
        "sample",
    ),
    Target(
        "verification of NGRAM",
        f"{SPECULATIVE}.ngram_info.NgramVerifyInput.verify",
        ("self", "batch", "logits_output"),
        "verify",
    ),
    Target(
        "verification of NGRAM",
        f"{SPECULATIVE}.eagle_utils.eagle_sample",
        ("verify_input", "batch", "logits_output"),
        "sample",
    ),
    Target(
        "verification of DFLASH",
        f"{SPECULATIVE}.dflash_info.DFlashVerifyInput.verify",
        ("self", "batch", "logits_output"),
        "dflash_verify",
    ),
    Target(
        "verification of DFLASH",
        f"{SPECULATIVE}.dflash_worker_v2.DFlashWorkerV2.forward_batch_generation",
        ("self",),
        "dflash_step",
    ),
    Target(
        "move of KV",
        f"{SPECULATIVE}.spec_utils.move_accept_tokens_to_target_kvcache",
        ("batch", "token_to_kv_pool_allocator"),
        "move",
    ),
    Target(
        "walk of EAGLE before stops",
        f"{SPECULATIVE}.eagle_utils.verify_tree_greedy_func",
        ("predicts", "accept_index", "accept_token_num"),
        "greedy_walk",
    ),
    Target(
        "walk of NGRAM before stops",
        f"{SPECULATIVE}.ngram_info.NgramVerifyInput._fill_requests",
        ("self", "batch"),
        "ngram_walk",
    ),
    Target(
        "walk of DFLASH before stops",
        f"{SPECULATIVE}.dflash_utils.compute_dflash_correct_drafts_and_bonus",
        ("candidates", "target_predict"),
        "dflash_walk",
    ),
)

ATTRIBUTES = (
    Attributes(
        ATTENTION,
        (
            ("num_draft_tokens",),
            ("qo_indptr",),
            ("kv_indptr",),
            ("mask_indptr",),
            ("cuda_graph_kv_indices",),
            ("cuda_graph_custom_mask", "_verify_mask"),
            ("forward_metadata",),
            ("max_context_len",),
        ),
    ),
    Attributes(
        f"{SPECULATIVE}.ngram_info.NgramVerifyInput",
        (
            ("predict",),
            ("accept_indices", "accepted_indices"),
            ("num_correct_drafts", "num_accepted_drafts"),
        ),
        with_method="_fill_requests",
    ),
    Attributes(
        f"{SPECULATIVE}.ngram_info.NgramVerifyInput",
        (
            *(("draft_token",), ("draft_token_num",), ("custom_mask",), ("positions",)),
            *(("retrieve_next_token",), ("retrieve_next_sibling",)),
        ),
    ),
)

OWN = (  # DDTREE's, which SGLang does not know
    Target(
        "verification of DDTREE",
        "engine.sglang.ddtree.verify.verify",
        ("verify_input", "batch", "logits_output"),
        "verify",
    ),
    Target(
        "walk of DDTREE before stops",
        "engine.sglang.ddtree.verify.walk",
        ("trees", "predict", "steps"),
        "tree_walk",
    ),
)

# Where verification does not cut paths at a request's end, the walk itself needs no hook of its own; where it commits
# by itself, the request table says what was committed.
REPLACED_BY = {
    "move of KV": "verify",
    "walk of EAGLE before stops": "eagle_sample",
    "walk of NGRAM before stops": "eagle_sample",
    "walk of DFLASH before stops": "forward_batch_generation",
}
REQUIRED = ("eager", "replay")
