"""From measured cells to one verdict. Behaviour decides; what the checks found is only put beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from engine.checks.finding import Effect
from engine.isolate.cell import Cell
from engine.isolate.contrasts import missing, proof, without_effect
from engine.isolate.experiment import Experiment
from engine.isolate.hangs_on import explain
from engine.isolate.measured import Measured
from engine.isolate.outcome import BROKEN, RIGHT, Outcome, outcomes, request_outcomes
from engine.isolate.predicates import ALWAYS, conditions
from engine.isolate.seen import Seen, seen_with
from engine.isolate.verdict import Kind, Verdict
from engine.isolate.verdict_words import Counts, blame, cells, nobody, unexplained


def judge(experiment: Experiment, results: Iterable[Measured]) -> Verdict:
    """The verdict of whatever was measured so far, in whatever order."""
    order = {cell: number for number, cell in enumerate(experiment.matrix)}
    measured = {
        result.cell: result
        for result in sorted(results, key=lambda r: (order.get(r.cell, len(order)), r.cell.key))
    }
    found = outcomes(measured.values(), speed_counts=experiment.speed_counts)
    kind, broken = _broken(found, measured)
    if broken:
        return _blamed(experiment, kind, broken, found, measured)
    return nobody(found)


def _broken(
    found: Mapping[Cell, Outcome], measured: Mapping[Cell, Measured]
) -> tuple[Kind, list[Cell]]:
    """The worst that there is, and the cells that have it."""

    def having(*bad: Outcome) -> list[Cell]:
        return [cell for cell, outcome in found.items() if outcome in bad]

    if having(Outcome.WRONG):
        return Kind.WRONG, having(Outcome.WRONG, Outcome.FAILED)
    if cells := having(Outcome.FAILED):
        return Kind.FAILED, cells
    slow = [cell for cell, result in measured.items() if Effect.ACCEPTANCE in result.effects]
    if cells := list(dict.fromkeys([*having(Outcome.SLOW), *slow])):
        return Kind.SLOW, cells
    return Kind.LATENT, [cell for cell, result in measured.items() if result.diagnoses]


def _blamed(
    experiment: Experiment,
    kind: Kind,
    broken: list[Cell],
    found: Mapping[Cell, Outcome],
    measured: Mapping[Cell, Measured],
) -> Verdict:
    bad, right = _texts(experiment, kind, broken, found, measured)
    known = conditions(experiment)
    why = explain(bad, right, known)
    failed, besides = [cell for cell in broken if found[cell] is Outcome.FAILED], 0
    if kind is Kind.WRONG and failed and (why.quiet or not why.fits):  # two faults, it may be
        wrong = [seen for seen in bad if found[seen.cell] is Outcome.WRONG]
        apart = explain(wrong, right, known)
        if apart.fits and (not why.fits or len(apart.quiet) < len(why.quiet)):
            why, bad, besides, failed = apart, wrong, len(failed), []
            broken = [cell for cell in broken if found[cell] is Outcome.WRONG]
    seen = Counts(len(broken), len(found), len(failed) if kind is Kind.WRONG else 0, besides)
    innocent = [cell for cell, what in found.items() if what in RIGHT and cell not in broken]
    cause = _cause(broken, innocent, measured)
    if not why.fits:
        return Verdict(kind, unexplained(kind, why, seen, cause), cause=cause)
    best = why.best
    pairs, same = proof(best, bad, right), without_effect(best, bad, why.quiet)
    proved = bool(pairs) or best is ALWAYS
    rivals = [r for r in why.rivals if r.rank < 2 or not set(r.factors) <= set(best.factors)]
    return Verdict(
        kind,
        blame(kind, why, seen, pairs, same, cause),
        best.factors,
        best.text,
        best.path,
        pairs,
        same,
        missing(experiment, bad, measured.keys(), best, rivals, proved),
        cause,
    )


def _texts(
    experiment: Experiment,
    kind: Kind,
    broken: Collection[Cell],
    found: Mapping[Cell, Outcome],
    measured: Mapping[Cell, Measured],
) -> tuple[list[Seen], list[Seen]]:
    """Those that are broken, and those that are right; of a wrong cell some may be right."""
    prompts, own = len(experiment.matrix.prompts), request_outcomes(measured.values())
    by_text = list(seen_with(measured.values(), found, own, prompts))
    if kind is not Kind.WRONG:
        by_text = [(s, Outcome.FAILED if s.cell in broken else what) for s, what in by_text]
    # Whatever a cell's text is, the cell did not fail.
    fine = set(Outcome) - set(BROKEN) if kind is Kind.FAILED else RIGHT
    bad = [seen for seen, what in by_text if what in BROKEN]
    return bad, [seen for seen, what in by_text if what in fine]


def _cause(
    broken: Collection[Cell], right: Collection[Cell], measured: Mapping[Cell, Measured]
) -> str | None:
    """The diagnosis that most broken cells have and no right one has."""
    count = Counter(name for cell in broken for name in measured[cell].diagnoses)
    innocent = {name for cell in right for name in measured[cell].diagnoses}
    fitting = [(n, name) for name, n in count.items() if name not in innocent]
    if not fitting:
        return None
    n, name = max(fitting)
    others = " and in no other" if right else ""
    return f"{name} in {n} of {cells(len(broken))}{others}"
