"""What the learner trains: modules of anybody's own making, or (`actor_critic.py`) the family's networks, behind one protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus import seeding
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.losses import log_prob
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.config import OnPolicy
from ludus.data.trajectories import Trajectories
from ludus.errors import PolicyError, ScenarioError
from ludus.policies.torch_module import make_networks, networks_of, weights_of
from ludus.types import PolicySpec, State, Weights

Floats = NDArray[np.float64]


class Model(Protocol):
    """shape: of an observation as `values` takes it. memory: floats that one slot remembers, 0: none. sequence: decisions through which
    gradients flow back, with a memory. actions: width of masks; 0: there are none. state: width of what a central critic sees beside x; 0:
    there is none. names: of the scalars that `loss` gives beside itself. trusted: it is ours; its loss is a mean over rows, whatever the
    rows, and takes None for a mask that forbids nothing."""

    spec: PolicySpec
    shape: tuple[int, ...]
    memory: int
    sequence: int
    actions: int
    state: int
    trusted: bool

    @property
    def module(self) -> nn.Module: ...
    @property
    def names(self) -> tuple[str, ...]: ...

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """(values [n], memory after [S, M]) of rows x, with the states [n, width] of a central critic, as `ActorCritic.unroll` takes
        memory."""
        ...

    def log_prob(self, batch: Batch) -> Tensor:
        """Log-probabilities [n] of the batch's actions."""
        ...

    def loss(self, batch: Batch, progress: float) -> tuple[Tensor, Sequence[Tensor]]:
        """(the loss, means over rows as `names` says) of at least one row. progress: of the budget."""
        ...

    def scaled(self, rows: Trajectories, reward: Floats) -> Floats:
        """Rewards float64[N] of a rollout, as they are learned from; its statistics see them."""
        ...

    def learned(self, batch: Batch) -> None:
        """After an update from these rows: statistics see them."""
        ...

    def weights(self) -> Weights: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class OwnModel:
    """The modules and the loss of an `OnPolicy` algorithm."""

    memory, sequence, state, trusted = 0, 1, 0, False
    names: tuple[str, ...] = ()

    def __init__(self, config: OnPolicy, context: LearnerContext, start: Weights | None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        self.shape: tuple[int, ...] = (int(self.spec.config["inputs"]),)
        self.actions = int(self.spec.config["actions"])
        fresh = seeding.key(context.seed, "on-policy", "weights") % 2**63
        networks = networks_of(self.spec, start) if start is not None else make_networks(self.spec, seed=fresh)
        if "critic" not in networks:
            raise PolicyError(f"{self.spec.config['maker']}: networks() made no 'critic', which advantages need.")
        if context.ranks.size > 1:
            _require_no_batch_norm(networks)
        self.module: nn.Module = networks
        self._networks = cast(Mapping[str, nn.Module], networks)

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        return self._networks["critic"](x).reshape(-1), None

    def log_prob(self, batch: Batch) -> Tensor:
        return log_prob(self._networks["policy"](batch.x), batch.action, batch.mask)

    def loss(self, batch: Batch, progress: float) -> tuple[Tensor, Sequence[Tensor]]:
        return self.config.loss(self._networks, batch), ()

    def scaled(self, rows: Trajectories, reward: Floats) -> Floats:
        return reward

    def learned(self, batch: Batch) -> None:
        """It has no statistics but its modules' own."""

    def weights(self) -> Weights:
        return weights_of(cast(nn.ModuleDict, self.module))

    def state_dict(self) -> State:
        return {"weights": self.weights()}

    def load_state_dict(self, state: State) -> None:
        self.module.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in state["weights"].items()})


def _require_no_batch_norm(networks: nn.Module) -> None:
    for name, module in networks.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ScenarioError(
                f"the network {name!r} is a {type(module).__name__}, whose answers for a row depend on the rows beside it; several ranks, "
                "which have different rows, would not learn what one does. Use LayerNorm, or one rank."
            )
