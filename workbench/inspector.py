"""The step inspector: what one step handed to the attention kernel, beside what it should have
been.
"""

from __future__ import annotations

import streamlit as st

from workbench.current import Current, current
from workbench.panes.acceptance_pane import draw_acceptance, draw_node_table
from workbench.panes.drafter_pane import draw_curve, draw_marginals
from workbench.panes.mask_pane import draw_mask
from workbench.panes.node_bar import draw_node_bar
from workbench.panes.offsets_pane import draw_offsets
from workbench.panes.strip_pane import draw_strip
from workbench.panes.text_pane import draw_text
from workbench.panes.tree_pane import draw_tree
from workbench.stepview import StepView
from workbench.tokens import for_markdown


def draw_inspector() -> None:
    """The whole page below the header."""
    now = current()
    if now.loaded is None or now.selection is None:
        return  # the header has said why, and what to do
    draw_strip(now.loaded, now.selection, now.palette)
    if now.view is None:
        st.info("This step has no live request; choose another step.")
        return
    _draw_step(now)


def _draw_step(now: Current) -> None:
    view, selection, colours = now.view, now.selection, now.palette
    assert view is not None
    assert selection is not None
    assert now.loaded is not None
    st.caption(step_text(view))
    left, right = st.columns([5, 6], gap="medium")
    with left:
        draw_tree(view, colours, selection.node)
        draw_acceptance(view, colours, selection.node)
    with right:
        draw_mask(view, colours, selection.node)
    draw_node_bar(view, selection.node)
    left, right = st.columns(2, gap="medium")
    with left:
        draw_offsets(view, colours, selection.node)
    with right:
        draw_node_table(view)
    left, right = st.columns([6, 5], gap="medium")
    with left:
        draw_marginals(now.loaded, view, colours)
    with right:
        draw_curve(now.loaded, view.step.rank, colours)
    draw_text(now.loaded, selection)


def step_text(view: StepView) -> str:
    """How the step was laid out: sizes as pairs, and what was broken on purpose."""
    step, config = view.step, view.step.config
    parts = [f"prefix {view.prefix_len} tokens", f"num_nodes {view.num_nodes}, q_len {view.q_len}"]
    parts.append(f"raw_bs {step.raw_bs}, captured_bs {step.captured_bs}")
    settings = (
        ("budget", config.budget),
        ("top-k", config.topk),
        ("block size", config.block_size),
        ("width of the backend", config.num_draft_tokens),
    )
    parts += [f"{name} {value}" for name, value in settings if value is not None]
    parts += [word for word in (step.source.attention_backend, step.source.graph) if word]
    if step.workbench.fault:
        parts.append(f"injected on purpose: {step.workbench.fault}")
    return for_markdown(" · ".join(parts))
