"""Every check, diagnosis and class is explained, in four parts, with reports that exist. Run:
pytest tests/explain.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import FrozenInstanceError
from importlib.resources import files
from pathlib import Path

import pytest

from engine.checks.registry import CHECKS
from engine.explain import Kind, explain, explain_finding, keys, reports
from engine.explain.catalogue import cited
from engine.faults import FAULTS
from tests.contract import DIAGNOSES

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    *("row-extents", "tree-size", "kv-extents", "mask-extents", "mask-packing", "capacity"),
    *("tree-form", "mask-content", "live-rows", "positions", "padding", "links", "acceptance"),
    *("bonus", "kv-commit", "write-slots", "recurrent-commit", "drafter-context", "ranks"),
    *("output", "behaviour", "reference", "sampling"),
)
CLASSES = tuple(f"C{number}" for number in range(1, 17))
PAIRS = [(check, name) for check, names in DIAGNOSES.items() for name in names.split()]


def test_keys_are_the_checks_their_diagnoses_and_the_classes() -> None:
    wanted = set(DIAGNOSES) | {name for _, name in PAIRS if name not in NAMES} | set(CLASSES)
    assert set(keys()) == wanted
    assert Counter(keys()).most_common(1)[0][1] == 1
    assert [key for key in keys() if re.fullmatch(r"I\d+", key)] == list(DIAGNOSES)
    assert keys()[-16:] == CLASSES


@pytest.mark.parametrize("key", keys())
def test_all_parts_are_there_and_name_reports_that_exist(key: str) -> None:
    found = explain(key)
    assert found.key == key
    assert found.title
    assert len(found.parts) == 4
    for _, text in found.parts:
        assert len(text.split()) >= 4
        assert text.endswith(".")
        assert text.count("`") % 2 == 0
        assert "  " not in text
    known = {report.id for report in reports()}
    assert cited(found.fixed) <= known
    assert not any(cited(text) for _, text in found.parts[:3])
    assert cited(found.fixed) <= {report.id for report in found.reports}
    if not found.reports:
        assert "No " in found.fixed


@pytest.mark.parametrize(("check", "name"), zip(DIAGNOSES, NAMES, strict=True))
def test_a_check_is_found_by_number_and_by_name(check: str, name: str) -> None:
    found = explain(check)
    assert (found.kind, found.name, found.checks) == (Kind.CHECK, name, (check,))
    assert found is explain(name) is explain(check.lower()) is explain(name.upper())
    assert found.diagnoses == tuple(DIAGNOSES[check].split())


@pytest.mark.parametrize(("check", "diagnosis"), PAIRS)
def test_a_finding_gets_its_diagnosis_or_the_general_form_of_its_check(
    check: str, diagnosis: str
) -> None:
    found = explain_finding(check, diagnosis)
    assert found is not None
    assert check in found.checks
    assert found.key == (check if diagnosis in NAMES else diagnosis)


def test_a_finding_without_a_known_diagnosis_gets_its_check() -> None:
    for diagnosis in (None, "unheard-of", "latent", "bit-order", "C4"):
        assert explain_finding("I8", diagnosis) is explain("I8")
    assert explain_finding("I99", "unheard-of") is None


def test_checks_of_the_registry_bear_the_same_names() -> None:
    for spec in CHECKS:
        assert explain(spec.id).name == spec.name


def test_diagnoses_named_in_the_checks_are_explained() -> None:
    """Keys of the tables of hints in the checks' modules, read without running them."""
    named = set()
    for path in (ROOT / "engine" / "checks").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Name) and target.id in ("HINTS", "EXPLANATIONS"):
                named |= set(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    assert len(named) > 20
    for name in named:
        assert explain(name)


def test_a_class_has_exactly_its_own_reports() -> None:
    for key in CLASSES:
        found = explain(key)
        assert found.kind is Kind.CLASS
        assert {report.fault_class for report in found.reports} == {key}
        assert found.checks
        assert {check for report in found.reports for check in report.checks} <= set(found.checks)


@pytest.mark.parametrize(
    ("key", "near"),
    [("bit-ordr", "near: bit-order"), ("mask-contnt", "mask-content"), ("i24", "I2")],
)
def test_an_unknown_key_names_its_neighbours(key: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"got '{key}'; near: .*{near.removeprefix('near: ')}"):
        explain(key)


@pytest.mark.parametrize("key", ["", "zzzzzzzz", "\x1b[2J\n"])
def test_a_key_like_no_other_gets_one_line(key: str) -> None:
    with pytest.raises(ValueError, match="`ddtree explain` lists all") as raised:
        explain(key)
    assert str(raised.value).isprintable()


def test_checks_without_a_recording_say_what_they_need() -> None:
    assert "needs a device" in explain("I21").meaning
    assert "statistics" in explain("I23").meaning
    for key in ("I21", "I23"):
        assert "`ddtree check`" in explain(key).meaning


def test_commands_in_the_texts_use_faults_that_exist() -> None:
    text = " ".join(files("engine.explain").joinpath("explanations.toml").read_text().split())
    named = set(re.findall(r"--fault ([a-z-]+)", text))
    assert named
    assert named <= set(FAULTS)


def test_explanations_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        explain("I8").title = ""  # type: ignore[misc]
