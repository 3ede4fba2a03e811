"""Policies that look at images: convolutions, one hidden layer, and a head of logits and value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import nn

from ludus.errors import PolicyError
from ludus.policies.bodies import impala_layers, nature_layers
from ludus.policies.categorical import LogitPolicy
from ludus.policies.checks import choice, entry, fitted, integer
from ludus.types import Array, PolicySpec, Weights

KINDS = ("nature", "impala")
_HIDDEN = {"nature": 512, "impala": 256}


class ConvolutionalNetwork(nn.Module):
    """Images float[n, C, H, W] in [0, 1] -> float[n, A + 1]: logits, and the value last.

    "nature": three convolutions and 512 units (Mnih et al. 2015, "Human-level control through deep reinforcement learning"). "impala":
    three residual sections and 256 units (Espeholt et al. 2018, figure 3, the deep network, without its LSTM).
    """

    def __init__(self, shape: Sequence[int], actions: int, kind: str) -> None:
        super().__init__()
        self.body = nn.Sequential(*(nature_layers(shape[0]) if kind == "nature" else impala_layers(shape[0])))
        with torch.no_grad():
            features = int(self.body(torch.zeros(1, *shape)).numel())
        self.hidden = nn.Linear(features, _HIDDEN[kind])
        self.head = nn.Linear(_HIDDEN[kind], actions + 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        out: torch.Tensor = self.head(torch.relu_(self.hidden(self.body(images).flatten(1))))
        return out


def make_network(spec: PolicySpec) -> ConvolutionalNetwork:
    """The network of a `cnn` spec, with weights that are not initialised. Raises PolicyError for a spec that is wrong."""
    shape, kind = entry(spec, "shape"), choice(spec, "network", KINDS)
    if not (isinstance(shape, (list, tuple)) and len(shape) == 3 and all(isinstance(n, int) and n >= 1 for n in shape)):
        raise PolicyError(f"policy spec 'cnn': shape is {shape!r}; expected [channels, height, width].")
    actions = integer(spec, "actions")
    try:
        with torch.random.fork_rng(devices=[]):
            return ConvolutionalNetwork(shape, actions, kind)
    except RuntimeError as error:
        raise PolicyError(f"images of shape {list(shape)} are too small for the {kind!r} network: {error}") from error


def initial_weights(spec: PolicySpec, rng: np.random.Generator) -> Weights:
    """Fresh weights: orthogonal of gain √2, logits of gain 0.01, values of gain 1, zero biases (Huang et al. 2022, "The 37 implementation
    details of PPO")."""
    network = make_network(spec)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    with torch.no_grad():
        for name, tensor in network.named_parameters():
            if tensor.ndim == 1:
                tensor.zero_()
            else:
                nn.init.orthogonal_(tensor, 2**0.5, generator=generator)
            if name == "head.weight":
                nn.init.orthogonal_(tensor[:-1], 0.01, generator=generator)
                nn.init.orthogonal_(tensor[-1:], 1.0, generator=generator)
    return {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}


class CNNPolicy(LogitPolicy):
    """Kind `cnn`; config as `cnn_spec` makes it. Observations are images [n, C, H, W]: uint8, which it scales by 1/255, or floats, taken
    as they are. It answers the extra "value", float32[n]. Weights are named as in `ConvolutionalNetwork.state_dict()`.

    Acting, channels lie last, the scale is a factor of the first convolution's weights, and the hidden layer is a convolution over the
    whole of the last feature map: on one core, oneDNN's convolutions are faster that way, and faster than a BLAS product.
    """

    has_value = True

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        network = make_network(spec)
        self.actions = integer(spec, "actions")
        shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        self._weights = fitted(spec, weights, shapes)
        network.load_state_dict({name: torch.from_numpy(array) for name, array in self._weights.items()})
        self._network = network.requires_grad_(False)
        start = network.body[0]
        assert isinstance(start, nn.Conv2d)
        self._start, self._rest = start, network.body[1:].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._first = _last(self._start.weight)
        self._scaled = _last(self._first / 255.0)
        self._shape = tuple(spec.config["shape"])
        with torch.no_grad():
            features = network.body(torch.zeros(1, *self._shape)).shape[1:]
        self._hidden = _last(network.hidden.weight.view(-1, *features))
        self._images = np.empty((0, *self._shape[1:], self._shape[0]), np.float32)

    def outputs(self, observation: Array) -> NDArray[np.float32]:
        if observation.shape[1:] != self._shape:
            raise PolicyError(
                f"a 'cnn' policy was given observations of shape {observation.shape[1:]}; its spec says {self._shape}."
            )
        first = self._scaled if observation.dtype == np.uint8 else self._first
        network, functional = self._network, nn.functional
        with torch.no_grad():
            x = torch.from_numpy(self._channels_last(observation)).permute(0, 3, 1, 2)
            x = self._rest(functional.conv2d(x, first, self._start.bias, self._start.stride, self._start.padding))
            x = torch.relu_(functional.conv2d(x, self._hidden, network.hidden.bias)).flatten(1)
            out: NDArray[np.float32] = network.head(x).numpy()
        return out

    def _channels_last(self, observation: Array) -> NDArray[np.float32]:
        """float32[n, H, W, C], in a buffer that is kept."""
        n, (channels, height, width) = len(observation), self._shape
        if n > len(self._images):
            self._images = np.empty((n, height, width, channels), np.float32)
        images, pixels = self._images[:n], height * width
        _move(np.ascontiguousarray(observation).reshape(n, channels, pixels), images.reshape(n, pixels, channels))
        return images

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}


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
