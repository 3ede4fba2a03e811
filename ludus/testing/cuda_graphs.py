"""A fake of CUDA graphs: what a graph would do, done by running a step again and leaving its answers in the same memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["FakeGraphs", "LaunchCounter", "tensors_in"]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in tuples and mappings, in their order."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [tensor for part in parts for tensor in tensors_in(part)]


class FakeGraphs:
    """What `ludus.backend.device.captured` is replaced by. A GPU notes a step without running it; the fake runs it when it is to be noted,
    and not when it is to run for the first time.

    Attributes:
        runs: How often each graph ran.
    """

    def __init__(self) -> None:
        self.runs: list[int] = []

    @contextmanager
    def installed(self) -> Iterator[FakeGraphs]:
        """Keep steps of learners, and rollouts of trees, on the CPU as graphs inside the context; with no model of before."""
        from ludus.algorithms.on_policy import model_reuse
        from ludus.backend import device
        from ludus.rollout import ondevice_trees

        gc.collect()  # learners of before give their models back now, and not inside the context
        with (
            patch.object(device, "captured", self.capture),
            patch.object(device, "repeats", lambda _: True),
            patch.object(ondevice_trees, "repeats", lambda _: True),
            patch.object(model_reuse, "_idle", []),
        ):
            yield self

    def capture(self, step: Callable[[], Any], device: torch.device, pool: Any) -> tuple[Any, Callable[[], None]]:
        """Return (where the step answers, what runs it again)."""
        del device, pool
        number, answer = len(self.runs), step()
        self.runs.append(0)

        def replay() -> None:
            self.runs[number] += 1
            if self.runs[number] > 1:
                for tensor, new in zip(tensors_in(answer), tensors_in(step()), strict=True):
                    assert not new.requires_grad
                    tensor.copy_(new)

        return answer, replay


_VIEWS = {
    *(
        "alias",
        "as_strided",
        "detach",
        "diagonal",
        "expand",
        "permute",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
    ),
    *("t", "transpose", "unbind", "unsqueeze", "view", "_unsafe_view", "_reshape_alias", "lift_fresh", "unfold"),
}


class LaunchCounter(TorchDispatchMode):
    """Counts the operations of torch that make a GPU do something inside the context; a graph that runs is not among them. To copy many
    tensors is one for each dtype.

    Attributes:
        launches: How many there were.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launches = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.partition(".")[0]
        if name == "_foreach_copy_":
            self.launches += len({tensor.dtype for tensor in args[0]})
        else:
            self.launches += name not in _VIEWS
        return func(*args, **(kwargs or {}))
