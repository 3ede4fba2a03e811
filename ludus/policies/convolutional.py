"""Convolutional bodies, for acting: the same numbers as torch's modules, from images as environments give them."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import nn

from ludus.errors import PolicyError
from ludus.policies.bodies import Scale
from ludus.types import Array

Rows = NDArray[np.float32]


class Convolutions:
    """A body of convolutions and one linear layer (`make_body`), which sees images [n, C, H, W] of numbers of any type.

    The scale is multiplied into the first weights, so that images are copied once, into a buffer that is kept, with the channels last: what
    torch's convolutions are fastest on. The linear layer is one more of them.
    """

    def __init__(self, body: nn.Sequential, shape: tuple[int, ...]) -> None:
        """Raises PolicyError if the body is another."""
        parts = list(body.children())
        scaling = parts.pop(0) if isinstance(parts[0], Scale) else Scale(1.0)
        assert isinstance(scaling, Scale)
        convolutions, linear = parts[0], next((part for part in parts if isinstance(part, nn.Linear)), None)
        if not isinstance(convolutions, nn.Sequential) or linear is None:
            raise PolicyError(f"a body of {[type(part).__name__ for part in parts]} is not one of convolutions.")
        start = convolutions[0]
        assert isinstance(start, nn.Conv2d)
        self._start, self._shape = start, shape
        self._rest = convolutions[1:].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._first = _last(start.weight * scaling.factor)
        with torch.no_grad():
            features = convolutions(torch.zeros(1, *shape)).shape[1:]
        self._weight, self._bias = _last(linear.weight.view(-1, *features)), linear.bias
        self._images = np.empty((0, *shape[1:], shape[0]), np.float32)

    def features(self, images: Array) -> Rows:
        """[n, C, H, W] -> float32[n, features]."""
        functional, start = nn.functional, self._start
        with torch.no_grad():
            x = torch.from_numpy(self._channels_last(images)).permute(0, 3, 1, 2)
            x = self._rest(functional.conv2d(x, self._first, start.bias, start.stride, start.padding))
            out: Rows = torch.relu_(functional.conv2d(x, self._weight, self._bias)).flatten(1).numpy()
        return out

    def _channels_last(self, images: Array) -> Rows:
        """float32[n, H, W, C], in a buffer that is kept."""
        n, (channels, height, width) = len(images), self._shape
        if n > len(self._images):
            self._images = np.empty((n, height, width, channels), np.float32)
        out, pixels = self._images[:n], height * width
        _move(np.ascontiguousarray(images).reshape(n, channels, pixels), out.reshape(n, pixels, channels))
        return out


def _last(weight: torch.Tensor) -> torch.Tensor:
    return weight.detach().contiguous(memory_format=torch.channels_last)


@njit(cache=True)
def _move(images, out):  # type: ignore[no-untyped-def]
    """out[n, pixels, C] = images[n, C, pixels], as float32."""
    n, channels, pixels = images.shape
    for i in range(n):
        for c in range(channels):
            for j in range(pixels):
                out[i, j, c] = np.float32(images[i, c, j])
