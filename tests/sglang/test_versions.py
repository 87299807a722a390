"""The hook tables against the source of SGLang's wheels; DDTREE_ALL_SGLANG=1 takes all versions from 0.5.11 on."""

from __future__ import annotations

import os
from functools import partial

import pytest

from engine.sglang.probe import Probe, probe
from engine.sglang.table import ATTENTION, ATTRIBUTES, TARGETS
from tests.sglang.wheel_source import attributes, parameters
from tests.sglang_wheels import sglang_folder

ALL = tuple(f"0.5.{number}" for number in range(11, 24))
VERSIONS = ALL if os.environ.get("DDTREE_ALL_SGLANG") else ("0.5.12", "0.5.23")
BEFORE_OVERLAP = {"0.5.11", "0.5.12", "0.5.13"}
ONE_METADATA_CALL = set(ALL) - {"0.5.11", "0.5.12"}
TREES = {"eagle_tree", "ngram_tree"}


def probed(version: str) -> Probe:
    return probe(partial(parameters, sglang_folder(version)))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_group_is_found(version: str) -> None:
    found = probed(version)
    own_walk = () if version != "0.5.11" else ("walk of DFLASH before stops",)
    assert found.missing == own_walk
    assert found.refused == ()
    assert found.usable


@pytest.mark.parametrize("version", VERSIONS)
def test_the_right_functions_are_found(version: str) -> None:
    handlers = {target.handler for target, _ in probed(version).found}
    assert handlers >= {"start", "eager", "padding", *TREES}
    assert ("out_graph" in handlers) == (version in ONE_METADATA_CALL)
    assert ("replay" in handlers) == (version not in ONE_METADATA_CALL)
    assert ("verify" in handlers) == (version in BEFORE_OVERLAP)
    assert ("dflash_verify" in handlers) == (version in BEFORE_OVERLAP)
    assert ("dflash_step" in handlers) == (version not in BEFORE_OVERLAP)


@pytest.mark.parametrize("version", VERSIONS)
def test_classes_have_the_attributes_that_are_read(version: str) -> None:
    for wanted in ATTRIBUTES:
        folder = sglang_folder(version)
        method = wanted.with_method
        if method and parameters(folder, f"{wanted.path}.{method}") is None:
            continue
        there = attributes(folder, wanted.path)
        for alternatives in wanted.names:
            assert there & set(alternatives), (wanted.path, alternatives)


def test_a_version_without_a_function_says_so() -> None:
    find = partial(parameters, sglang_folder("0.5.12"))
    gone = {f"{ATTENTION}.init_forward_metadata", TARGETS[0].path}
    found = probe(lambda path: None if path in gone else find(path))
    assert found.missing == ("start", "eager")
    assert not found.usable


def test_a_function_with_other_parameters_is_left_alone_and_named() -> None:
    find = partial(parameters, sglang_folder("0.5.12"))
    changed = f"{ATTENTION}.init_forward_metadata_replay_cuda_graph"
    found = probe(lambda path: ("self", "plan") if path == changed else find(path))
    assert changed not in {target.path for target, _ in found.found}
    assert found.missing == ("replay",)
    assert found.refused == (
        f"{changed}: expected parameters bs, req_pool_indices, seq_lens, forward_mode, spec_info, "
        "seq_lens_cpu, found self, plan",
    )
