"""A policy around torch modules of anybody's own making."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus.core.errors import PolicyError
from ludus.core.own_code import raised
from ludus.core.parts import load
from ludus.core.types import Array, PolicySpec, Weights
from ludus.policies.actor_critic import arrays_of, load_arrays, shapes_of
from ludus.policies.bodies import own_stream
from ludus.policies.categorical import CategoricalPolicy, masked_softmax, one_hot_best
from ludus.policies.checks import entry, fitted, integer
from ludus.policies.mlp import as_rows


def torch_spec(*, maker: str, options: Mapping[str, Any], inputs: int, actions: int) -> PolicySpec:
    """The spec of a `TorchPolicy`. maker: `module:Class`, whose `Class(**options).networks(inputs, actions)` makes the modules by name."""
    return PolicySpec(
        "torch", {"maker": maker, "options": dict(options), "inputs": int(inputs), "actions": int(actions)}
    )


def make_networks(spec: PolicySpec, *, seed: int = 0) -> nn.ModuleDict:
    """Fresh modules, initialised from `seed` alone; torch's own stream stays where it is. Raises PolicyError if making them raises, or
    none is "policy"."""
    name, inputs, actions = str(entry(spec, "maker")), integer(spec, "inputs"), integer(spec, "actions")
    maker = load("maker of networks", name, {})(**entry(spec, "options"))
    with own_stream(seed):
        try:
            networks = maker.networks(inputs, actions)
        except Exception as error:
            raise PolicyError(f"{name}: networks({inputs}, {actions}) raised {raised(error)}.") from error
    if not isinstance(networks, Mapping | nn.ModuleDict):
        raise PolicyError(f"{name}: networks() made {type(networks).__name__}; expected modules by name.")
    if strange := [key for key, module in networks.items() if not isinstance(module, nn.Module)]:
        raise PolicyError(f"{name}: networks() made {strange}, which are no torch.nn.Module.")
    if "policy" not in networks:
        raise PolicyError(f"{name}: networks() made {sorted(networks)}; one must be called 'policy'.")
    return nn.ModuleDict(dict(networks.items())).eval()


def networks_of(spec: PolicySpec, weights: Weights) -> nn.ModuleDict:
    """The modules of `spec` around copies of `weights`. Raises PolicyError if they do not fit."""
    networks = make_networks(spec)
    load_arrays(networks, fitted(spec, weights, shapes_of(networks)))
    return networks


class TorchPolicy(CategoricalPolicy):
    """Kind `torch`; config as `torch_spec` makes it. The module "policy" maps observations float32[n, inputs] to logits [n, actions]; the
    others (a critic, say) belong to the weights, and are not asked when it acts."""

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.actions, self._inputs = integer(spec, "actions"), integer(spec, "inputs")
        self._networks = networks_of(spec, weights)

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        """As `CategoricalPolicy.probabilities`: the softmax; greedy, the first best action. Raises PolicyError for another shape."""
        with torch.no_grad():
            logits: NDArray[np.float32] = self._networks["policy"](as_rows(observation, self._inputs)).numpy()
        if logits.shape != (len(observation), self.actions):
            raise PolicyError(
                f"the module 'policy' of {self.spec.config['maker']} answers shape {logits.shape} for {len(observation)} rows; expected "
                f"{(len(observation), self.actions)}."
            )
        return (one_hot_best if mode == "greedy" else masked_softmax)(logits, mask), {}

    def weights(self) -> Weights:
        return arrays_of(self._networks)
