"""A fake of CUDA graphs: what a graph would do, done by running a step again and leaving its answers in the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["FakeGraphs", "tensors_in"]


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
