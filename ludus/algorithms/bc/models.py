"""The networks that can be cloned into: kinds of policies that have probabilities of actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.losses import CategoricalDistribution, Distribution, distribution_of
from ludus.algorithms.common.statistics import RunningMoments
from ludus.backend.mlp import as_rows
from ludus.backend.network import prepare_learning
from ludus.core.errors import PolicyError
from ludus.core.types import Array, PolicySpec, Weights
from ludus.policies.actor_critic import Packing, arrays_of, load_arrays, make_network, shapes_of
from ludus.policies.checks import fitted, integer
from ludus.policies.heads import MultiCategorical
from ludus.policies.torch_module import make_networks, networks_of


class CloneModel(Protocol):
    """module: what is trained. memory: floats that it remembers, 0: none. choices: actions of each entry of an action, () for continuous
    ones."""

    module: nn.Module
    memory: int
    choices: tuple[int, ...]
    distribution: Distribution

    def rows(self, observation: Array) -> Array:
        """Observations [n, …] of any type, as its policy takes them when it acts."""
        ...

    def outputs(self, x: Tensor, start: NDArray[np.int64]) -> Tensor:
        """float[n, outputs] of `rows`; with a memory, which is zero where each segment starts."""
        ...

    def see(self, observation: Array) -> None:
        """All observations that it will be trained on, a part at a time, for statistics of them."""
        ...

    def weights(self) -> Weights: ...


def model_of(spec: PolicySpec, *, seed: int, start: Weights | None = None) -> CloneModel:
    """The network of a policy, fresh from `seed` or from `start`. Raises PolicyError for a kind without probabilities of actions."""
    if "agents" in spec.config:
        raise PolicyError(
            "policies with a network for each agent of a team cannot be cloned into. Give share_weights=true to the algorithm, here and in "
            "the runs that start from the clone."
        )
    if spec.kind not in _MODELS:
        raise PolicyError(
            f"policies of kind {spec.kind!r} cannot be cloned into; {', '.join(sorted(_MODELS))} can. Name a scenario whose algorithm "
            "trains one of these, such as ppo."
        )
    return _MODELS[spec.kind](spec, seed, start)


class _ActorCritic:
    """Kind `actor_critic`. Its value, if it has one, stays as it was; a body that it shares does not."""

    def __init__(self, spec: PolicySpec, seed: int, start: Weights | None) -> None:
        network = make_network(spec, seed=seed)
        prepare_learning(network)
        if start is not None:
            load_arrays(network, fitted(spec, start, shapes_of(network)))
        self.module: nn.Module = network
        self._network = network
        self.memory = network.memory
        action, head = spec.config["action"], network.head_of
        self.distribution: Distribution = distribution_of(action)
        self.choices: tuple[int, ...] = ()
        if isinstance(head, MultiCategorical):
            self.choices = head.choices
        elif action["kind"] == "categorical":
            self.choices = (head.outputs,)
        self._seen = None if network.normaliser is None or start is not None else RunningMoments(network.shape)

    def rows(self, observation: Array) -> Array:
        """[n, *shape], float32, or bytes as they are."""
        x = observation.reshape(len(observation), *self._network.shape)
        return x if x.dtype == np.uint8 else x.astype(np.float32)

    def outputs(self, x: Tensor, start: NDArray[np.int64]) -> Tensor:
        if not self.memory:
            return self._network(x.float())[0]  # type: ignore[no-any-return]
        memory = torch.zeros(len(start) - 1, self.memory, device=x.device)
        return self._network(x.float(), memory, Packing.of(start, x.device))[0]  # type: ignore[no-any-return]

    def see(self, observation: Array) -> None:
        if self._seen is None or self._network.normaliser is None:
            return
        self._seen.add(self.rows(observation))
        normaliser = self._network.normaliser
        normaliser.mean.copy_(torch.from_numpy(self._seen.mean))
        normaliser.var.copy_(torch.from_numpy(self._seen.var))
        normaliser.count.fill_(self._seen.count)

    def weights(self) -> Weights:
        return arrays_of(self._network)


class _Own:
    """Kind `torch`: its module "policy"."""

    memory = 0

    def __init__(self, spec: PolicySpec, seed: int, start: Weights | None) -> None:
        self._networks = make_networks(spec, seed=seed) if start is None else networks_of(spec, start)
        self.module: nn.Module = self._networks["policy"]
        self._inputs = integer(spec, "inputs")
        self.choices: tuple[int, ...] = (integer(spec, "actions"),)
        self.distribution: Distribution = CategoricalDistribution()

    def rows(self, observation: Array) -> Array:
        return as_rows(observation, self._inputs).numpy()

    def outputs(self, x: Tensor, start: NDArray[np.int64]) -> Tensor:
        out: Tensor = self.module(x)
        return out

    def see(self, observation: Array) -> None:
        """It normalises nothing that is known here."""

    def weights(self) -> Weights:
        return arrays_of(self._networks)


_MODELS: dict[str, Callable[[PolicySpec, int, Weights | None], CloneModel]] = {
    "actor_critic": _ActorCritic,
    "torch": _Own,
}
