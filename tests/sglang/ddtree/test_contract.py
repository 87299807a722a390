"""Every name, signature and attribute of SGLang 0.5.12 that DDTREE leans on, read in its source."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from engine.sglang.ddtree import hooks, plugin, refusals
from engine.sglang.ddtree.arguments import CHECKED_VERSION, REFUSED
from engine.sglang.ddtree.drafter_cache import POOL
from engine.sglang.ddtree.head import Shard
from engine.sglang.ddtree.options import SLACK
from tests.sglang.wheel_source import attributes, definition, parameters
from tests.sglang_wheels import sglang_folder

SPEC = "sglang.srt.speculative"
WORKER, INFO = f"{SPEC}.dflash_worker.DFlashWorker", f"{SPEC}.dflash_info.DFlashVerifyInput"
BATCH = "sglang.srt.managers.schedule_batch"


@pytest.fixture(scope="module")
def folder() -> Path:
    return sglang_folder(CHECKED_VERSION)


def body(folder: Path, path: str) -> list[ast.stmt]:
    found = definition(folder, path)
    assert found is not None, path
    return found.body


def text(folder: Path, path: str) -> str:
    """Source of a function or class without comments, in one layout."""
    found = definition(folder, path)
    assert found is not None, path
    return ast.unparse(found)


def fields(folder: Path, path: str) -> list[str]:
    """Annotated names of a class."""
    return [
        n.target.id
        for n in body(folder, path)
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    ]


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    return [
        n
        for n in ast.walk(node)
        if isinstance(n, ast.Call) and ast.unparse(n.func).split(".")[-1] == name
    ]


def keywords(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}


class TestRegistration:
    def test_the_registry_takes_what_the_plugin_gives(self, folder: Path) -> None:
        taken = parameters(folder, f"{SPEC}.spec_info.SpeculativeAlgorithm.register") or ()
        assert {"name", "supports_overlap", "validate_server_args", "spec_class"} <= {*taken}
        made = text(folder, f"{SPEC}.spec_registry.register_algorithm")
        assert "spec_class(name=upper, factory=factory" in made

    def test_the_name_is_free(self, folder: Path) -> None:
        source = (folder / "sglang/srt/speculative/spec_registry.py").read_text("utf-8")
        reserved = source.partition("_RESERVED_NAMES")[2].partition(")")[0]
        assert '"DFLASH"' in reserved
        assert f'"{hooks.NAME}"' not in reserved

    def test_arguments_are_settled_before_anything_asks_for_the_name(self, folder: Path) -> None:
        handled = text(folder, "sglang.srt.server_args.ServerArgs._handle_speculative_decoding")
        assert handled.index("algo.validate_server_args(self)") < handled.index("== 'DFLASH'")
        order = text(folder, "sglang.srt.server_args.ServerArgs.__post_init__")
        last = order.index("self._handle_speculative_decoding()")
        assert order.index("self._handle_attention_backend_compatibility()") < last
        assert order.index("self._handle_page_size()") < last

    def test_every_argument_that_is_read_or_set_exists(self, folder: Path) -> None:
        known = fields(folder, "sglang.srt.server_args.ServerArgs")
        wanted = {
            *REFUSED, "speculative_num_draft_tokens", "speculative_dflash_block_size",
            "speculative_num_steps", "speculative_draft_window_size", "max_running_requests",
            "speculative_draft_model_path", "speculative_draft_model_revision",
            "disable_overlap_schedule", "enable_mixed_chunk", "trust_remote_code",
            "json_model_override_args", "speculative_algorithm",
        }  # fmt: skip
        assert wanted <= {*known}
        assert parameters(folder, "sglang.srt.server_args.ServerArgs.get_attention_backends")

    def test_the_scheduler_loads_plugins_and_makes_the_worker_by_keyword(
        self, folder: Path
    ) -> None:
        process = text(folder, "sglang.srt.managers.scheduler.run_scheduler_process")
        assert "load_plugins()" in process
        made = definition(folder, "sglang.srt.managers.scheduler.Scheduler.maybe_init_draft_worker")
        assert made is not None
        (given,) = calls(made, "dict")
        taken = parameters(folder, f"{WORKER}.__init__") or ()
        assert keywords(given) == {*taken} - {"self"}
        assert plugin.SCHEDULER == "sglang.srt.managers.scheduler"

    def test_a_drafters_configuration_names_its_block(self, folder: Path) -> None:
        assert parameters(folder, f"{SPEC}.dflash_utils.parse_dflash_draft_config")
        resolved = parameters(folder, f"{SPEC}.dflash_utils.DFlashDraftConfig.resolve_block_size")
        assert resolved == ("self", "default")


class TestDraftStep:
    """Where the worker leaves DFLASH's draft step."""

    @pytest.fixture
    def steps(self, folder: Path) -> list[ast.stmt]:
        return body(folder, f"{WORKER}._prepare_for_speculative_decoding")

    def test_the_head_is_asked_once_outside_of_any_try_with_hidden_states_and_head(
        self, steps: list[ast.stmt]
    ) -> None:
        name = "_greedy_sample_from_vocab_parallel_head"
        places = [i for i, step in enumerate(steps) if calls(step, name)]
        assert len(places) == 1
        assert isinstance(steps[places[0]], ast.Assign)
        (call,) = calls(steps[places[0]], name)
        assert keywords(call) == {"hidden_states", "lm_head"}
        assert "draft_hidden[:, 1:, :]" in ast.unparse(call)

    def test_before_it_the_block_is_given_back_and_the_batch_is_untouched(
        self, steps: list[ast.stmt]
    ) -> None:
        place = next(
            i for i, s in enumerate(steps) if calls(s, "_greedy_sample_from_vocab_parallel_head")
        )
        tries = [s for s in steps[:place] if isinstance(s, ast.Try)]
        assert any("restore_state" in ast.unparse(s.finalbody[0]) for s in tries)
        stores = [
            ast.unparse(node)
            for step in steps[:place]
            for node in ast.walk(step)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        ]
        assert not [name for name in stores if name.startswith("batch.")]

    def test_after_it_only_the_chains_verify_input_is_made(self, steps: list[ast.stmt]) -> None:
        place = next(
            i for i, s in enumerate(steps) if calls(s, "_greedy_sample_from_vocab_parallel_head")
        )
        rest = ast.unparse(ast.Module(steps[place + 1 :], []))
        for stored in ("batch.forward_mode", "batch.spec_info", "batch.return_hidden_states"):
            assert f"{stored} = " in rest
        assert rest.count("batch.") == rest.count("batch.forward_mode") + 2

    def test_extend_and_idle_return_first(self, steps: list[ast.stmt]) -> None:
        assert isinstance(steps[0], ast.If)
        assert "is_extend() or batch.forward_mode.is_idle()" in ast.unparse(steps[0].test)
        assert isinstance(steps[0].body[0], ast.Return)

    def test_the_block_size_is_the_draft_arguments_width(self, folder: Path) -> None:
        made = text(folder, f"{WORKER}.__init__")
        assert "self.block_size = int(server_args.speculative_num_draft_tokens)" in made
        assert "draft_server_args = deepcopy(server_args)" in made
        known = attributes(folder, WORKER)
        assert {"server_args", "page_size", "target_worker", "_warned_sampling_fallback"} <= known

    def test_the_head_has_the_shards_fields(self, folder: Path) -> None:
        used = text(folder, f"{WORKER}._greedy_sample_from_vocab_parallel_head")
        for name in Shard.__annotations__:
            assert f"shard.{name}" in used
        assert "get_tp_group()" in used
        assert "tp_group.all_gather_into_tensor(" in used

    def test_groups_of_ranks_tell_each_other_objects(self, folder: Path) -> None:
        path = "sglang.srt.distributed.parallel_state.GroupCoordinator.broadcast_object"
        assert parameters(folder, path) == ("self", "obj", "src")


class TestVerifyStep:
    def test_the_worker_calls_verify_and_takes_four_values(self, folder: Path) -> None:
        decode = definition(folder, f"{WORKER}.forward_batch_generation")
        assert decode is not None
        (call,) = calls(decode, "verify")
        assert keywords(call) == {"batch", "logits_output", "page_size"}
        written = ast.unparse(decode)
        taken = "new_bonus_tokens, commit_lens, next_target_hidden, num_correct_drafts_per_req_cpu"
        assert taken in written
        assert "isinstance(verify_input, DFlashVerifyInput)" in written
        for name in ("bonus_tokens", "target_hidden", "ctx_lens"):
            assert f"draft_input.{name} = " in written
        assert written.index("draft_input.ctx_lens = commit_lens") < written.rindex(
            "self._append_target_hidden_to_draft_kv(batch, draft_input)"
        )

    def test_a_decode_step_appends_at_most_a_block_a_request(self, folder: Path) -> None:
        appended = text(folder, f"{WORKER}._append_target_hidden_to_draft_kv")
        assert "max_ctx = int(self.block_size)" in appended

    def test_the_verify_input(self, folder: Path) -> None:
        named = fields(folder, INFO)
        assert named[:3] == ["draft_token", "positions", "draft_token_num"]
        assert {"custom_mask", "capture_hidden_mode", "topk"} <= {*named}
        prepared = parameters(folder, f"{INFO}.prepare_for_verify")
        assert prepared == ("self", "batch", "page_size", "build_custom_mask")
        assert parameters(folder, f"{INFO}.verify") == (
            "self", "batch", "logits_output", "page_size",
        )  # fmt: skip

    def test_the_table_kernel(self, folder: Path) -> None:
        assert parameters(folder, f"{SPEC}.spec_utils.assign_req_to_token_pool_func") == (
            "req_pool_indices", "req_to_token", "start_offset", "end_offset", "out_cache_loc",
            "batch_size",
        )  # fmt: skip

    def test_requests(self, folder: Path) -> None:
        known = attributes(folder, f"{BATCH}.Req")
        assert {
            "output_ids", "kv_committed_len", "kv_allocated_len", "spec_verify_ct",
            "spec_num_correct_drafts", "require_reasoning", "return_logprob", "return_hidden_states",
            "return_routed_experts", "custom_logit_processor", "sampling_params", "to_finish",
        } <= known  # fmt: skip
        assert {*refusals.OUTPUTS} <= known
        assert parameters(folder, f"{BATCH}.Req.check_finished")
        assert parameters(folder, f"{BATCH}.Req.finished")
        assert parameters(folder, f"{BATCH}.Req.update_reasoning_tokens") == (
            "self", "token_id", "think_end_id",
        )  # fmt: skip
        histogram = parameters(folder, f"{BATCH}.Req.update_spec_correct_drafts_histogram")
        assert histogram == ("self", "num_correct_drafts")

    def test_free_slots_are_asked_for_the_larger_of_steps_and_rows(self, folder: Path) -> None:
        required = text(folder, f"{BATCH}.ScheduleBatch.new_tokens_required_next_decode")
        assert "max(len_per_topk * spec_topk, spec_tokens) * len(requests)" in required

    def test_settings_of_requests(self, folder: Path) -> None:
        path = "sglang.srt.sampling.sampling_params.SamplingParams"
        known = attributes(folder, path)
        assert {*refusals.GRAMMARS, *refusals.PENALTIES, "min_p", "logit_bias"} <= known
        batch = fields(folder, "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo")
        assert {
            "temperatures", "top_ks", "top_ps", "min_ps", "is_all_greedy", "need_top_p_sampling",
            "need_top_k_sampling", "need_min_p_sampling", "logit_bias",
        } <= {*batch}  # fmt: skip

    def test_neutral_values_are_the_defaults(self, folder: Path) -> None:
        made = definition(folder, "sglang.srt.sampling.sampling_params.SamplingParams.__init__")
        assert isinstance(made, ast.FunctionDef)
        names = [a.arg for a in made.args.args][-len(made.args.defaults) :]
        defaults: dict[str, Any] = {
            name: ast.literal_eval(value)
            for name, value in zip(names, made.args.defaults, strict=True)
        }
        assert {name: defaults[name] for name in refusals.PENALTIES} == refusals.PENALTIES
        assert not any(defaults[name] for name in refusals.GRAMMARS)


class TestDraftersCache:
    """What is done in a graph instead of ``_append_target_hidden_to_draft_kv``."""

    FUSED = f"{SPEC}.triton_ops.fused_kv_materialize"

    def test_dflash_projects_writes_and_moves_its_lengths_on(self, folder: Path) -> None:
        appended = text(folder, f"{WORKER}._append_target_hidden_to_draft_kv")
        for done in (
            "ctx_start = batch.seq_lens.to(torch.int64) - ctx_lens.to(torch.int64)",
            "self.draft_model.project_target_hidden(draft_input.target_hidden)",
            "if self._use_fused_kv_materialize and self._fused_kv_helper is not None:",
            "self._append_target_hidden_fused(ctx_hidden, ctx_positions, ctx_cache_loc)",
            "self._append_target_hidden_sequential(ctx_hidden, ctx_positions, ctx_cache_loc)",
            "if self.use_compact_draft_cache:",
            "draft_input.draft_seq_lens = batch.seq_lens.to(dtype=torch.int32)",
            "draft_input.ctx_lens = torch.zeros_like(ctx_lens)",
            "draft_input.target_hidden = draft_input.target_hidden[:0]",
        ):
            assert done in appended
        assert {
            "_use_fused_kv_materialize", "_fused_kv_helper", "use_compact_draft_cache",
            "draft_model", "draft_model_runner",
        } <= attributes(folder, WORKER)  # fmt: skip
        assert parameters(folder, f"{WORKER}._append_target_hidden_sequential") == (
            "self", "ctx_hidden", "ctx_positions", "ctx_cache_loc",
        )  # fmt: skip

    def test_without_features_it_only_says_so_again(self, folder: Path) -> None:
        steps = body(folder, f"{WORKER}._append_target_hidden_to_draft_kv")
        (early,) = [s for s in steps if ast.unparse(s).startswith("if total_ctx <= 0:")]
        assert isinstance(early, ast.If)
        assert [ast.unparse(s) for s in early.body] == [
            "draft_input.ctx_lens = torch.zeros_like(draft_input.ctx_lens)",
            "draft_input.target_hidden = draft_input.target_hidden[:0]",
            "return",
        ]

    def test_the_batch_still_has_the_verify_input_then(self, folder: Path) -> None:
        decode = text(folder, f"{WORKER}.forward_batch_generation")
        verified = decode.partition("verify_input.verify(")[2]
        append = "self._append_target_hidden_to_draft_kv(batch, draft_input)"
        assert verified.index(append) < verified.index("batch.spec_info = draft_input")

    def test_the_fused_helper_waits_for_the_largest_position_alone(self, folder: Path) -> None:
        made = text(folder, f"{self.FUSED}.FusedKVMaterializeHelper.materialize")
        assert made.count(".item()") == 1
        assert "max_position = int(positions.max().item())" in made
        assert "if max_position >= int(cos_sin_cache.shape[0]):" in made
        assert "torch.einsum('th,loh->lto', ctx_hidden, self.batched_kv_weight)" in made
        assert parameters(folder, f"{self.FUSED}._fused_norm_rope") == (
            "kv", "k_norm_weight", "cos_sin_cache", "positions", "num_kv_heads", "head_dim",
            "rotary_dim", "eps",
        )  # fmt: skip
        for waits in (".item()", ".cpu()", ".tolist()", "synchronize"):
            assert waits not in text(folder, f"{self.FUSED}._fused_norm_rope")

    def test_writing_waits_for_nothing_and_slot_0_is_nobodys(self, folder: Path) -> None:
        pools = "sglang.srt.mem_cache.memory_pool"
        for path in (f"{pools}.{POOL}.set_kv_buffer", f"{pools}._set_kv_buffer_impl"):
            written = text(folder, path)
            for waits in (".item()", ".cpu()", ".tolist()", "synchronize"):
                assert waits not in written
        assert "self.size + self.page_size" in text(folder, f"{pools}.{POOL}._create_buffers")
        allocator = "sglang.srt.mem_cache.allocator.TokenToKVPoolAllocator"
        assert "torch.arange(1, self.size + 1" in text(folder, f"{allocator}.clear")

    def test_every_call_of_the_drafter_has_its_rows_written(self, folder: Path) -> None:
        """Prompts at once, a block by its own forward: stale rows in slots that were given back are not read."""
        step = text(folder, f"{WORKER}.forward_batch_generation")
        prompts, decode, _ = step.partition("self._prepare_for_speculative_decoding(")
        assert decode
        assert "self._append_target_hidden_to_draft_kv(batch, draft_input)" in prompts
        drafted = text(folder, f"{WORKER}._prepare_for_speculative_decoding")
        assert "out_cache_loc=block_cache_loc" in drafted
        assert "seq_lens = draft_prefix_lens" in drafted


class TestGraphs:
    """What is captured when the worker is made, and for which batch sizes."""

    MODELS = "sglang.srt.model_executor.model_runner.ModelRunner"
    GRAPHS = "sglang.srt.model_executor.cuda_graph_runner.CudaGraphRunner"

    def test_the_target_names_its_sizes_and_takes_the_smallest_that_holds_a_batch(
        self, folder: Path
    ) -> None:
        assert "capture_bs" in attributes(folder, self.GRAPHS)
        padded = text(folder, f"{self.GRAPHS}.replay_prepare")
        assert "bisect.bisect_left(self.capture_bs, raw_bs)" in padded
        assert "cuda_graph_bs <= self.max_bs" in text(folder, f"{self.GRAPHS}.can_run")

    def test_without_graphs_there_is_no_runner_of_them(self, folder: Path) -> None:
        made = text(folder, f"{self.MODELS}.init_device_graphs")
        assert made.index("self.graph_runner = None") < made.index("server_args.disable_cuda_graph")
        started = text(folder, f"{self.MODELS}.initialize")
        assert "self.init_device_graphs()" in started
        assert started.count("self.graph_runner = None") == 2

    def test_the_fused_helper_is_the_last_that_dflashs_worker_makes(self, folder: Path) -> None:
        last = ast.unparse(body(folder, f"{WORKER}.__init__")[-1])
        assert last.startswith("if self._use_fused_kv_materialize:")
        assert "self._init_fused_kv_helper()" in last
        made = text(folder, f"{WORKER}.__init__")
        assert "self.draft_model = self.draft_model_runner.model" in made
        assert "self.device = target_worker.device" in made

    def test_the_projection_tells_both_widths(self, folder: Path) -> None:
        drafter = "sglang.srt.models.dflash.DFlashDraftModel"
        made = text(folder, f"{drafter}.__init__")
        width = "self.num_context_features * hidden_size, hidden_size, bias=False"
        assert f"self.fc = nn.Linear({width})" in made
        projected = text(folder, f"{drafter}.project_target_hidden")
        assert "return self.hidden_norm(self.fc(target_hidden))" in projected


class TestWidths:
    def test_the_backend_takes_its_width_from_the_arguments_and_lays_out_by_it(
        self, folder: Path
    ) -> None:
        made = text(folder, f"{hooks.BACKEND}.__init__")
        width = "self.num_draft_tokens = model_runner.server_args.speculative_num_draft_tokens"
        assert width in made
        assert parameters(folder, hooks.INIT)[:2] == ("self", "model_runner")  # type: ignore[index]
        for method, times in (
            ("init_forward_metadata", 4),
            ("init_forward_metadata_capture_cuda_graph", 4),
            ("init_forward_metadata_replay_cuda_graph", 4),
        ):
            laid = text(folder, f"{hooks.BACKEND}.{method}")
            assert laid.count("self.num_draft_tokens") >= times
            assert "spec_info.draft_token_num" not in laid

    def test_graphs_take_it_from_the_arguments_too(self, folder: Path) -> None:
        path = "sglang.srt.model_executor.cuda_graph_runner.CudaGraphRunner"
        made = text(folder, f"{path}.__init__")
        assert "self.num_tokens_per_bs = self.speculative_num_draft_tokens" in made
        captured = text(folder, f"{path}.get_spec_info")
        assert "elif self.model_runner.spec_algorithm.is_dflash():" in captured
        assert "else self.buffers.custom_mask" in captured

    def test_triton_is_not_among_the_backends_that_skip_the_mask(self, folder: Path) -> None:
        source = (folder / "sglang/srt/speculative/dflash_utils.py").read_text("utf-8")
        skipping = source.partition("_DFLASH_VERIFY_SKIP_CUSTOM_MASK_BACKENDS = ")[2].partition(
            ")"
        )[0]
        assert "FlashAttentionBackend" in skipping
        assert "TritonAttnBackend" not in skipping

    def test_the_mask_buffer_that_is_made_wider(self, folder: Path) -> None:
        assert parameters(folder, hooks.GRAPH_STATE)[:3] == ("self", "max_bs", "max_num_tokens")  # type: ignore[index]
        laid = text(folder, hooks.GRAPH_STATE)
        assert (
            "self.cuda_graph_custom_mask = torch.zeros(max_num_tokens * self.max_context_len"
            in laid
        )
        assert "max_context_len" in attributes(folder, hooks.BACKEND)

    def test_a_request_has_four_columns_beside_context_and_width(self, folder: Path) -> None:
        path = "sglang.srt.model_executor.model_runner_kv_cache_mixin.ModelRunnerKVCacheMixin"
        pools = text(folder, f"{path}._init_pools")
        assert f"extra_max_context_len = {SLACK}\n" in pools
        wider = "extra_max_context_len += self.server_args.speculative_num_draft_tokens"
        assert wider in pools

    def test_the_targets_features_are_captured_for_whatever_says_that_it_is_dflash(
        self, folder: Path
    ) -> None:
        runner = text(folder, "sglang.srt.model_executor.model_runner.ModelRunner.__init__")
        assert "if self.spec_algorithm.is_dflash() and (not self.is_draft_worker):" in runner
        known = attributes(folder, "sglang.srt.model_executor.model_runner.ModelRunner")
        assert {"sliding_window_size", "model_is_mrope", "attn_backend", "is_draft_worker"} <= known


def test_requests_are_refused_where_dflash_refuses_them(folder: Path) -> None:
    assert parameters(folder, hooks.VALIDATE) == ("req",)
    source = (folder / "sglang/srt/managers/scheduler.py").read_text("utf-8")
    before, _, after = source.partition("validate_dflash_request(req)\n")
    assert before.rstrip().endswith("error_msg =")
    assert "if self.spec_algorithm.is_dflash():" in before[-120:]
    assert "req.set_finish_with_abort(error_msg)" in after[:200]
