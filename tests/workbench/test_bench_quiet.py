"""``ddtree bench decoding`` draws one progress, its own. Run: pytest tests/workbench/test_bench_quiet.py."""

from __future__ import annotations

import pytest

logging = pytest.importorskip("transformers.utils.logging")


def test_transformers_draws_no_bar_and_gets_its_switch_back(capfd) -> None:
    from engine.decoding.benchmark import without_progress_bars

    assert logging.is_progress_bar_enabled()
    with without_progress_bars():
        assert list(logging.tqdm(range(3), desc="Loading weights")) == [0, 1, 2]
    assert "Loading weights" not in capfd.readouterr().err
    assert logging.is_progress_bar_enabled()
    with pytest.raises(KeyError), without_progress_bars():
        raise KeyError
    assert logging.is_progress_bar_enabled()


def test_a_switch_that_was_off_stays_off() -> None:
    from engine.decoding.benchmark import without_progress_bars

    logging.disable_progress_bar()
    try:
        with without_progress_bars():
            pass
        assert not logging.is_progress_bar_enabled()
    finally:
        logging.enable_progress_bar()
