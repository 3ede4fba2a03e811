"""Samples as tensors on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data.base import Sample


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBatch:
    """columns and probability (float64[n]) as tensors on the device; index int64[n] stays in memory, for priority updates."""

    columns: Mapping[str, torch.Tensor]
    probability: torch.Tensor
    index: NDArray[np.int64]


class ToDevice:
    """Moves samples to a device; a `prepare` of a `Prefetcher`.

    For CUDA arrays go through pinned memory, in a stream of their own, so that copying and computing overlap; they are there when it
    returns, for the stream that is current where it is called.
    """

    def __init__(self, device: str | torch.device) -> None:
        self._device = torch.device(device)
        self._stream: torch.cuda.Stream | None = None

    def __call__(self, sample: Sample) -> DeviceBatch:
        if self._device.type != "cuda":
            return self._moved(sample)
        users = torch.cuda.current_stream(self._device)
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            batch = self._moved(sample)
        for tensor in (*batch.columns.values(), batch.probability):
            tensor.record_stream(
                users
            )  # its memory is not used again before that stream has done what it was asked by then
        self._stream.synchronize()
        return batch

    def _moved(self, sample: Sample) -> DeviceBatch:
        columns = {name: self._tensor(array) for name, array in sample.columns.items()}
        return DeviceBatch(columns, self._tensor(sample.probability), sample.index)

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if self._device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self._device, non_blocking=True)
