"""The form of an experiment: what is varied on the left, what it is tried on at the right.

It is no ``st.form``: the plan below it follows every value at once.
"""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.isolate.experiment import Experiment, LocalSubject, ServerSubject
from engine.isolate.matrix import Matrix
from workbench import lab_values
from workbench.glossary import explain
from workbench.lab_subject_form import draw_local, draw_server
from workbench.tokens import legible, message, shorten

TEMPLATE = "lab template"  # in the session: the experiment whose values the form begins with
LOCAL, SERVER = "local engine", "server"
OFF, ON = "off", "on"


def begin_with(experiment: Experiment) -> None:
    """The next form that is drawn shows these values."""
    st.session_state[TEMPLATE] = experiment


def draw_form(left: DeltaGenerator, right: DeltaGenerator) -> Experiment | None:
    """The experiment as it stands in the form; None: what is wrong with it is said, at the right."""
    template: Experiment = st.session_state.setdefault(TEMPLATE, Experiment())
    problems: list[str] = []
    with left:
        st.markdown("**What is varied**")
        matrix = _kept(lambda: _draw_matrix(template.matrix), problems)
    with right:
        st.markdown("**What it is tried on**")
        subject = _kept(lambda: _draw_subject(template), problems)
        for problem in problems:
            st.error(message(problem))
    if matrix is None or subject is None:
        return None
    return Experiment(matrix, subject)


def _kept(draw, problems: list[str]):  # type: ignore[no-untyped-def]
    try:
        return draw()
    except ValueError as error:
        problems.append(str(error))
        return None


def _draw_matrix(given: Matrix) -> Matrix:
    first, second = st.columns(2)
    with first:
        budgets = st.text_input(
            "budgets, nodes", lab_values.listed(given.budgets), key="lab budgets", help=BUDGETS
        )
        batches = st.text_input(
            "batch sizes, prompts", lab_values.listed(given.batches), key="lab batches", help=BATCH
        )
        temperatures = st.text_input(
            "temperatures", lab_values.listed(given.temperatures), key="lab temperatures"
        )
    with second:
        topks = st.text_input(
            "top-k",
            lab_values.listed(given.topks),
            key="lab topks",
            help=f"{explain('top-k')} all: no cap.",
        )
        graphs = st.pills(
            "CUDA graphs",
            (OFF, ON),
            selection_mode="multi",
            default=[ON if value else OFF for value in given.graphs],
            key="lab graphs",
            help=explain("replay"),
        )
        seeds = st.text_input("seeds", lab_values.listed(given.seeds), key="lab seeds")
    prompts, used = _draw_prompts(given)
    tokens = st.number_input(
        "new tokens a request", 1, 4096, given.max_new_tokens, key="lab tokens", width=200
    )
    return Matrix(
        budgets=lab_values.whole_numbers("budgets", budgets),
        topks=lab_values.caps("top-k", topks),
        graphs=tuple(value == ON for value in (OFF, ON) if value in graphs),
        batches=lab_values.whole_numbers("batch sizes", batches),
        prompts=prompts,
        used_prompts=used,
        temperatures=lab_values.numbers("temperatures", temperatures),
        seeds=lab_values.whole_numbers("seeds", seeds),
        max_new_tokens=int(tokens),
    )


def _draw_prompts(given: Matrix) -> tuple[tuple[str, ...], tuple[int, ...]]:
    text = st.text_area(
        "prompts, one a line", "\n".join(given.prompts), key="lab prompts", height=90, help=PROMPTS
    )
    prompts = tuple(line.strip() for line in text.splitlines() if line.strip())
    used = st.multiselect(
        "prompts that begin a batch",
        range(len(prompts)),
        default=[k for k in given.used_prompts if k < len(prompts)],
        format_func=lambda k: (
            f"prompt {k}: {legible(shorten(prompts[k], 44))}" if k < len(prompts) else f"prompt {k}"
        ),
        key="lab used prompts",
        help="each is a column of the grid; the others follow in a batch of several",
    )
    return prompts, tuple(sorted(used))


def _draw_subject(template: Experiment) -> LocalSubject | ServerSubject:
    given = template.subject
    kind = st.segmented_control(
        "subject",
        (LOCAL, SERVER),
        default=LOCAL if isinstance(given, LocalSubject) else SERVER,
        key="lab subject",
        required=True,
        label_visibility="collapsed",
    )
    if kind == SERVER:
        return draw_server(given if isinstance(given, ServerSubject) else None)
    return draw_local(given if isinstance(given, LocalSubject) else LocalSubject())


BUDGETS = f"{explain('budget')} Several, with commas between them."
BATCH = "requests that are decoded together"
PROMPTS = "a batch of two holds a prompt and the one below it, from the top again at the end"
