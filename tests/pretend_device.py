"""A device that exists on every machine: CPU memory behind tensors that say they lie elsewhere.

Real devices refuse an operation on tensors of two devices; so does this one, and more strictly, for it lets no host
tensor index either unless told to. It also counts what makes a host wait: every copy back. Figures are the CPU's own,
bit by bit, so a run on it equals a run on the CPU wherever both take the same path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")  # indexing asks for a kind that this build of torch has
COPIES = ("aten::_to_copy", "aten::copy_", "aten::_local_scalar_dense")
INDEXING = ("aten::index", "aten::index_put_", "aten::_index_put_impl_")


class There(Tensor):
    """A tensor on the device; ``held`` is its memory."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> There:
        with torch.inference_mode(False):  # a view shares the version counter, which others lack
            return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=DEVICE,
            )

    def __init__(self, held: Tensor) -> None:
        self.held = held

    def tolist(self) -> Any:
        return self.to("cpu").tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside of PretendDevice")


class PretendDevice(TorchDispatchMode):
    """While entered, the device works. ``copies``: how often each operation brought something back to the host.

    ``lenient``: host tensors may index, which a GPU puts up with.
    """

    def __init__(self, lenient: bool = False) -> None:
        super().__init__()
        self.free = (*COPIES, *INDEXING) if lenient else COPIES
        self.copies: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here; each operation would pay for it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if _consists_of_others(func):  # inference mode hands it over in one piece
            with self:
                return func.decompose(*args, **kwargs)
        name, tensors = func._schema.name, list(_tensors((args, kwargs)))
        there = any(isinstance(t, There) for t in tensors)
        if there and name not in self.free:
            for tensor in tensors:
                if not isinstance(tensor, There) and tensor.dim():
                    raise RuntimeError(f"{name}: tensors of the device and of the host together")
        goal = kwargs.get("device")
        if goal is not None:
            kwargs["device"] = torch.device("cpu")
        stays = there if goal is None else torch.device(goal).type == DEVICE.type
        if name == "aten::copy_":
            stays = isinstance(args[0], There)
        if name == "aten::_local_scalar_dense":
            stays = False
        if there and not stays:
            self.copies[name] += 1
        result = func(*_mapped(_held, args), **_mapped(_held, kwargs))
        if name == "aten::_to_copy" and there != stays:
            result = result.clone()  # another memory, as between two devices
        if not stays:
            return result
        # what an operation changed in place stays the tensor that it was
        known = {id(t.held): t for t in tensors if isinstance(t, There)}
        return _mapped(lambda t: known[id(t)] if id(t) in known else There(t), result)


@cache
def _consists_of_others(func: Any) -> bool:
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has_kernel(func.name(), "CompositeImplicitAutograd"))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(change, part) for key, part in value.items()}
    return (
        type(value)(_mapped(change, part) for part in value)
        if type(value) in (list, tuple)
        else value
    )


def _held(tensor: Tensor) -> Tensor:
    return tensor.held if isinstance(tensor, There) else tensor


def moved(model: nn.Module) -> nn.Module:
    """The model with its weights on the device; call it inside of :class:`PretendDevice`."""
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = There(tensor.detach())
    return model
