"""Tree-verify attention beside SGLang's ``extend_attention_fwd``: time, floor and error, shape by shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.attention.tree_verify import tree_verify_attention
from engine.graphs.bench.timing import replayed

CACHES = 150_000_000  # bytes: more than a chip's caches hold


@dataclass(frozen=True)
class Shape:
    """A batch of equal requests, bfloat16."""

    batch: int
    prefix: int
    rows: int
    heads: int
    kv_heads: int
    dim: int

    @property
    def cache_bytes(self) -> int:
        """Keys and values of the prefixes."""
        return 4 * self.batch * self.prefix * self.kv_heads * self.dim

    def floor(self, copy_rate: float, matrix_rate: float) -> float:
        """Microseconds below which no kernel can be: bytes over the copy rate, or products over the matrix rate."""
        rows = self.batch * self.rows * self.heads * self.dim
        moved = self.cache_bytes + 4 * rows
        return 1e6 * max(moved / copy_rate, 4 * rows * (self.prefix + self.rows) / matrix_rate)


SHAPES = (
    Shape(1, 32768, 17, 32, 8, 128),
    Shape(8, 4096, 17, 32, 8, 128),
    Shape(1, 4096, 17, 32, 8, 128),
    Shape(1, 300, 17, 9, 3, 64),
    Shape(1, 32768, 65, 32, 8, 128),
    Shape(8, 4096, 65, 32, 8, 128),
    Shape(4, 1024, 17, 9, 3, 64),
    Shape(64, 512, 17, 9, 3, 64),
    Shape(8, 1024, 65, 9, 3, 64),
    Shape(1, 4096, 8, 32, 8, 128),
    Shape(32, 1024, 17, 32, 8, 128),
    Shape(2, 100, 200, 8, 2, 64),
)


def make_inputs(shape: Shape, seed: int = 0) -> dict[str, Any]:
    """Arguments of a random batch on the GPU: random trees, prefixes on scattered slots."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    batch, rows, prefix = shape.batch, shape.rows, shape.prefix

    def noise(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, device="cuda", dtype=torch.bfloat16)

    slots = batch * (prefix + rows) + 7
    block = torch.stack([_random_block(rows, seed * batch + i) for i in range(batch)])
    mask = torch.ones(batch, rows, prefix + rows, dtype=torch.bool, device="cuda")
    mask[:, :, prefix:] = block.to("cuda")
    place = torch.arange(batch + 1, device="cuda")
    new = (batch * rows, shape.kv_heads, shape.dim)
    return {
        "q_extend": noise(batch * rows, shape.heads, shape.dim),
        "k_extend": noise(*new),
        "v_extend": noise(*new),
        "o_extend": noise(batch * rows, shape.heads, shape.dim),
        "k_buffer": noise(slots, shape.kv_heads, shape.dim),
        "v_buffer": noise(slots, shape.kv_heads, shape.dim),
        "qo_indptr": (place * rows).to(torch.int32),
        "kv_indptr": (place * prefix).to(torch.int32),
        "kv_indices": torch.randperm(slots, device="cuda", generator=generator)[: batch * prefix],
        "custom_mask": mask.view(-1),
        "is_causal": True,
        "mask_indptr": place * rows * (prefix + rows),
        "max_len_extend": rows,
    }


def _random_block(rows: int, seed: int) -> Tensor:
    """bool [rows, rows] of a tree in which each node hangs below a random one before it."""
    generator = torch.Generator().manual_seed(seed)
    block = torch.eye(rows, dtype=torch.bool)
    for node in range(1, rows):
        block[node] |= block[int(torch.randint(0, node, (1,), generator=generator))]
    return block


def exact(inputs: dict[str, Any]) -> Tensor:
    """The same attention in float64, a request and a head at a time."""
    out = torch.empty_like(inputs["o_extend"], dtype=torch.float64)
    group = out.shape[1] // inputs["k_extend"].shape[1]
    bounds = [inputs[name].tolist() for name in ("qo_indptr", "kv_indptr", "mask_indptr")]
    for row, end, first, last, cell in zip(
        bounds[0], bounds[0][1:], bounds[1], bounds[1][1:], bounds[2], strict=False
    ):
        slots = inputs["kv_indices"][first:last]
        keys, values = (
            torch.cat([inputs[f"{name}_buffer"][slots], inputs[f"{name}_extend"][row:end]]).double()
            for name in "kv"
        )
        seen = inputs["custom_mask"][cell : cell + (end - row) * len(keys)].view(end - row, -1)
        query = inputs["q_extend"][row:end].double() * query_scale(inputs)
        for head in range(out.shape[1]):
            scores = query[:, head] @ keys[:, head // group].T
            weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
            out[row:end, head] = weights @ values[:, head // group]
    return out


def query_scale(inputs: dict[str, Any]) -> float:
    """head_dim ** -0.5."""
    return float(inputs["q_extend"].shape[-1] ** -0.5)


def measure(
    shape: Shape, copy_rate: float, matrix_rate: float, sglang: Callable[..., None] | None
) -> dict[str, Any]:
    """Microseconds and errors: ours, on inputs as the call before left them and on rotated ones, and SGLang's."""
    sets = max(1, min(8, -(-CACHES // shape.cache_bytes)))
    inputs = [make_inputs(shape, seed) for seed in range(sets)]
    wanted = exact(inputs[0])

    def error() -> float:
        found = inputs[0]["o_extend"]
        return float((found.double() - wanted).norm() / wanted.norm())

    def run(kernel: Callable[..., None], arguments: dict[str, Any]) -> Callable[[], None]:
        return lambda: kernel(**arguments)

    inputs[0]["o_extend"].fill_(torch.nan)
    tree_verify_attention(**inputs[0])
    row: dict[str, Any] = {
        **shape.__dict__,
        "floor_us": shape.floor(copy_rate, matrix_rate),
        "ours_error": error(),
        "ours_us": replayed([run(tree_verify_attention, inputs[0])]),
        "ours_rotated_us": replayed([run(tree_verify_attention, each) for each in inputs]),
    }
    if sglang is not None:
        scales = {"k_scale": 1.0, "v_scale": 1.0}
        inputs[0]["o_extend"].fill_(torch.nan)
        sglang(**inputs[0], **scales)
        row["sglang_error"] = error()
        row["sglang_us"] = replayed([run(sglang, inputs[0] | scales)], rounds=8)
        row["ratio"] = row["sglang_us"] / row["ours_us"]
    return row
