"""What a step concludes and keeps, at a glance: I13, I14, I15, I17, I18, I20, I22.

All but I22: where the accepted nodes are what the predictions accept, and nothing was cut at a stop.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.checks.glance.plain_step import PlainStep, is_unless_absent
from engine.step import Int64


def acceptance(plain: PlainStep) -> bool:
    """I13."""
    paths = plain.paths
    return paths is not None and is_unless_absent(
        plain.outcome.accept_length, list(map(len, paths))
    )


def bonus(plain: PlainStep) -> bool:
    """I14."""
    paths, predict = plain.paths, plain.target_predict
    if paths is None or predict is None:
        return False
    ends = zip(plain.qo_indptr, paths, strict=False)
    return is_unless_absent(
        plain.outcome.bonus_tokens, [predict[start + path[-1]] for start, path in ends]
    )


def kv_commit(plain: PlainStep) -> bool:
    """I15."""
    paths = plain.paths
    if paths is None or not all(_hold(layer.nodes, paths) for layer in plain.commit.kv or ()):
        return False
    both = zip(plain.prefix_lens, paths, strict=True)
    return is_unless_absent(plain.commit.seq_lens, [length + len(path) for length, path in both])


def recurrent_commit(plain: PlainStep) -> bool:
    """I17."""
    paths = plain.paths
    return paths is not None and is_unless_absent(
        plain.commit.recurrent_index, [path[-1] for path in paths]
    )


def drafter_context(plain: PlainStep) -> bool:
    """I18: hidden states, and the roots against the bonus that the step before recorded."""
    paths, handed, previous = plain.paths, plain.commit.hidden_rows, plain.context.previous
    if paths is None or (handed is not None and not _hold(handed, paths)):
        return False
    if previous is None or previous.outcome.bonus_tokens is None:
        return True
    bonuses = previous.outcome.bonus_tokens.tolist()
    for request, tree in enumerate(plain.trees):
        number = plain.context.number_before(request)
        if number is None or number >= len(bonuses):
            continue
        if tree.tokens is None or tree.tokens[0] != bonuses[number]:
            return False
    return True


def output(plain: PlainStep) -> bool:
    """I20: tokens of the accepted nodes without the root, then the bonus; none a stop, all in the vocabulary."""
    paths, emitted = plain.paths, plain.outcome.emitted
    bonuses, vocab = plain.outcome.bonus_tokens, plain.config.vocab_size
    if paths is None or emitted is None or bonuses is None:
        return False
    expected = [
        [*(tree.tokens[node] for node in path[1:]), last]
        for tree, path, last in zip(plain.trees, paths, bonuses.tolist(), strict=False)
        if tree.tokens is not None
    ]
    if len(expected) < len(paths) or not _hold(emitted, expected):
        return False
    tokens = [token for each in expected for token in each]
    inside = min(tokens) >= 0 and (vocab is None or max(tokens) < vocab)
    return inside and plain.context.stops.isdisjoint(tokens)


def reference(plain: PlainStep) -> bool:
    """I22."""
    chosen = plain.context.step.reference.target_predict
    return chosen is not None and chosen.tolist() == plain.target_predict


def _hold(recorded: Sequence[Int64], expected: list[list[int]]) -> bool:
    """Whether arrays of a step's requests hold exactly these numbers."""
    return [array.tolist() for array in recorded] == expected
