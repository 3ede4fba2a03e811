"""What the learner trains: modules of anybody's own making, or the family's networks, behind one protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.core import seeding
from ludus.core.device import to_host
from ludus.core.errors import LudusError, PolicyError, ScenarioError
from ludus.core.own_code import raised
from ludus.core.types import PolicySpec, State, Weights
from ludus.learners.base import LearnerContext
from ludus.learners.losses import approximate_kl, distribution_of, log_prob, value_loss
from ludus.learners.on_policy.batch import Batch
from ludus.learners.statistics import DiscountedReturns, RunningMoments
from ludus.policies.actor_critic import (
    ActorCritic,
    Normaliser,
    ReturnScale,
    TeamNetwork,
    agents_in,
    arrays_of,
    load_arrays,
    make_network,
    shapes_of,
)
from ludus.policies.checks import fitted
from ludus.policies.torch_module import make_networks, networks_of, weights_of
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.learners.on_policy.options import OnPolicy, PolicyGradient

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


def fresh_seed(context: LearnerContext) -> int:
    """Of the first weights of a task, by whichever passes they are learned."""
    return seeding.key(context.seed, "on-policy", "weights") % 2**63


class OwnModel:
    """The modules and the loss of an `OnPolicy` algorithm."""

    memory, sequence, state, trusted = 0, 1, 0, False
    names: tuple[str, ...] = ()

    def __init__(self, config: OnPolicy, context: LearnerContext, start: Weights | None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        self.shape: tuple[int, ...] = (int(self.spec.config["inputs"]),)
        self.actions = int(self.spec.config["actions"])
        seed = fresh_seed(context)
        networks = networks_of(self.spec, start) if start is not None else make_networks(self.spec, seed=seed)
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


# --------------------------------------------------------------------------------------------------------------------
# The family's networks as the learner trains them: loss, and statistics that travel with the weights.

_ROWS = 4096  # that are evaluated at a time


class FamilyModel:
    """An `ActorCritic` network, or a `TeamNetwork` of them. Statistics are of all agents' rows, and every network of a team has them."""

    trusted = True

    def __init__(self, config: PolicyGradient, context: LearnerContext, start: Weights | None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        make = TeamNetwork if agents_in(self.spec) > 1 else make_network
        self.module: ActorCritic | TeamNetwork = make(
            self.spec, seed=fresh_seed(context), initial_std=config.initial_std
        )
        if start is not None:
            load_arrays(self.module, fitted(self.spec, start, shapes_of(self.module)))
        self._networks = self.module.networks
        first, self.sequence = self._networks[0], config.sequence
        self.shape, self.memory, self.state = first.shape, first.memory, first.state
        action = self.spec.config["action"]
        self.actions = first.head_of.outputs if "categorical" in action["kind"] else 0
        self._distribution = distribution_of(action)
        self.names = ("policy_loss", "value_loss", "entropy", "kl", *config.extra_metrics)
        self._seen, self._states = _moments(first.normaliser), _moments(first.state_normaliser)
        self._returns = None if (scale := _moments(first.returns)) is None else DiscountedReturns(config.gamma)
        if self._returns is not None and scale is not None:
            self._returns.moments = scale

    # ------------------------------------------------------------------------------------------ the network

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """0 without a value network."""
        if start is None and memory is None:
            if self._networks[0].value is None:
                return x.new_zeros(len(x)), None
            count = -(-len(x) // _ROWS) or 1
            states = [None] * count if state is None else torch.tensor_split(state, count)
            parts = zip(torch.tensor_split(x, count), states, strict=True)
            return torch.cat([self.module.value_of(part.float(), its).float() for part, its in parts]), None
        _, value, after = self.module.unroll(x.float(), memory, start, state)
        return x.new_zeros(len(x)) if value is None else value, after

    def log_prob(self, batch: Batch) -> Tensor:
        return self._distribution.log_prob(self._forward(batch)[0], batch.action, batch.mask)

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        out, value, _ = self.module.unroll(batch.x.float(), batch.memory, batch.start, batch.state)
        return out.float(), None if value is None else value.float()

    def loss(self, batch: Batch, progress: float) -> tuple[Tensor, Sequence[Tensor]]:
        config, (out, value) = self.config, self._forward(batch)
        logp = self._distribution.log_prob(out, batch.action, batch.mask)
        policy = self._surrogate(logp, batch).mean()
        entropy = self._distribution.entropy(out, batch.mask).mean()
        loss, worth = policy - config.entropy.at(progress) * entropy, policy.new_zeros(())
        if value is not None:
            worth = value_loss(value, batch.target, old_value=batch.value, clip=config.clip_value).mean()
            loss = loss + config.value_coefficient * worth
        with torch.no_grad():
            kl = approximate_kl(logp, batch.logp).mean()
            extra = [config.metrics(logp, batch)[name].mean() for name in config.extra_metrics]
        return loss, (policy, worth, entropy, kl, *extra)

    def _surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        name = f"{type(self.config).__module__}:{type(self.config).__qualname__}"
        try:
            out = self.config.surrogate(logp, batch)
        except LudusError:
            raise
        except Exception as error:
            raise PolicyError(f"{name}: surrogate() of {len(logp)} rows raised {raised(error)}.") from error
        if not isinstance(out, Tensor) or out.shape != logp.shape:  # one of another shape would be broadcast
            shown = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise PolicyError(f"{name}: surrogate() of {len(logp)} rows answers {shown}; expected a loss of each row.")
        return out

    # ------------------------------------------------------------------------------------------ statistics

    def scaled(self, rows: Trajectories, reward: Floats) -> Floats:
        """Divided by the standard deviation of discounted returns, these ones included, if that is wanted. Rewards that are not finite are
        left to fail in the loss."""
        if self._returns is None:
            return reward
        if np.isfinite(reward).all():
            self._returns.add(rows, reward)
            for network in self._networks:
                _publish(self._returns.moments, network.returns)
        return reward * self._returns.scale

    def learned(self, batch: Batch) -> None:
        """The rows were acted and learned from with the statistics of before them; what acts next has these too."""
        if self._seen is not None:
            self._seen.add_rows(batch.x)
        if self._states is not None and batch.state is not None:
            self._states.add_rows(batch.state)
        for network in self._networks:
            _publish(self._seen, network.normaliser)
            _publish(self._states, network.state_normaliser)

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return arrays_of(self.module)

    def state_dict(self) -> State:
        out: dict[str, State] = {"weights": self.weights()}
        if self._seen is not None:
            out["observations"] = self._seen.state_dict()
        if self._states is not None:
            out["states"] = self._states.state_dict()
        if self._returns is not None:
            out["returns"] = self._returns.state_dict()
        return out

    def load_state_dict(self, state: State) -> None:
        load_arrays(self.module, state["weights"])
        if self._seen is not None:
            self._seen.load_state_dict(state["observations"])
        if self._states is not None:
            self._states.load_state_dict(state["states"])
        if self._returns is not None:
            self._returns.load_state_dict(state["returns"])


def _moments(buffers: Normaliser | ReturnScale | None) -> RunningMoments | None:
    """As the weights have them, which may be those of a warm start."""
    if buffers is None:
        return None
    moments = RunningMoments(tuple(buffers.mean.shape))
    moments.start(count=float(buffers.count), mean=to_host(buffers.mean), var=to_host(buffers.var))
    return moments


def _publish(moments: RunningMoments | None, buffers: Normaliser | ReturnScale | None) -> None:
    if moments is not None and buffers is not None:
        buffers.mean.copy_(torch.from_numpy(np.asarray(moments.mean)))
        buffers.var.copy_(torch.from_numpy(np.asarray(moments.var)))
        buffers.count.fill_(moments.count)
