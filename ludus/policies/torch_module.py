"""Policies of custom torch modules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.backend.device import Placement, multiplications
from ludus.backend.mlp import as_rows
from ludus.core.errors import PolicyError
from ludus.core.parts import resolve_name
from ludus.core.types import Array, PolicyOutput, PolicySpec, Weights
from ludus.core.user_code import describe_error
from ludus.policies.actor_critic import arrays_of, load_arrays, shapes_of
from ludus.policies.base import check_mode, entry, integer, one_spec, validate_weights
from ludus.policies.bodies import own_stream
from ludus.policies.categorical import (
    CategoricalPolicy,
    draw,
    full_mask,
    masked_softmax,
    one_hot_best,
)
from ludus.policies.stacks import Architecture, CarriedWeights, DeviceStack, Memory, make_architecture


def torch_spec(*, maker: str, options: Mapping[str, Any], inputs: int, actions: int) -> PolicySpec:
    """Return the spec of a `TorchPolicy`. maker: `module:Class`, whose `Class(**options).networks(inputs, actions)`
    makes the modules by name."""
    return PolicySpec(
        "torch", {"maker": maker, "options": dict(options), "inputs": int(inputs), "actions": int(actions)}
    )


def make_networks(spec: PolicySpec, *, seed: int = 0) -> nn.ModuleDict:
    """Return fresh modules, initialised from `seed` alone; torch's global stream is unchanged. Raise PolicyError if
    making them raises, or none is "policy"."""
    name, inputs, actions = str(entry(spec, "maker")), integer(spec, "inputs"), integer(spec, "actions")
    maker = resolve_name("maker of networks", name, {}, expected=(("networks",),))(**entry(spec, "options"))
    with own_stream(seed):
        try:
            networks = maker.networks(inputs, actions)
        except Exception as error:
            raise PolicyError(f"{name}: networks({inputs}, {actions}) raised {describe_error(error)}.") from error
    if not isinstance(networks, Mapping | nn.ModuleDict):
        raise PolicyError(f"{name}: networks() made {type(networks).__name__}; expected modules by name.")
    if strange := [key for key, module in networks.items() if not isinstance(module, nn.Module)]:
        raise PolicyError(f"{name}: networks() made {strange}, which are no torch.nn.Module.")
    if "policy" not in networks:
        raise PolicyError(f"{name}: networks() made {sorted(networks)}; one must be called 'policy'.")
    return nn.ModuleDict(dict(networks.items())).eval()


def networks_of(spec: PolicySpec, weights: Weights) -> nn.ModuleDict:
    """Return the modules of `spec` with copies of `weights`. Raise PolicyError if they do not fit."""
    networks = make_networks(spec)
    load_arrays(networks, validate_weights(spec, weights, shapes_of(networks)))
    return networks


def check_modules(spec: PolicySpec) -> None:
    """Raise PolicyError unless fresh modules of an `OnPolicy` algorithm return what `OnPolicy.networks` documents, for
    two rows."""
    networks, name = make_networks(spec), spec.config["maker"]
    require_critic(spec, networks)
    inputs, actions = int(spec.config["inputs"]), int(spec.config["actions"])
    expected: dict[str, list[tuple[int, ...]]] = {"policy": [(2, actions)], "critic": [(2,), (2, 1)]}
    for part, shapes in expected.items():
        try:
            with torch.no_grad(), own_stream():
                out = networks[part](torch.zeros(2, inputs))
        except Exception as error:
            problem = f"raised {type(error).__name__} for observations float32[2, {inputs}]: {error}"
            raise PolicyError(f"{name}: the module {part!r} {problem}") from error
        if not isinstance(out, Tensor) or tuple(out.shape) not in shapes:
            description = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            raise PolicyError(
                f"{name}: the module {part!r} answers {description} for 2 observations; expected {wanted}."
            )


def require_critic(spec: PolicySpec, networks: nn.ModuleDict) -> None:
    """Raise PolicyError for networks without a critic."""
    if "critic" not in networks:
        raise PolicyError(f"{spec.config['maker']}: networks() made no 'critic', which advantages need.")


class TorchPolicy(CategoricalPolicy):
    """Kind `torch`; config as `torch_spec` makes it. The module "policy" maps observations float32[n, inputs] to logits
    [n, actions]; the others (a critic, say) are part of the weights, and acting does not use them."""

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        self.actions, self._inputs = integer(spec, "actions"), integer(spec, "inputs")
        self._networks = networks_of(spec, weights)

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        """Implement `CategoricalPolicy.probabilities`: the softmax; greedy, the first best action. Raise PolicyError
        for another shape."""
        with torch.no_grad():
            logits = self._networks["policy"](as_rows(observation, self._inputs)).numpy()
        return self.action_probabilities(logits, mask, mode=mode), {}

    def action_probabilities(
        self, logits: NDArray[np.float32], mask: NDArray[np.bool_], *, mode: str
    ) -> NDArray[np.float64]:
        """Return probabilities float64[n, A] of the module's output."""
        if logits.shape != mask.shape:
            raise PolicyError(
                f"the module 'policy' of {self.spec.config['maker']} answers shape {logits.shape} for {len(mask)} rows; expected "
                f"{mask.shape}."
            )
        return (one_hot_best if mode == "greedy" else masked_softmax)(logits, mask)

    @property
    def multiplications(self) -> int:
        """Return the multiplications per row, where torch may evaluate it."""
        return multiplications(tensor.shape for tensor in self._networks["policy"].parameters())

    @cached_property
    def carried(self) -> CarriedWeights:
        """Return the weights that acting needs."""
        return CarriedWeights(arrays_of(self._networks["policy"]))

    @staticmethod
    def stack_on(policies: Sequence[TorchPolicy], placement: Placement) -> StackedModules:
        """Return policies of one spec as one on a device. Raise PolicyError if their specs differ."""
        return StackedModules(policies, placement)

    def weights(self) -> Weights:
        return arrays_of(self._networks)


class StackedModules:
    """K policies of one spec on a device."""

    def __init__(self, policies: Sequence[TorchPolicy], placement: Placement) -> None:
        one_spec(policies)
        self._first = policies[0]
        form = _form(json.dumps(dict(self._first.spec.config)))
        self._stack = DeviceStack(form, [policy.carried for policy in policies], placement)

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Memory | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> PolicyOutput:
        """Implement `Policy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        del memory  # it has none
        check_mode(self._first, mode)
        logits, _ = self._stack(index, observation.reshape(len(observation), -1), None)
        legal = full_mask(mask, len(observation), self._first.actions)
        return PolicyOutput(*draw(self._first.action_probabilities(logits, legal, mode=mode), noise))


@lru_cache(maxsize=64)
def _form(config: str) -> Architecture:
    return make_architecture(make_networks(PolicySpec("torch", json.loads(config)))["policy"], _ask, batched=False)


def _ask(network: nn.Module, x: Tensor, memory: Tensor | None) -> tuple[Tensor, ...]:
    del memory
    return (network(x),)
