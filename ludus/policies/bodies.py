"""What networks see with: from observations to features. Policies and learners of every family put their heads on these bodies."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn

from ludus.core.errors import PolicyError
from ludus.core.parts import resolve_name
from ludus.policies.specs import IMAGES, body_config

__all__ = ["body_config", "make_body", "orthogonal", "own_stream"]

# --------------------------------------------------------------------------------------------------------------------
# Modules are initialised from torch's global generator.

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def own_stream(seed: int | None = None) -> Iterator[None]:
    """Isolate torch's random stream: inside the context modules are made by this thread alone, from `seed` (None: from
    the stream's present state), and afterwards the stream is as it was."""
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed)
        yield


@contextmanager
def without_memory(*bodies: Any) -> Iterator[None]:
    """Make modules whose numbers take no memory, for what they would be: a spec from a file may ask for more than there is. A custom
    body's are as always, since its code may use them.

    Args:
        bodies: Configurations of the bodies that are made inside of the context.
    """
    is_own = any(isinstance(body, Mapping) and ":" in str(body.get("kind")) for body in bodies)
    with own_stream(), nullcontext() if is_own else torch.device("meta"):
        yield


# --------------------------------------------------------------------------------------------------------------------
# Layers whose weights may be those of T networks, [T, …] (`ludus.policies.stacks`). Their rows then lie network after network, as many of
# each, so that all that has no weights need not know it.


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the linear layer's output: x float[…, inputs] -> […, outputs]."""
    if weight.ndim == 2:
        return nn.functional.linear(x, weight, bias)
    rows = x.reshape(len(weight), -1, x.shape[-1])
    return torch.baddbmm(bias[:, None], rows, weight.mT).view(*x.shape[:-1], bias.shape[-1])


def for_rows(values: Tensor, x: Tensor) -> Tensor:
    """Return the values of each of the rows x [n, …], of values [T, …] of tiles; of a single network, they themselves."""
    return values.repeat_interleave(len(x) // len(values), dim=0) if values.ndim == x.ndim else values


# --------------------------------------------------------------------------------------------------------------------
# Bodies of anybody's own making: `module:Class` of a torch module that is made of the shape of observations.


class OwnBody(nn.Module):
    """A custom body: `Class(shape, **options)`, whose `forward` maps float32[n, *shape] to float32[n, features]. Its
    inputs are multiplied by `scale`.

    It keeps its initial weights, and stays in evaluation mode, in training too. Raises PolicyError for a class that
    raises, or returns anything else.
    """

    def __init__(self, config: Mapping[str, Any], shape: Sequence[int], scale: float = 1.0) -> None:
        super().__init__()
        kind, options = str(config["kind"]), dict(config.get("options", {}))
        make, shape = resolve_name("network", kind, {}, expected=(("forward",),), functions=True), tuple(shape)
        try:
            module = make(shape, **options)
        except Exception as error:
            raise PolicyError(
                f"network {kind!r} raised {type(error).__name__} when it was made for observations of shape {list(shape)} with the options "
                f"{options}: {error}"
            ) from error
        if not isinstance(module, nn.Module):
            raise PolicyError(f"network {kind!r} made {type(module).__name__}; expected a torch.nn.Module.")
        self.module, self.scale = module.eval(), scale
        self.features = _features(module, kind, shape)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: a row's output must not depend on other rows, or on chance."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.module(x if self.scale == 1.0 else x * self.scale)
        return out


def _features(module: nn.Module, kind: str, shape: tuple[int, ...]) -> int:
    """Return the number of features, determined by a call."""
    try:
        with torch.no_grad(), own_stream():
            out = module(torch.zeros(2, *shape))
    except Exception as error:
        raise PolicyError(
            f"network {kind!r} raised {type(error).__name__} for observations float32{[2, *shape]}: {error}"
        ) from error
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != 2 or out.dtype != torch.float32 or not out.shape[1]:
        answer = f"{str(out.dtype)[6:]}{list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise PolicyError(
            f"network {kind!r} answers {answer} for observations float32{[2, *shape]}; expected features float32[2, …]."
        )
    return int(out.shape[1])


ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}

_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, size and stride of each convolution
_IMPALA = (16, 32, 32)  # channels of each section
_FEATURES = {"nature": 512, "impala": 256}


def make_body(config: Mapping[str, Any], shape: Sequence[int], *, scale: float = 1.0) -> tuple[nn.Module, int]:
    """Return (module that maps float32[n, *shape] to float32[n, features], features).

    "mlp": flattens, then linear layers, each followed by the activation. "nature": images [n, C, H, W] through three
    convolutions and 512 units (Mnih et al. 2015, "Human-level control through deep reinforcement learning"). "impala":
    three residual sections and 256 units (Espeholt et al. 2018, figure 3, the deep network, without its LSTM).
    "module:Class": a custom body, `OwnBody`. Layers are initialised as torch does; see `orthogonal`.

    Args:
        config: As `body_config` returns it.
        shape: Shape of an observation.
        scale: Factor of the inputs: 1/255 for images of uint8.

    Raises:
        PolicyError: An invalid configuration, or a shape that does not fit.
    """
    kind = config.get("kind")
    shape = tuple(int(n) for n in shape)
    scaling: list[nn.Module] = [] if scale == 1.0 else [Scale(scale)]
    if kind == "mlp":
        layers, features = _perceptron(config, math.prod(shape))
        return nn.Sequential(*scaling, nn.Flatten(), *layers), features
    if isinstance(kind, str) and ":" in kind:
        own = OwnBody(config, shape, scale)
        return own, own.features
    if kind not in IMAGES:
        raise PolicyError(f"a network's body is {kind!r}; expected one of 'mlp', 'nature', 'impala', or module:Class.")
    if len(shape) != 3:
        raise PolicyError(
            f"the body {kind!r} sees images of shape (channels, height, width); observations have shape {shape}. Use 'mlp'."
        )
    convolutions = ChannelsLast(*(nature_layers(shape[0]) if kind == "nature" else impala_layers(shape[0])))
    flat = _outputs(kind, shape)
    features = _FEATURES[kind]
    return nn.Sequential(*scaling, convolutions, nn.Flatten(), nn.Linear(flat, features), nn.ReLU()), features


def _outputs(kind: str, shape: tuple[int, ...]) -> int:
    """Return the numbers that the convolutions make of an image. Raise PolicyError for one that is too small."""
    sides = shape[1:]
    for _, size, stride in _NATURE if kind == "nature" else [(width, 1, 2) for width in _IMPALA]:
        sides = tuple((side - size) // stride + 1 for side in sides)
        if min(sides) < 1:
            raise PolicyError(f"images of shape {list(shape)} are too small for the {kind!r} network.")
    return (_NATURE[-1][0] if kind == "nature" else _IMPALA[-1]) * math.prod(sides)


def perceptron_body(config: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
    """Return (widths of the hidden layers, their activation) of a body "mlp". Raise PolicyError for an invalid
    configuration."""
    hidden, activation = config.get("hidden"), config.get("activation", "tanh")
    if not isinstance(hidden, (list, tuple)) or not all(isinstance(n, int) and n >= 1 for n in hidden):
        raise PolicyError(f"a network's hidden layers are {hidden!r}; expected a list of whole numbers.")
    if activation not in ACTIVATIONS:
        raise PolicyError(f"a network's activation is {activation!r}; expected one of {', '.join(ACTIVATIONS)}.")
    return tuple(hidden), activation


def _perceptron(config: Mapping[str, Any], inputs: int) -> tuple[list[nn.Module], int]:
    hidden, activation = perceptron_body(config)
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), ACTIVATIONS[activation]()]
        inputs = width
    return layers, inputs


def orthogonal(module: nn.Module, gain: float = 2**0.5) -> nn.Module:
    """Return the module, with orthogonal weights of this gain in all its linear layers and convolutions, and zero
    biases, from torch's stream. Custom bodies keep theirs. (Saxe et al. 2014; Huang et al. 2022, "The 37 implementation
    details of PPO", detail 2.)"""
    own = {id(part) for body in module.modules() if isinstance(body, OwnBody) for part in body.modules()}
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Conv2d)) and id(part) not in own:
            nn.init.orthogonal_(part.weight, gain)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return module


class Scale(nn.Module):
    """Multiplication by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class ChannelsLast(nn.Sequential):
    """Convolutions in the channels-last layout, in which their gradients are faster."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer's output: float[n, C, H, W] -> float[n, channels, height, width]."""
        x = x.contiguous(memory_format=torch.channels_last)
        for layer in self:
            x = layer(x)
        return x


def nature_layers(channels: int) -> list[nn.Module]:
    """Return the convolutions of "nature"."""
    out: list[nn.Module] = []
    for width, size, stride in _NATURE:
        out += [nn.Conv2d(channels, width, size, stride), nn.ReLU(inplace=True)]
        channels = width
    return out


def impala_layers(channels: int) -> list[nn.Module]:
    """Return the residual sections of "impala"."""
    out: list[nn.Module] = []
    for width in _IMPALA:
        out += [nn.Conv2d(channels, width, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        out += [Residual(width), Residual(width)]
        channels = width
    return [*out, nn.ReLU(inplace=True)]


class Residual(nn.Module):
    """Residual block x + conv(relu(conv(relu(x)))), with the same number of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(torch.relu_(self.first(torch.relu(x))))
        return out.add_(x) if not torch.is_grad_enabled() else out + x
