"""What an experiment is tried on, as a form: the engine of this project, or a server that is started anew."""

from __future__ import annotations

import shlex

import streamlit as st

from engine.decoding.settings import Backend
from engine.drafters.catalog import DRAFTERS
from engine.faults import FAULTS
from engine.isolate.experiment import LocalSubject, ServerSubject
from engine.models.device import DTYPES
from workbench import lab_values
from workbench.glossary import explain
from workbench.run_form import DRAFTER_HELP, DTYPE_HELP, MODEL_HELP, NO_FAULT, devices, fault_label

WORDS = (
    "{budget}, {width} (budget + 1), {topk}, {port} (of the URL) and {traces} (a folder for the tap) are filled in; "
    "the word {eager} becomes the words for no graphs, and nothing with graphs"
)
LAUNCH = "python -m sglang.launch_server --model-path MODEL --port {port}"
AHEAD = (
    "while others are asked; each needs its memory, may slow what is timed, and listens on a port after that of the "
    "URL, so both commands must name {port}"
)
COMMAND = (
    LAUNCH + " --speculative-algorithm DDTREE --speculative-num-draft-tokens {width} "
    "--speculative-eagle-topk {topk} {eager}"
)


def draw_local(given: LocalSubject) -> LocalSubject:
    """Fields of the local engine."""
    model = st.text_input("model", given.model, key="lab model", help=MODEL_HELP)
    fault = st.selectbox(
        "fault injected on purpose",
        (NO_FAULT, *FAULTS),
        index=0 if given.fault not in FAULTS else 1 + list(FAULTS).index(given.fault),
        key="lab fault",
        format_func=fault_label,
        help="what the experiment is to find; one that needs graphs is left out of cells without them",
    )
    first, second = st.columns(2)
    drafters = tuple(dict.fromkeys((*DRAFTERS, given.drafter)))
    drafter = first.selectbox(
        "drafter",
        drafters,
        index=drafters.index(given.drafter),
        key="lab drafter",
        help=DRAFTER_HELP,
        accept_new_options=True,
    )
    block_size = second.number_input(
        "block size, tokens",
        2,
        64,
        given.block_size,
        key="lab block size",
        help=explain("block size"),
    )
    with st.expander("device, number format, backend, checks"):
        device, dtype, backend = _draw_device(given)
        accuracy = st.slider(
            "accuracy of the oracle drafter", 0.0, 1.0, given.accuracy, key="lab accuracy"
        )
        captured = st.number_input(
            "captured batch size, 0: the next power of two",
            0,
            256,
            given.captured_bs or 0,
            key="lab captured",
            help="with graphs: smaller batches are padded to it",
        )
        spine = st.toggle("spine", given.spine, key="lab spine", help=explain("spine"))
        checks = st.toggle(
            "record and check each cell",
            given.checks,
            key="lab checks",
            help="without it a cell has an outcome, but no findings and no recording",
        )
    return LocalSubject(
        model=model.strip(),
        drafter=str(drafter),
        accuracy=float(accuracy),
        block_size=int(block_size),
        spine=bool(spine),
        captured_bs=int(captured) or None,
        fault=None if fault == NO_FAULT else fault,
        backend=backend,
        device=device,
        dtype=dtype,
        checks=bool(checks),
    )


def _draw_device(given: LocalSubject) -> tuple[str, str, str]:
    first, second, third = st.columns(3)
    places = tuple(dict.fromkeys((*devices(), given.device)))
    device = first.selectbox("device", places, index=places.index(given.device), key="lab device")
    kinds = tuple(DTYPES)
    dtype = second.selectbox(
        "dtype", kinds, index=_index(kinds, given.dtype), key="lab dtype", help=DTYPE_HELP
    )
    backends = tuple(str(backend) for backend in Backend)
    backend = third.selectbox(
        "backend", backends, index=_index(backends, given.backend), key="lab backend"
    )
    return device, dtype, backend


def _index(options: tuple[str, ...], value: str) -> int:
    return options.index(value) if value in options else 0


def draw_server(given: ServerSubject | None) -> ServerSubject:
    """Fields of a server. Raises ``ValueError`` for what cannot be a command line."""
    command = st.text_area(
        "command that starts it",
        shlex.join(given.command) if given else COMMAND,
        key="lab command",
        height=100,
        help=f"a program on this machine, started once for each budget, top-k and graphs; {WORDS}",
    )
    plain = st.text_area(
        "command without speculation",
        shlex.join(given.plain_command) if given else LAUNCH,
        key="lab plain command",
        height=70,
        help="the same model decoding plainly: what every text is compared with",
    )
    base = given or ServerSubject(("x",), ("x",))
    first, second = st.columns([2, 1])
    url = first.text_input("URL", base.url, key="lab url", help="where it answers once it is ready")
    block = second.number_input(
        "block size, 0: not known",
        0,
        64,
        base.block_size or 0,
        key="lab server block size",
        help=explain("block size"),
    )
    with st.expander("words for no graphs, environment, patience, loading ahead"):
        eager = st.text_input(
            "words for no graphs", shlex.join(base.eager_words), key="lab eager words"
        )
        environment = st.text_area(
            "environment, NAME=value a line",
            "\n".join(f"{name}={value}" for name, value in base.environment),
            key="lab environment",
            height=70,
            help="filled in like the command, for instance DDTREE_TRACE_DIR={traces}; an export leaves the values out",
        )
        one, two, three, four = st.columns(4)
        patience = one.number_input(
            "seconds until ready", 1.0, 86_400.0, float(base.patience), key="lab patience"
        )
        timeout = two.number_input(
            "seconds of an answer", 1.0, 86_400.0, float(base.timeout), key="lab timeout"
        )
        tie = three.number_input(
            "near-tie, log-probability",
            0.0,
            100.0,
            float(base.tie),
            0.1,
            key="lab tie",
            help="tokens that lie closer are a near-tie: rounding alone may choose between them",
        )
        ahead = four.number_input(
            "servers that load ahead",
            0,
            max(64, base.ahead),
            base.ahead,
            key="lab ahead",
            help=AHEAD,
        )
    return ServerSubject(
        command=lab_values.command("command", command),
        plain_command=lab_values.command("command without speculation", plain),
        url=url.strip(),
        block_size=int(block) or None,
        eager_words=lab_values.command("words for no graphs", eager),
        environment=lab_values.environment(environment),
        patience=float(patience),
        ahead=int(ahead),
        timeout=float(timeout),
        tie=float(tie),
    )
