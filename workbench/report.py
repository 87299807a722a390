"""One self-contained HTML page about some steps of a recording, for attaching to a bug.

Plotly's script is inlined once and a content policy forbids every request, so the page opens
without a network and sends nothing. All text is escaped. Figures are drawn in the light palette and
recoloured where the reader's system is dark. Without ``include_text`` tokens appear as ids and
prompts not at all.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import plotly.graph_objects as go
import plotly.io as pio
from plotly.offline import get_plotlyjs

from engine.checks.context import StepContext
from engine.checks.finding import Finding, Verdict
from engine.checks.registry import CHECKS, Report
from engine.layout import MaskKind
from engine.trace.reader import Trace
from workbench.causes import group_causes
from workbench.cells import cells_of
from workbench.figures.acceptance import acceptance_paths
from workbench.figures.mask import mask_figure
from workbench.figures.mask_codes import plain
from workbench.figures.offsets import offsets_ruler
from workbench.figures.tree import draft_tree
from workbench.outcome import MARKS
from workbench.panes.acceptance_pane import node_table, reference_text
from workbench.panes.mask_pane import against_intended, chain_text, counts_text, effective
from workbench.panes.offsets_pane import arithmetic
from workbench.stepview import StepView, view_of
from workbench.theme import DARK, LIGHT, Palette
from workbench.verdict import EFFECTS, headline, leading, sentence

TEMPLATE = Path(__file__).with_name("static") / "report.html"
FONT = Path(__file__).with_name("static") / "visible-space.woff"
DRAWN_VIEWS = 24  # requests of steps that are drawn; the others are named
KINDS = (MaskKind.INTENDED, MaskKind.BUILT, MaskKind.ADDRESSED)


def build_report(
    trace: Trace, steps: Sequence[int], findings: Sequence[Finding], *, include_text: bool = False
) -> str:
    """``steps``: positions in the trace. ``findings``: of any steps; those of these steps are
    shown.
    """
    contexts = {position: _context(trace, position) for position in steps}
    keys = {(c.step.step, c.step.rank) for c in contexts.values()}
    about = [f for f in findings if (f.step, f.rank) in keys]
    body = [_verdict(contexts, about, findings), _causes(about)]
    views = [
        view_of(context, request, about, show_text=include_text)
        for context in contexts.values()
        for request in range(context.step.raw_bs)
    ]
    figures: list[go.Figure] = []
    body += [_view(view, figures) for view in views[:DRAWN_VIEWS]]
    if len(views) > DRAWN_VIEWS:
        names = ", ".join(f"step {v.step.step} {v.record.rid}" for v in views[DRAWN_VIEWS:])
        body.append(f"<p>Not drawn, to keep the page small: {html.escape(names)}.</p>")
    origin = trace.header
    facts = [
        origin.model,
        origin.drafter,
        origin.created,
        origin.fault and f"injected: {origin.fault}",
    ]
    return _page(body, figures, " · ".join(html.escape(str(fact)) for fact in facts if fact))


def _context(trace: Trace, position: int) -> StepContext:
    step, rank = trace.key(position)
    try:
        previous = trace.step(trace.index(step - 1, rank))
    except KeyError:
        previous = None
    return StepContext(trace.step(position), previous)


def _verdict(
    contexts: dict[int, StepContext], about: Sequence[Finding], findings: Sequence[Finding]
) -> str:
    records = [context.step for context in contexts.values()]
    report = Report(
        tuple(f for f in about if f.verdict is not Verdict.SKIPPED),
        tuple(f for f in findings if f.verdict is Verdict.SKIPPED),
        len(records),
        tuple(spec.name for spec in CHECKS if any(map(spec.can_run, records))),
    )
    first = leading(report)
    by_key = {(c.step.step, c.step.rank): c for c in contexts.values()}
    context = None if first is None else by_key.get((first.step, first.rank))
    line = headline(report, cells_of(first, context) if first and context else None)
    return (
        f'<section class="verdict {line.level}"><h1>{html.escape(line.sentence)}</h1>'
        f"<p>{html.escape(line.cause)}</p><p>{html.escape(line.detail)}</p></section>"
    )


def _causes(about: Sequence[Finding]) -> str:
    items = []
    for group in group_causes(about):
        lines = [f"<li>{html.escape(sentence(f))}</li>" for f in group.findings[:20]]
        lines += [
            f"<li class=follows>follows: {html.escape(f'{f.check} {f.name}: {f.message}')}</li>"
            for f in group.consequences[:20]
        ]
        hint = html.escape(group.findings[0].hint)
        title = f"{group.check} {group.title}"
        items.append(
            f"<details open><summary>{html.escape(title)}</summary><p>{hint}</p><ul>{''.join(lines)}</ul></details>"
        )
    return f"<section><h2>Causes</h2>{''.join(items) or '<p>None.</p>'}</section>"


def _view(view: StepView, figures: list[go.Figure]) -> str:
    """One request of one step: figures, then the raw numbers."""
    title = f"Step {view.step.step}, rank {view.step.rank}, request {view.record.rid}"
    blocks = [f"<h2>{html.escape(title)}</h2>"]
    blocks.append(_figure("Draft tree", draft_tree(view, LIGHT, edge_weights=True), figures))
    blocks.append(f"<p>{html.escape(chain_text(view))}</p><div class=masks>")
    for name, figure in _masks(view):
        blocks.append(_figure(name, figure, figures))
    blocks.append("</div>")
    if view.step.inputs.mask_indptr is not None and view.step.inputs.qo_indptr is not None:
        blocks.append(_figure("Offsets", offsets_ruler(view, LIGHT), figures))
        blocks.append(f"<pre>{html.escape(arithmetic(view.context))}</pre>")
    blocks.append(_figure("Acceptance", acceptance_paths(view, LIGHT), figures))
    blocks.append(f"<p>{html.escape(reference_text(view))}</p>")
    blocks.append(_table(view))
    blocks += [_finding(finding) for finding in view.findings]
    return f"<section>{''.join(blocks)}</section>"


def _masks(view: StepView) -> list[tuple[str, go.Figure]]:
    shown = [(kind, view.mask(kind)) for kind in KINDS]
    drawn = [
        (f"Mask: {kind}", mask_figure(view, mask, plain(mask.cells), LIGHT))
        for kind, mask in shown
        if mask is not None
    ]
    kind = effective(view)
    codes = None if kind is None else against_intended(view, kind)
    if kind is not None and codes is not None:
        mask = view.mask(kind)
        assert mask is not None
        figure = mask_figure(
            view, mask, codes, LIGHT, is_difference=True, beside=view.mask(MaskKind.INTENDED)
        )
        drawn.append((f"Mask difference: {counts_text(codes, kind)}", figure))
    return drawn


def _figure(title: str, figure: go.Figure, figures: list[go.Figure]) -> str:
    figures.append(figure)
    return (
        f"<figure><figcaption>{html.escape(title)}</figcaption>"
        f'<div class=plot id="figure-{len(figures) - 1}"></div></figure>'
    )


def _table(view: StepView) -> str:
    table = node_table(view)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table)
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape('' if v is None else str(v))}</td>" for v in row)
        + "</tr>"
        for row in zip(*table.values(), strict=True)
    )
    return f"<details><summary>Nodes</summary><table><tr>{head}</tr>{rows}</table></details>"


def _finding(finding: Finding) -> str:
    raw = json.dumps(finding.to_json(), indent=1, ensure_ascii=False, default=str)
    title = f"{finding.check} {finding.name}: {finding.message} ({EFFECTS[finding.effect]})"
    return (
        f"<details><summary>{html.escape(title)}</summary><pre>{html.escape(raw)}</pre></details>"
    )


@dataclass(frozen=True)
class _Recolour:
    light: Palette = LIGHT
    dark: Palette = DARK

    def table(self) -> dict[str, str]:
        """Light colour to dark colour."""
        names = [f.name for f in fields(Palette) if f.name != "dark"]
        pairs = {getattr(self.light, name): getattr(self.dark, name) for name in names}
        return {**{look.light: look.dark for look in MARKS.values()}, **pairs}


def _page(body: list[str], figures: list[go.Figure], origin: str) -> str:
    drawings = ",".join(pio.to_json(figure) for figure in figures)
    legend = " · ".join(f"{look.glyph} {name}" for name, look in MARKS.items())
    parts = {
        "@@PLOTLY@@": get_plotlyjs().replace("</script", "<\\/script"),
        "@@FONT@@": base64.b64encode(FONT.read_bytes()).decode(),
        "@@ORIGIN@@": origin,
        "@@LEGEND@@": html.escape(legend),
        "@@COLOURS@@": json.dumps(_Recolour().table()),
        "@@FIGURES@@": f"[{drawings}]".replace("<", "\\u003c"),
        "@@BODY@@": "\n".join(body),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    pieces = []
    for (
        name,
        content,
    ) in parts.items():  # in the order of the template: no content is searched for a later mark
        before, _, page = page.partition(name)
        pieces += [before, content]
    return "".join([*pieces, page])
