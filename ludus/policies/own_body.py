"""Bodies of anybody's own making: `module:Class` of a torch module that is made of the shape of observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from ludus.errors import PolicyError
from ludus.registry import load


class OwnBody(nn.Module):
    """`Class(shape, **options)`, whose `forward` maps float32[n, *shape] to float32[n, features]. What it sees is multiplied by `scale`.

    It keeps the weights that it begins with, and stays in evaluation mode, in learning too. Raises PolicyError, for a class that raises, or
    answers anything else.
    """

    def __init__(self, config: Mapping[str, Any], shape: Sequence[int], scale: float = 1.0) -> None:
        super().__init__()
        kind, options = str(config["kind"]), dict(config.get("options", {}))
        make, shape = load("network", kind, {}), tuple(shape)
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
        """Learners say it to whole networks; a row's answer must not depend on the rows beside it, or on chance."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """As the class says."""
        out: Tensor = self.module(x if self.scale == 1.0 else x * self.scale)
        return out


def _features(module: nn.Module, kind: str, shape: tuple[int, ...]) -> int:
    """How many it answers, found by asking it."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
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
