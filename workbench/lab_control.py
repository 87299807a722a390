"""What the buttons of the Isolate page do: begin, go on, repeat, measure more. A refusal is kept as one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment
from workbench import labs, urlstate
from workbench.lab_form import begin_with
from workbench.labs import Lab

PROBLEM = "lab problem"


def show(key: str | None) -> None:
    """Look at another experiment; None: at the form."""
    urlstate.put(lab=key or None, cell=None)


def pick(cell: Cell) -> None:
    """Look at a cell."""
    urlstate.put(cell=cell.key)


def begin(experiment: Experiment) -> None:
    """Measure a new experiment in a folder of its own."""

    def start() -> None:
        begin_with(experiment)
        show(labs.store().create(experiment).key)

    _said(start)


def go_on(lab: Lab, cells: Sequence[Cell] | None = None, *, again: bool = False) -> None:
    """Measure what is left, or some cells; ``again``: although they have a result."""

    def start() -> None:
        held = [lab.store.results[c] for c in cells or () if c in lab.store.results]
        for measured in held if again else ():
            lab.store.forget(measured.cell)
        try:
            labs.store().resume(lab, cells)
        except ValueError:
            for measured in held if again else ():
                lab.store.results.setdefault(measured.cell, measured)
            raise

    _said(start)


def change(experiment: Experiment) -> None:
    """Open the form on the values of an experiment."""
    begin_with(experiment)
    show(None)


def _said(act: Callable[[], None]) -> None:
    try:
        act()
    except (ValueError, OSError) as error:
        st.session_state[PROBLEM] = str(error)
