"""Networks that behaviour cloning can train: kinds of policies with action probabilities."""

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
from ludus.policies.base import integer, validate_weights
from ludus.policies.heads import MultiCategorical
from ludus.policies.torch_module import make_networks, networks_of


class CloneModel(Protocol):
    """A network and how its policy's inputs are prepared.

    Attributes:
        module: What is trained.
        memory: Floats of recurrent state; 0: none.
        choices: Number of actions of each entry of an action; () for continuous ones.
        distribution: Distribution of actions.
    """

    module: nn.Module
    memory: int
    choices: tuple[int, ...]
    distribution: Distribution

    def rows(self, observation: Array) -> Array:
        """Return observations [n, …] of any type, as its policy takes them when it acts."""
        ...

    def outputs(self, x: Tensor, start: NDArray[np.int64]) -> Tensor:
        """Return float[n, outputs] of `rows`; with a memory, which is zero at the start of each segment."""
        ...

    def see(self, observation: Array) -> None:
        """Count observations that it will be trained on, for statistics of them."""
        ...

    def weights(self) -> Weights: ...


def model_of(spec: PolicySpec, *, seed: int, start: Weights | None = None) -> CloneModel:
    """Return the network of a policy, fresh from `seed` or from `start`. Raise PolicyError for a kind without action
    probabilities."""
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
    """Kind `actor_critic`. Its value, if it has one, is not trained; a body that it shares is."""

    def __init__(self, spec: PolicySpec, seed: int, start: Weights | None) -> None:
        network = make_network(spec, seed=seed)
        prepare_learning(network)
        if start is not None:
            load_arrays(network, validate_weights(spec, start, shapes_of(network)))
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
        self._moments = None if network.normaliser is None or start is not None else RunningMoments(network.shape)

    def rows(self, observation: Array) -> Array:
        """Return [n, *shape], float32, or bytes unchanged."""
        x = observation.reshape(len(observation), *self._network.shape)
        return x if x.dtype == np.uint8 else x.astype(np.float32)

    def outputs(self, x: Tensor, start: NDArray[np.int64]) -> Tensor:
        if not self.memory:
            return self._network(x.float())[0]  # type: ignore[no-any-return]
        memory = torch.zeros(len(start) - 1, self.memory, device=x.device)
        return self._network(x.float(), memory, Packing.of(start, x.device))[0]  # type: ignore[no-any-return]

    def see(self, observation: Array) -> None:
        if self._moments is None or self._network.normaliser is None:
            return
        self._moments.add(self.rows(observation))
        normaliser = self._network.normaliser
        normaliser.mean.copy_(torch.from_numpy(self._moments.mean))
        normaliser.var.copy_(torch.from_numpy(self._moments.var))
        normaliser.count.fill_(self._moments.count)

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
        """Do nothing: its normalisation is not known."""

    def weights(self) -> Weights:
        return arrays_of(self._networks)


_MODELS: dict[str, Callable[[PolicySpec, int, Weights | None], CloneModel]] = {
    "actor_critic": _ActorCritic,
    "torch": _Own,
}
