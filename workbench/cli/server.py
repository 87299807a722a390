"""``ddtree server``: prompts asked twice of a running server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.failures import one_line_errors
from workbench.cli.key import key_in
from workbench.cli.text import json_line, printable

if TYPE_CHECKING:
    from engine.server.trial import Answer, Asked, Trial

DIFFERS = 1
SHOWN = 60  # characters around the first difference


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(server)


def server(
    url: Annotated[str, typer.Argument(metavar="URL", help="http://host:port of the server.")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="Again for another; default: a poem and a quicksort.")
    ] = None,
    generate: Annotated[
        bool, typer.Option("--generate", help="Ask SGLang's /generate, without a chat template.")
    ] = False,
    max_tokens: Annotated[int, typer.Option(help="Of each answer.", min=1, max=32768)] = 128,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait until it is ready.", min=0, max=86400)
    ] = 600.0,
    timeout: Annotated[float, typer.Option(help="Seconds of one answer.", min=1, max=3600)] = 120.0,
    key_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the server's API key.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Ask a server two prompts twice at temperature 0: same answers, tokens a second, acceptance, odd looks.

    Exit status 0: both times the same; 1: answers differ; 2: it is not ready or does not answer.
    """
    with one_line_errors():
        from engine.server.client import Client, address_of
        from engine.server.ready import wait_ready
        from engine.server.trial import PROMPTS, Endpoint, run_trial
        from workbench.cli.progress import shown

        client = Client(address_of(url), timeout=timeout, key=key_in(key_env))
        with shown() as progress:
            waited = wait_ready(
                client,
                patience,
                lambda words, elapsed: progress(
                    f"{words} ({elapsed:.0f} s)", elapsed / (patience or 1)
                ),
            )
            trial = run_trial(
                client,
                prompt or PROMPTS,
                endpoint=Endpoint.GENERATE if generate else Endpoint.CHAT,
                max_tokens=max_tokens,
                waited=waited,
                report=progress,
            )
    print(json_line(trial.to_json()) if as_json else "\n".join(lines_of(trial)))
    sys.stdout.flush()
    raise typer.Exit(0 if trial.same else DIFFERS)


def lines_of(trial: Trial) -> list[str]:
    """The verdict, a block a prompt, what the server says of itself."""
    same = sum(asked.same for asked in trial.asked)
    model = f" ({trial.model})" if trial.model else ""
    lines = [
        f"{trial.address}{model}: {same} of {len(trial.asked)} prompts answered the same twice"
    ]
    for asked in trial.asked:
        lines += ["", f"  {asked.prompt!r}", *(f"    {line}" for line in _asked(asked))]
    lines += (
        ["", *(f"  {name} {value:g}" for name, value in trial.metrics)] if trial.metrics else []
    )
    lines += (
        ["", *(f"  {name}: {value}" for name, value in trial.settings)] if trial.settings else []
    )
    return list(map(printable, lines))


def _asked(asked: Asked) -> list[str]:
    lines = [_answer(answer) for answer in asked.answers]
    if asked.same:
        lines.append(f"both: {asked.answers[0].text[:SHOWN]!r}")
    else:
        place = asked.first_character if asked.first_character is not None else 0
        token = "" if asked.first_token is None else f", token {asked.first_token}"
        lines.append(f"differ first at character {asked.first_character}{token}:")
        start = max(0, place - SHOWN // 2)
        lines += [f"  {answer.text[start : start + SHOWN]!r}" for answer in asked.answers]
    for signal in dict.fromkeys(signal for signals in asked.signals for signal in signals):
        lines.append(f"hint: {signal.kind} ({signal.count}), first {signal.excerpt!r}")
    return lines


def _answer(answer: Answer) -> str:
    speed = answer.tokens_a_second
    parts = ["? tokens" if answer.tokens is None else f"{answer.tokens} tokens"]
    parts += [f"{answer.seconds:.2f} s"] + ([] if speed is None else [f"{speed:.1f} tokens/s"])
    told = answer.speculation
    if told is not None and told.accept_length is not None:
        parts.append(f"{told.accept_length:.2f} tokens a verify step")
    if told is not None and told.histogram is not None:
        bars = " ".join(f"{k}:{count}" for k, count in enumerate(told.histogram) if count)
        parts.append(f"correct drafts {bars or 'none'}")
    return ", ".join(parts)
