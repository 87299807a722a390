"""Every kernel of the engine once, on a GPU, for a tool that watches memory; says which were launched.

Run: compute-sanitizer --tool memcheck python -m tests.sanitized
     compute-sanitizer --tool initcheck python -m tests.sanitized --filled --eager

Exit status 1: a kernel was not launched, or decoding in bfloat16 made other tokens than at another depth of the chain;
2: there is no GPU.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.jit import JITFunction

import engine
from engine.attention import chain
from engine.attention.decode_rows import decode_rows
from engine.attention.tree_verify import tree_verify_triton
from engine.decoding.settings import EngineConfig
from engine.graphs.engine import GraphEngine
from engine.models.dflash_tiny import random_dflash
from engine.models.tiny import random_decoder
from engine.sglang.host import HostCopies
from engine.sglang.top2 import top2
from engine.training.softmax_rows import cross_entropy_rows_
from tests.attention.verify_inputs import Sizes, make_inputs

DEVICE = "cuda"
PROMPTS = [[1, 5, 9, 4], [7, 3], [2, 8, 6, 1] * 40]  # the last over several parts


class Filled(TorchDispatchMode):
    """Results of torch's matrix products are zero before they are written: the tool misses what cuBLAS writes."""

    FORMS: ClassVar[dict[Any, Any]] = {
        torch.ops.aten.mm.default: torch.ops.aten.mm.out,
        torch.ops.aten.addmm.default: torch.ops.aten.addmm.out,
        torch.ops.aten.bmm.default: torch.ops.aten.bmm.out,
        torch.ops.aten.baddbmm.default: torch.ops.aten.baddbmm.out,
    }

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, form = kwargs or {}, self.FORMS.get(func)
        if form is None:
            with self:  # in inference mode linear, matmul and einsum come whole: look at what they consist of
                parts = func.decompose(*args, **given)
            return func(*args, **given) if parts is NotImplemented else parts
        left, right = args[-2:]
        out = left.new_zeros(*left.shape[:-1], right.shape[-1])
        return form(*args, **given, out=out)


@dataclass(frozen=True)
class Decoding:
    """One way to decode; every text is made of the same prompts."""

    family: str
    dtype: torch.dtype
    drafted: bool
    graphs: bool

    def run(self, depth: int, head_dim: int = 64) -> list[list[int]]:
        chain.DEPTH = depth
        target = random_decoder(self.family, seed=7, head_dim=head_dim, vocab_size=1000)  # type: ignore[arg-type]
        target = target.to(device=DEVICE, dtype=self.dtype)
        drafter = random_dflash(target, seed=3) if self.drafted else None
        settings = EngineConfig(budget=11, topk=None, block_size=6, max_context=300, max_requests=3)
        running = GraphEngine(target, drafter, settings, graphs=self.graphs)
        states = [running.add(str(place), prompt, 12) for place, prompt in enumerate(PROMPTS)]
        while running.running:
            running.step()
        return [state.output for state in states]


def attend(sizes: Sizes, dtype: torch.dtype, **options: Any) -> None:
    """With and without a mask, through whichever kernel covers the case."""
    inputs = make_inputs(sizes, DEVICE, dtype)
    for mask in (inputs["custom_mask"], None):
        tree_verify_triton(**inputs | options | {"custom_mask": mask})


def watch() -> None:
    """What the tap launches: the second time through the driver."""
    logits = torch.randn(33, 49153, device=DEVICE).bfloat16()
    table = torch.arange(5 * 700, dtype=torch.int32, device=DEVICE).view(5, 700)
    for count in (1, 3, 3):
        copies = HostCopies()
        copies.take("best", top2(logits[: 11 * count]))
        copies.take("odd", torch.ones(4097 * count, dtype=torch.uint8, device=DEVICE)[1:])
        copies.take_rows("slots", table, 333, torch.arange(count, device=DEVICE))
        copies.mark()
        for arriving in copies.fence():
            arriving.event.synchronize()


def train() -> None:
    """Kernels of ``train-drafter``."""
    logits = torch.randn(9, 5000, device=DEVICE)
    cross_entropy_rows_(logits, torch.arange(9, device=DEVICE))
    query, caches = (
        torch.randn(3, 9, 64, device=DEVICE),
        torch.randn(2, 3, 100, 3, 64, device=DEVICE),
    )
    decode_rows(query, *caches, torch.tensor([1, 64, 100], device=DEVICE))


def kernels() -> set[str]:
    """``module.function`` of every kernel in the engine: jitted, and called by no other jitted function."""
    jitted, called = set[str](), set[str]()
    root = Path(engine.__file__).parent
    for path in sorted(root.rglob("*.py")):
        module = ".".join(("engine", *path.relative_to(root).with_suffix("").parts))
        tree = ast.parse(path.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        own = [f for f in functions if any("jit" in ast.unparse(d) for d in f.decorator_list)]
        if path.name in ("snapshot_kernel.py", "top2_kernel.py"):  # jitted where there is a GPU
            own = functions
        jitted |= {f"{module}.{function.name}" for function in own}
        called |= {name for function in own for name in _called(function)}
    return {name for name in jitted if name.rpartition(".")[2] not in called}


def _called(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.id if isinstance(node, ast.Name) else node.attr


def watched_launches() -> set[str]:
    """Filled with ``module.function`` as kernels are launched."""
    found: set[str] = set()
    original = JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.add(f"{self.fn.__module__}.{self.fn.__name__}")
        return original(self, *args, **kwargs)

    JITFunction.run = run  # type: ignore[method-assign]
    return found


def main() -> int:
    """Everything, a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filled", action="store_true", help="fill results of cuBLAS beforehand")
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("tests.sanitized: expected a CUDA device, found none", file=sys.stderr)
        return 2
    bf16 = torch.bfloat16
    parts: dict[str, Callable[[], None]] = {
        "attention, 17 and 65 rows": partial(attend, Sizes((17, 65), (300, 1000), 9, 3, 64), bf16),
        "attention, heads of 128": partial(attend, Sizes((65, 17), (64, 900), 32, 8, 128), bf16),
        "attention, float32": partial(attend, Sizes((17, 1), (300, 0), 4, 2, 64), torch.float32),
        "attention, cap": partial(attend, Sizes((9, 3), (130, 5), 4, 2, 64), bf16, logit_cap=3.0),
        "the tap": watch,
        "training": train,
    }
    launched, others = watched_launches(), 0
    with Filled() if given.filled else nullcontext():
        for name, part in parts.items():
            part()
            torch.cuda.synchronize()
            print(name, flush=True)
        for family in ("llama", "qwen3"):
            for dtype in (bf16, torch.float32):
                for drafted in (False, True):
                    for graphs in (False,) if given.eager else (False, True):
                        way = Decoding(family, dtype, drafted, graphs)
                        chained, unchained = way.run(1), way.run(0) if dtype == bf16 else None
                        others += unchained not in (None, chained)
                        print(f"decoding, {way}", flush=True)
    missing = kernels() - launched
    print(
        f"{len(kernels()) - len(missing)} of {len(kernels())} kernels launched; {others} texts differ"
    )
    for name in sorted(missing):
        print(f"not launched: {name}")
    return 1 if missing or others else 0


if __name__ == "__main__":
    raise SystemExit(main())
