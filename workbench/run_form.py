"""The form of the Run page: every setting of a run, with the devices that this machine has."""

from __future__ import annotations

import streamlit as st
import torch

from engine.decoding.run_settings import METHODS, RunSettings
from engine.drafters.catalog import DRAFTERS
from engine.faults import FAULTS, describe
from engine.models.device import DTYPES
from workbench.glossary import explain
from workbench.tokens import message

NO_FAULT = "none"
PROMPT = "Write a short poem about the ocean."
MODEL_HELP = "smollm2, a Hugging Face folder, a .gguf file, or org/name"
DRAFTER_HELP = (
    "dflash: the one that comes with smollm2; oracle: the target itself, made wrong on purpose; "
    "prompt-lookup: what followed the same tokens before"
)
DTYPE_HELP = "of weights and KV; bfloat16 rounds, so that texts may part from plain decoding's"


def draw_form() -> RunSettings | None:
    """The settings, once "Run" is pressed and they make sense; what is wrong with them is said."""
    with st.form("run", border=True):
        values = _draw_settings()
        if not st.form_submit_button("Run", type="primary", width="stretch", key="start run"):
            return None
        try:
            return RunSettings(**values)  # type: ignore[arg-type]
        except ValueError as error:
            st.error(message(str(error)))
            return None


def devices() -> list[str]:
    """Where a model can run on this machine."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ["cpu", *(f"cuda:{k}" for k in range(count))]


def _draw_settings() -> dict[str, object]:
    prompts = st.text_area(
        "prompts, one a line", PROMPT, height=90, help="each line is a request of the batch"
    )
    model = st.text_input("model", "smollm2", help=MODEL_HELP)
    first, second = st.columns(2)
    with first:
        method = st.selectbox("method", METHODS, key="method")
        drafter = st.selectbox(
            "drafter", DRAFTERS, key="drafter", help=DRAFTER_HELP, accept_new_options=True
        )
        budget = st.number_input("budget, nodes", 1, 256, 16, key="budget", help=explain("budget"))
        block_size = st.number_input(
            "block size, tokens", 2, 64, 8, key="block size", help=explain("block size")
        )
        temperature = st.number_input("temperature", 0.0, 2.0, 0.0, 0.1)
        tokens = st.number_input("new tokens", 1, 1024, 48, key="new tokens")
    with second:
        mode = st.selectbox("mode", ("eager", "replay"), help=explain("replay"))
        accuracy = st.slider("accuracy of the oracle drafter", 0.0, 1.0, 0.9, 0.05)
        topk = st.number_input("top-k, 0: none", 0, 64, 4, help=explain("top-k"))
        depth = st.number_input("deepest node, 0: block size - 1", 0, 63, 0, key="max depth")
        spine = st.toggle("spine", False, key="spine", help=explain("spine"))
        captured = st.number_input("captured batch size, 0: any", 0, 64, 0, help="replay only")
        seed = st.number_input("seed", 0, 2**31 - 1, 0)
        reference = st.toggle("dense reference", True, help="plain attention beside every step")
    first, second = st.columns(2)
    device = first.selectbox(
        "device", devices(), key="device", help="cpu, and the GPUs that torch can use"
    )
    dtype = second.selectbox("dtype", tuple(DTYPES), key="dtype", help=DTYPE_HELP)
    fault = st.selectbox(
        "fault injected on purpose", (NO_FAULT, *FAULTS), key="fault", format_func=fault_label
    )
    return {
        "prompts": tuple(line.strip() for line in prompts.splitlines() if line.strip()),
        "model": model.strip(),
        "method": method,
        "drafter": drafter,
        "accuracy": float(accuracy),
        "budget": int(budget),
        "topk": int(topk) or None,
        "block_size": int(block_size),
        "max_depth": int(depth) or None,
        "spine": bool(spine),
        "temperature": float(temperature),
        "seed": int(seed),
        "mode": mode,
        "captured_bs": int(captured) or None,
        "fault": None if fault == NO_FAULT else fault,
        "max_new_tokens": int(tokens),
        "reference": bool(reference),
        "device": device,
        "dtype": dtype,
    }


def fault_label(name: str) -> str:
    """A fault and what it breaks."""
    return name if name == NO_FAULT else f"{name}: {describe(name)}"
