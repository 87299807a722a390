"""What each hook does with the call that it wraps."""

from __future__ import annotations

from typing import Any

import torch

from engine.sglang import verified
from engine.sglang.fingerprints import fingerprints
from engine.sglang.host import HostCopies, NotCopied, capturing
from engine.sglang.laid import lay_eager, lay_replay
from engine.sglang.raw import RawStep, Tree
from engine.sglang.tap import Handler, Tap
from engine.sglang.verified import Verifying

Given = dict[str, Any]
CHAIN = Tree("chain")


def _start(tap: Tap, held: Any, result: Any, given: Given) -> None:
    if tap.start is not None:
        tap.start(given["self"])


def _is_verify(mode: Any, spec_info: Any) -> bool:
    return spec_info is not None and bool(mode.is_target_verify())


def _eager(tap: Tap, held: Any, result: Any, given: Given) -> None:
    batch = given["forward_batch"]
    if _is_verify(batch.forward_mode, batch.spec_info) and not capturing(batch.seq_lens):
        tap.add_laid(lay_eager(given["self"], batch))


def _replay(tap: Tap, held: Any, result: Any, given: Given) -> None:
    spec_info, lens = given["spec_info"], given["seq_lens"]
    if _is_verify(given["forward_mode"], spec_info) and not capturing(lens):
        count = len(given["req_pool_indices"])
        tap.add_laid(lay_replay(given["self"], spec_info, count, lens, given["seq_lens_cpu"]))


def _out_graph(tap: Tap, held: Any, result: Any, given: Given) -> None:
    batch = given["forward_batch"]
    if given.get("in_capture") or capturing(batch.seq_lens):
        return
    if _is_verify(batch.forward_mode, batch.spec_info):
        lens, host = batch.seq_lens, batch.seq_lens_cpu
        tap.add_laid(lay_replay(given["self"], batch.spec_info, batch.batch_size, lens, host))


def _padding(tap: Tap, held: Any, result: Any, given: Given) -> None:
    batch, runner = given["forward_batch"], given["self"]
    laid = tap.pending[-1] if tap.pending else None
    if laid is None or batch.spec_info is not laid.spec_info or laid.graph != "replay":
        return
    laid.forward_batch, laid.buffers = batch, runner.buffers
    if tap.early:
        laid.read().mark()


def _eagle_tree(tap: Tap, held: Any, result: Any, given: Given) -> None:
    if not capturing(given["top_scores_index"]):
        copies = HostCopies()
        copies.take("parent_list", given["parent_list"])
        copies.take("selected", given["top_scores_index"])
        copies.mark()
        tap.tree, tap.tree_copies, tap.tree_mask = Tree("eagle", int(given["topk"])), copies, None


def _ngram_tree(tap: Tap, held: Any, result: Any, given: Given) -> None:
    tap.tree_mask = result[1]


def _of(batch: Any) -> tuple[int, ...]:
    """What is verified: which requests, or places where it does not know them."""
    requests = getattr(batch, "reqs", None)
    return tuple(map(id, requests)) if requests else tuple(range(len(batch.seq_lens)))


def _begin(tap: Tap, given: Given) -> Verifying | None:
    spec_info = given["verify_input"] if "verify_input" in given else given["self"]
    batch, logits = given["batch"], given["logits_output"]
    tap.walk = tap.verifying = None
    if capturing(batch.seq_lens):
        return None
    tap.release()
    if batch.forward_mode.is_idle():
        tap.make()
        return None
    wanted = tap.turn(_of(batch))
    tap.make(batch, recorded=wanted)
    if not wanted:
        tap.counts.seen += 1
        tap.forget()
        return None
    step = verified.begin(spec_info, batch, logits)
    step.laid = laid = tap.laid_of(spec_info)
    if laid is not None:
        step.copies.join(laid.read())
        laid.copies = HostCopies()
    step.tree, step.more = tap.take_tree()
    step.moves_no_rows = given.get("page_size") == 1
    if not tap.walks:
        step.copies.mark()  # before anything is changed in place; else the walk's hook does it
    tap.verifying = step
    return step


def _end(step: Verifying, tap: Tap) -> bool:
    """Add what the target prefers and the acceptance before stops cut it; whether a hook saw the latter.

    Raises :class:`NotCopied` where inputs waited for an acceptance that did not come: they may have changed since.
    """
    if tap.walk is not None:
        step.walk = tap.walk
        tap.walks = True
        return True
    if tap.walks:
        tap.walks = False
        if step.copies.noted:
            raise NotCopied(f"{step.facts['algorithm']}: expected the acceptance, found none")
    verified.predict(step)
    step.copies.take("top2", step.best)
    return False


def _after_verify(tap: Tap, step: Verifying | None, result: Any, given: Given) -> None:
    if step is not None:
        _close(tap, step, _end(step, tap))


def _close(tap: Tap, step: Verifying, committed: bool) -> None:
    """Of a step that emits by itself. What it committed is told at the next verification, before which the host has
    time; where a request has ended, its row of the table may be another's by then, so it is read now.
    """
    requests = step.requests
    if requests:
        step.outputs = [request.output_ids for request in requests]
        step.lengths = [len(outputs) for outputs in step.outputs]
        step.finished = [request.finished() for request in requests]
    step.awaits_commit = committed and not any(step.finished or ())
    if committed and not step.awaits_commit:
        verified.take_committed(step, step.batch)
    step.copies.mark()  # what no earlier hook has
    tap.finish(step)


def _after_sample(tap: Tap, step: Verifying | None, result: Any, given: Given) -> None:
    if step is None:
        return
    _end(step, tap)
    predict, lengths, index = result
    step.copies.take("predict", predict)
    step.copies.take("accept_lens", lengths)
    step.copies.take("accept_index", index)
    step.copies.mark()
    tap.finish(step, hold=tap.control.fingerprints)


def _before_move(tap: Tap, given: Given) -> RawStep | None:
    """Fingerprints of all rows of the step that has just been verified."""
    step = tap.held
    if step is not None:
        _take_fingerprints(step, "kv_before", given)
    return step


def _after_move(tap: Tap, step: RawStep | None, result: Any, given: Given) -> None:
    if step is not None:
        _take_fingerprints(step, "kv_after", given)
    tap.release()


def _take_fingerprints(step: RawStep, name: str, given: Given) -> None:
    pool = given["token_to_kv_pool_allocator"].get_kvcache()
    copies = HostCopies()
    copies.take(name, fingerprints(pool, given["batch"].out_cache_loc.long()))
    copies.mark()
    step.packs.extend(copies.packs)
    step.arriving.extend(copies.fence())


def _after_outside(tap: Tap, step: Verifying | None, result: Any, given: Given) -> None:
    """An algorithm from outside: three tensors as ``eagle_sample`` returns them, else what the walk's hook saw."""
    three = isinstance(result, tuple) and len(result) == 3
    if three and all(isinstance(part, torch.Tensor) for part in result):
        _after_sample(tap, step, result, given)
    else:
        _after_verify(tap, step, result, given)


def _after_dflash(tap: Tap, step: Verifying | None, result: Any, given: Given) -> None:
    if step is None:
        return
    if not _end(step, tap):
        step.copies.take("accept_lens", result[1])
    step.tree = CHAIN
    _close(tap, step, committed=True)


def _before_dflash_step(tap: Tap, given: Given) -> Any:
    """The batch of a decode step; the verify input is made inside the call."""
    batch = given["batch"] if "batch" in given else given["model_worker_batch"]
    mode = batch.forward_mode
    tap.make()
    if mode.is_idle() or mode.is_extend():
        return None
    tap.turn(_of(batch))
    return batch


def _after_dflash_step(tap: Tap, batch: Any, result: Any, given: Given) -> None:
    if batch is None or result.accept_lens is None:
        return
    if not tap.wanted or not tap.pending:
        tap.counts.unmatched += bool(tap.wanted)
        tap.counts.seen += 1
        tap.forget()
        return
    laid = tap.pending[-1]
    step = verified.begin(laid.spec_info, batch, result.logits_output)
    step.laid, step.tree = laid, CHAIN
    verified.predict(step)
    step.copies.take("top2", step.best)
    step.copies.take("accept_lens", result.accept_lens)
    step.copies.mark()
    tap.finish(step)


def _keep_walk(tap: Tap, predict: Any, index: Any, correct: Any, bonus: Any = None) -> None:
    if capturing(correct):
        return
    walk = HostCopies()
    walk.take("predict", predict)
    walk.take("accept_index", index)
    walk.take("accept_lens", correct + 1)
    walk.take("bonus", bonus)
    step = tap.verifying
    if step is not None:
        verified.predict(step)
        step.logits = None
        walk.take("top2", step.best)
        if step.copies.noted:
            walk.noted.update(step.copies.noted)
            step.copies.noted = {}
    walk.mark()  # before a stop cuts it in place; the host has not waited for the forward yet
    tap.walk = walk


def _greedy_walk(tap: Tap, held: Any, result: Any, given: Given) -> None:
    _keep_walk(tap, *result)


def _ngram_walk(tap: Tap, given: Given) -> None:
    spec = given["self"]
    names = (("accept_indices", "accepted_indices"), ("num_correct_drafts", "num_accepted_drafts"))
    _keep_walk(tap, spec.predict, *(_either(spec, *pair) for pair in names))


def _either(holder: Any, name: str, older: str) -> Any:
    """An attribute that was renamed."""
    return getattr(holder, name) if hasattr(holder, name) else getattr(holder, older)


def _dflash_walk(tap: Tap, held: Any, result: Any, given: Given) -> None:
    _keep_walk(tap, None, None, result[0], result[1])


def _tree_walk(tap: Tap, held: Any, result: Any, given: Given) -> None:
    predict = given["predict"]
    first = torch.arange(len(predict), device=predict.device)[:, None] * predict.shape[1]
    index = torch.where(result.path < 0, -1, result.path + first)
    _keep_walk(tap, predict.flatten(), index, result.accept_length - 1)


HANDLERS = {
    "start": Handler(after=_start, always=True),
    "eager": Handler(after=_eager),
    "replay": Handler(after=_replay),
    "out_graph": Handler(after=_out_graph),
    "padding": Handler(after=_padding),
    "eagle_tree": Handler(after=_eagle_tree),
    "ngram_tree": Handler(after=_ngram_tree),
    "verify": Handler(_begin, _after_verify, counts=True),
    "sample": Handler(_begin, _after_sample, counts=True),
    "dflash_verify": Handler(_begin, _after_dflash, counts=True),
    "dflash_step": Handler(_before_dflash_step, _after_dflash_step, counts=True),
    "move": Handler(_before_move, _after_move, always=True),
    "outside": Handler(_begin, _after_outside, counts=True),
    "greedy_walk": Handler(after=_greedy_walk),
    "ngram_walk": Handler(before=_ngram_walk),
    "dflash_walk": Handler(after=_dflash_walk),
    "tree_walk": Handler(after=_tree_walk),
}
