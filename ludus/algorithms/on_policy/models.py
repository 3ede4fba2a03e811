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
from ludus.errors import LudusError, PolicyError, ScenarioError
from ludus.policies.torch_module import make_networks, networks_of, raised, weights_of
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
        _require_critic(self.spec, networks)
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
        name = self.spec.config["maker"]
        try:
            loss = self.config.loss(self._networks, batch)
        except LudusError:
            raise
        except Exception as error:
            raise PolicyError(f"{name}: loss() of {len(batch)} rows raised {raised(error)}.") from error
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shown = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise PolicyError(f"{name}: loss() of {len(batch)} rows answers {shown}; expected a scalar, their mean.")
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise PolicyError(
                f"{name}: loss() answers a number that depends on no network, so nothing would be learned."
            )
        return loss, ()

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


def check_modules(spec: PolicySpec) -> None:
    """Asks fresh modules of an `OnPolicy` algorithm for two rows. Raises PolicyError unless they answer what `OnPolicy.networks` says."""
    networks, name = make_networks(spec), spec.config["maker"]
    _require_critic(spec, networks)
    inputs, actions = int(spec.config["inputs"]), int(spec.config["actions"])
    expected: dict[str, list[tuple[int, ...]]] = {"policy": [(2, actions)], "critic": [(2,), (2, 1)]}
    for part, shapes in expected.items():
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                out = networks[part](torch.zeros(2, inputs))
        except Exception as error:
            seen = f"raised {type(error).__name__} for observations float32[2, {inputs}]: {error}"
            raise PolicyError(f"{name}: the module {part!r} {seen}") from error
        if not isinstance(out, Tensor) or tuple(out.shape) not in shapes:
            shown = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            raise PolicyError(f"{name}: the module {part!r} answers {shown} for 2 observations; expected {wanted}.")


def _require_critic(spec: PolicySpec, networks: nn.ModuleDict) -> None:
    if "critic" not in networks:
        raise PolicyError(f"{spec.config['maker']}: networks() made no 'critic', which advantages need.")


def _require_no_batch_norm(networks: nn.Module) -> None:
    for name, module in networks.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ScenarioError(
                f"the network {name!r} is a {type(module).__name__}, whose answers for a row depend on the rows beside it; several ranks, "
                "which have different rows, would not learn what one does. Use LayerNorm, or one rank."
            )
