"""Every injector on trees of several shapes: its diagnosis as the only cause, or clean where it changes nothing."""

import pytest
import torch

from engine.attention.addressed import Unwritten
from engine.checks.registry import Report, check_trace
from engine.decoding.accept import Sampler
from engine.decoding.plain import decode_plain
from engine.decoding.settings import EngineConfig, Graph
from engine.faults import FAULTS, describe, inject
from engine.faults.injector import INJECTORS
from engine.models.tiny import random_decoder
from engine.step import VerifyStep
from tests.decoding.runs import PROMPTS, run_engine

MODEL = random_decoder("llama", seed=0, num_layers=3)
NEW_TOKENS = 24
PLAIN = list(decode_plain(MODEL, "r0", PROMPTS[0], NEW_TOKENS, sampler=Sampler()))
STOP = tuple(
    PLAIN[3:5]
)  # inside the first step's accepted path, for a drafter that is right that far
EXPECTED: dict[str, tuple[str, set[str]]] = {
    "verify-width": ("I1", {"width-mismatch"}),
    "size-from-tokens": ("I2", {"tree-size-from-tokens"}),
    "kv-counts-draft": ("I3", {"kv-counts-draft-twice"}),
    "seq-lens-behind": ("I3", {"seq-lens"}),
    "stale-kv-indices": ("I3", {"kv-indices"}),
    "prefix-only-offsets": ("I4", {"prefix-only-width"}),
    "stale-mask": ("I8", {"previous-tree-not-cleared"}),
    "causal-mask": ("I8", {"causal-mask"}),
    "first-requests-tree": ("I8", {"request-broadcast"}),
    "padding-leak": ("I8", {"padding-leak"}),
    "sibling-leak": ("I8", {"sibling-leak"}),
    "hidden-ancestor": ("I8", {"mask-cell"}),
    "flattened-positions": ("I10", {"flattened-positions"}),
    "lagging-positions": ("I10", {"constant-offset"}),
    "stale-padding": ("I11", {"stale-padding"}),
    "lost-sibling": ("I12", {"lost-sibling"}),
    "lost-child": ("I12", {"lost-child"}),
    # Where the wrong walk happens to give a shorter right path, or the path of another mistake, that is what is seen.
    "shifted-logits": ("I13", {"shifted-logits", "path-not-maximal"}),
    "unverified-first": ("I13", {"wrong-child", "shifted-logits"}),
    "short-walk": ("I13", {"path-not-maximal"}),
    "bonus-stride": ("I14", {"bonus-stride"}),
    "crop-commit": ("I15", {"cropped-not-gathered"}),
    "gather-twice": ("I15", {"gathered-twice"}),
    "skip-last-layer": ("I15", {"layer-not-compacted"}),
    "slot-collision": ("I16", {"slot-collision"}),
    "slot-in-prefix": ("I16", {"slot-in-prefix"}),
    "hidden-rows": ("I18", {"hidden-rows"}),
    "past-stop": ("I20", {"past-stop"}),
    "dropped-token": ("I20", {"emitted"}),
}
# A chain has no siblings, its rows are its depths and its accepted nodes are 0 … n-1; a full tree has no padding; a
# batch of one has no other request. What depends on the drafts of a run may or may not change anything.
CHAIN_ONLY = {
    "sibling-leak",
    "flattened-positions",
    "crop-commit",
    "gather-twice",
    "skip-last-layer",
    "causal-mask",
    "first-requests-tree",
    "lost-sibling",
    "bonus-stride",
}
HARMLESS = {"chain": CHAIN_ONLY, "bushy": {"padding-leak"}, "mixed": {"padding-leak"}}
ALONE = {"first-requests-tree"}
MAYBE = {"unverified-first", "size-from-tokens", "past-stop"}
SHAPES = {"chain": (16, 1), "bushy": (24, None), "mixed": (16, 3)}  # budget, top-k


def run(fault: str | None, shape: str, graph: Graph, batch: int) -> tuple[list, list[VerifyStep]]:
    budget, topk = SHAPES[shape]
    config = EngineConfig(
        budget=budget,
        topk=topk,
        graph=graph,
        max_context=100,
        stages=inject(fault, replay=graph is Graph.REPLAY),
        stop=STOP if fault == "past-stop" else (),
    )
    return run_engine(MODEL, config, PROMPTS[:batch], NEW_TOKENS, fault=fault, accuracy=0.7)


def causes(report: Report) -> set[tuple[str, str | None]]:
    return {(finding.check, finding.diagnosis) for finding in report.causes}


@pytest.mark.parametrize("graph", list(Graph))
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("fault", FAULTS)
def test_exactly_the_expected_diagnosis(fault: str, shape: str, batch: int, graph: Graph) -> None:
    if INJECTORS[fault].needs_replay and graph is Graph.EAGER:
        with pytest.raises(ValueError, match=f"fault {fault}: needs replay mode, found eager"):
            run(fault, shape, graph, batch)
        return
    _, steps = run(fault, shape, graph, batch)
    check, diagnoses = EXPECTED[fault]
    found = causes(check_trace(steps))
    if fault in HARMLESS[shape] or (fault in ALONE and batch == 1) or _has_no_padding(fault, steps):
        assert found == set()
    else:
        assert found <= {(check, diagnosis) for diagnosis in diagnoses}
        assert found or fault in MAYBE
    assert {step.workbench.fault for step in steps} == {fault}


@pytest.mark.parametrize("fault", sorted(MAYBE))
def test_what_depends_on_the_drafts_shows_in_some_run(fault: str) -> None:
    seen = set()
    for shape in SHAPES:
        _, steps = run(fault, shape, Graph.EAGER, 3)
        seen |= causes(check_trace(steps))
    check, diagnoses = EXPECTED[fault]
    assert (check, sorted(diagnoses)[-1]) in seen


def _has_no_padding(fault: str, steps: list[VerifyStep]) -> bool:
    """Whether the fault needs padded requests that no step of the run has."""
    return fault == "stale-padding" and all(step.captured_bs == step.raw_bs for step in steps)


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("graph", list(Graph))
def test_without_a_fault_there_is_no_finding(shape: str, graph: Graph) -> None:
    _, steps = run(None, shape, graph, 3)
    assert check_trace(steps).findings == ()


def test_the_story() -> None:
    """Block size 8. Budget 7 is right by luck (8 rows); 16 is wrong with and without branches."""
    plain = list(decode_plain(MODEL, "r0", PROMPTS[0], NEW_TOKENS, sampler=Sampler()))
    same = {}
    for budget, topk in ((7, 1), (16, 1), (16, 4)):
        for fault in (None, "verify-width"):
            config = EngineConfig(
                budget=budget, topk=topk, max_context=100, stages=inject(fault, replay=False)
            )
            states, steps = run_engine(MODEL, config, PROMPTS[:1], NEW_TOKENS)
            same[budget, topk, fault] = states[0].output == plain
            report = check_trace(steps)
            if fault and budget == 16:
                first = report.findings[0]
                assert (first.check, first.diagnosis) == ("I1", "width-mismatch")
                for part in ("8", "17", "num_draft_tokens"):
                    assert part in first.message
            else:
                assert report.findings == ()
    assert same == {
        (7, 1, None): True,
        (7, 1, "verify-width"): True,
        (16, 1, None): True,
        (16, 1, "verify-width"): False,
        (16, 4, None): True,
        (16, 4, "verify-width"): False,
    }


@pytest.mark.parametrize("unwritten", list(Unwritten))
def test_unwritten_rows_are_recorded_as_they_are(unwritten: Unwritten) -> None:
    config = EngineConfig(
        budget=16,
        topk=4,
        max_context=100,
        unwritten=unwritten,
        stages=inject("verify-width", replay=False),
    )
    _, steps = run_engine(MODEL, config, PROMPTS[:1], NEW_TOKENS)
    finite = steps[0].outcome.finite_rows
    assert finite is not None
    assert finite[:8].all()
    assert finite[8:].all() == (unwritten is Unwritten.STALE)


def test_an_injectors_state_ends_with_its_run() -> None:
    first, second = (inject("stale-mask", replay=True) for _ in range(2))
    buffer = torch.zeros(4, dtype=torch.uint8)
    first.refresh_mask(buffer, torch.ones(4, dtype=torch.uint8))
    first.refresh_mask(buffer, torch.zeros(4, dtype=torch.uint8))
    assert buffer.tolist() == [1, 1, 1, 1]
    second.refresh_mask(buffer, torch.zeros(4, dtype=torch.uint8))
    assert buffer.tolist() == [0, 0, 0, 0]


def test_unknown_faults_list_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"fault: expected one of verify-width, size-from-tokens, .*'nonsense'"
    ):
        inject("nonsense", replay=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_described_in_one_sentence(fault: str) -> None:
    assert describe(fault).endswith(".")
    assert describe(fault).count(". ") == 0
