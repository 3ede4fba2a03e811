"""The policy-gradient family (REINFORCE, A2C, IMPALA; PPO has a loss of its own), from top to bottom: its loss, and the
learner of all on-policy algorithms, from batches to steps of Adam on a `Model`. From rollouts to batches:
`ludus.algorithms.on_policy.experience`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.base import ROLLOUTS, LearnerContext
from ludus.algorithms.common.config import Budget
from ludus.algorithms.common.device_policy import RoundNumbers, RoundSettings
from ludus.algorithms.common.losses import approximate_kl, distribution_of, value_loss
from ludus.algorithms.common.returns import normalize_advantages, not_finite, vtrace_targets
from ludus.algorithms.common.statistics import DiscountedReturns, RunningMoments
from ludus.algorithms.on_policy.autograd_model import TorchModel
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.config import PolicyGradient, needs_autograd
from ludus.algorithms.on_policy.experience import ExperienceBuilder
from ludus.algorithms.on_policy.model import (
    METRICS,
    ActionBatch,
    Floats,
    Model,
    OnPolicyConfig,
    StepStats,
    fresh_seed,
)
from ludus.algorithms.on_policy.model_reuse import reuse_model
from ludus.algorithms.on_policy.ondevice.learning import OnDeviceBatcher, on_device_unsupported_reason
from ludus.algorithms.on_policy.ondevice.rounds import (
    round_update,
    rounds_unsupported_reason,
)
from ludus.backend.device import generator_on, scalars_to_host, to_device, to_numpy
from ludus.backend.mlp import Layout
from ludus.core import seeding
from ludus.core.errors import LudusError, PolicyError, TrainingError
from ludus.core.types import Metrics, State, Weights
from ludus.core.user_code import describe_error
from ludus.policies.actor_critic import (
    ActorCritic,
    Normalizer,
    ReturnScale,
    TeamNetwork,
    agents_in,
    layouts,
    load_arrays,
    make_network,
    shapes_of,
)
from ludus.policies.base import validate_weights
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.blocks import Block, BlockRows
from ludus.replay.trajectories import Trajectories

# --------------------------------------------------------------------------------------------------------------------
# The family's loss, and its networks as autograd trains them, with statistics that travel with the weights.

_ROWS = 4096  # that are evaluated at a time


class ActorCriticModel(TorchModel):
    """An `ActorCritic` network, or a `TeamNetwork` of them. Statistics are of all agents' rows, and every network of a
    team has them."""

    mean_reducible = cuda_graph_safe = True
    config: PolicyGradient

    def __init__(
        self, config: PolicyGradient, context: LearnerContext, start: Weights | None, *, no_kernel_reason: str = ""
    ) -> None:
        """no_kernel_reason: Why CPU kernels do not train it."""
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        self.module: Any = self._fresh(fresh_seed(context))
        if start is not None:
            load_arrays(self.module, validate_weights(self.spec, start, shapes_of(self.module)))
        self._networks = self.module.networks
        self._active_network: ActorCritic | TeamNetwork = self.module  # by `_forward`
        first, self.sequence = self._networks[0], config.sequence
        self.shape, self.memory, self.state = first.shape, first.memory, first.state
        action = self.spec.config["action"]
        self.actions = first.head_of.outputs if "categorical" in action["kind"] else 0
        self.distribution = distribution_of(action)
        self._observation_moments, self._state_moments = _moments(first.normaliser), _moments(first.state_normaliser)
        self._returns = None if (scale := _moments(first.returns)) is None else DiscountedReturns(config.gamma)
        if self._returns is not None and scale is not None:
            self._returns.moments = scale
        trained, plain = self._trained()
        # Rows of several networks are divided by numbers; what a custom loss depends on is unknown.
        self.cuda_graph_safe = self.cuda_graph_safe and len(self._networks) == 1 and _is_ours(config)
        super().__init__(
            config, trained, context, names=self._metric_names(config), layouts=plain, no_kernel_reason=no_kernel_reason
        )
        self.has_statistics = bool(self._statistics)

    def _trained(self) -> tuple[nn.Module, Sequence[Layout]]:
        """Return (the module whose parameters move, the layouts of its parameters if they are only perceptrons)."""
        plain = self._layouts()
        whole = sum(len(layout.shapes()) for layout in plain) == sum(1 for _ in self.module.parameters())
        return self.module, plain if whole else ()

    def _metric_names(self, config: PolicyGradient) -> tuple[str, ...]:
        """Return `Model.names`."""
        return (*METRICS, *config.extra_metrics)

    # ------------------------------------------------------------------------------------------ the network

    def _fresh(self, seed: int) -> Any:
        """Return a fresh network of the spec."""
        make = TeamNetwork if agents_in(self.spec) > 1 else make_network
        return make(self.spec, seed=seed, initial_std=self.config.initial_std)

    def _layouts(self) -> Sequence[Layout]:
        """Return the layouts for `FlatModule`."""
        return list(layouts(self.spec).values())

    def values(
        self, x: Tensor, memory: Tensor | None, start: NDArray[np.int64] | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return values; 0 without a value network."""
        if start is None and memory is None:
            if self._networks[0].value is None:
                return x.new_zeros(len(x)), None
            count = -(-len(x) // _ROWS) or 1
            states = [None] * count if state is None else torch.tensor_split(state, count)
            parts = zip(torch.tensor_split(x, count), states, strict=True)
            return torch.cat([self.module.value_of(part.float(), its).float() for part, its in parts]), None
        _, value, after = self.module.unroll(x.float(), memory, start, state)
        return x.new_zeros(len(x)) if value is None else value, after

    def outputs(self, x: Tensor) -> Tensor:
        out: Tensor = self.module.unroll(x.float(), None, None, None)[0]
        return out

    def log_prob(self, batch: Batch) -> Tensor:
        return self.distribution.log_prob(self._forward(batch)[0], batch.action, batch.mask)

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        out, value, _ = self._active_network.unroll(batch.x.float(), batch.memory, batch.start, batch.state)
        return out.float(), None if value is None else value.float()

    def loss_coefficients(self, progress: float) -> tuple[float, ...]:
        return (self.config.entropy.at(progress),)

    def loss(self, batch: Batch, coefficients: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the loss of the family, and its metrics as means over rows:

            surrogate - entropy_coefficient × H(π) + value_coefficient × ½ (V - G)²

        The surrogate of REINFORCE, A2C and IMPALA is -A log π(a|s) (Williams 1992; Sutton et al. 2000). PPO's loss is in
        `ludus.algorithms.ppo.learner`.
        """
        config, (entropy_coefficient,) = self.config, coefficients
        logits, value = self._forward(batch)
        logp = self.distribution.log_prob(logits, batch.action, batch.mask)

        policy_loss = batch.mean(self._surrogate(logp, batch))
        entropy = batch.mean(self.distribution.entropy(logits, batch.mask))
        loss, squared_error = policy_loss - entropy_coefficient * entropy, policy_loss.new_zeros(())
        if value is not None:
            squared_error = batch.mean(value_loss(value, batch.target, old_value=batch.value, clip=config.clip_value))
            loss = loss + config.value_coefficient * squared_error

        with torch.no_grad():
            kl = batch.mean(approximate_kl(logp, batch.logp))
            extra = [batch.mean(config.metrics(logp, batch)[name]) for name in config.extra_metrics]
        return loss, (policy_loss, squared_error, entropy, kl, *extra)

    def _surrogate(self, logp: Tensor, batch: Batch) -> Tensor:
        name = f"{type(self.config).__module__}:{type(self.config).__qualname__}"
        try:
            out = self.config.surrogate(logp, batch)
        except LudusError:
            raise
        except Exception as error:
            raise PolicyError(f"{name}: surrogate() of {len(logp)} rows raised {describe_error(error)}.") from error
        if not isinstance(out, Tensor) or out.shape != logp.shape:  # one of another shape would be broadcast
            description = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise PolicyError(
                f"{name}: surrogate() of {len(logp)} rows answers {description}; expected a loss of each row."
            )
        return out

    # ------------------------------------------------------------------------------------------ statistics

    def rewards(self, rows: Trajectories, reward: Floats, progress: float) -> Floats:
        """Return rewards, divided by the standard deviation of discounted returns, these ones included, if that is
        enabled. Rewards that are not finite are left to fail in the loss."""
        if self._returns is None:
            return reward
        if np.isfinite(reward).all():
            self._returns.add(rows, reward)
            for network in self._networks:
                _publish(self._returns.moments, network.returns)
        return reward * self._returns.scale

    def rewards_on_device(
        self, reward: Tensor, progress: float, *, acted: ActionBatch, rows: BlockRows, block: Block
    ) -> Tensor:
        if self._returns is None:
            return reward
        self._returns.add_block(block, rows, reward)
        for network in self._networks:
            _publish(self._returns.moments, network.returns)
        return reward * self._returns.scale

    def coefficients(self, progress: float) -> Metrics:
        return {"entropy_coefficient": self.config.entropy.at(progress)}

    def after_update(self, batch: Batch, progress: float) -> None:
        """Update the statistics: the rows were collected and learned from with the statistics before them; the next
        rollout uses the new ones."""
        if self._observation_moments is not None:
            self._observation_moments.add_rows(batch.x)
        if self._state_moments is not None and batch.state is not None:
            self._state_moments.add_rows(batch.state)
        for network in self._networks:
            _publish(self._observation_moments, network.normaliser)
            _publish(self._state_moments, network.state_normaliser)

    # ------------------------------------------------------------------------------------------ state

    @property
    def _statistics(self) -> dict[str, RunningMoments | DiscountedReturns]:
        moments = {"observations": self._observation_moments, "states": self._state_moments, "returns": self._returns}
        return {name: statistics for name, statistics in moments.items() if statistics is not None}

    def state_dict(self) -> State:
        return {**super().state_dict(), **{name: each.state_dict() for name, each in self._statistics.items()}}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        for name, each in self._statistics.items():
            each.load_state_dict(state[name])


def make_model(config: PolicyGradient, context: LearnerContext, start: Weights | None = None) -> ActorCriticModel:
    """Make the model that autograd trains."""
    why = needs_autograd(config.policy(context.env, context.seats))
    return ActorCriticModel(config, context, start, no_kernel_reason=f"autograd learns {why}" if why else "")


def _is_ours(config: PolicyGradient) -> bool:
    """Return whether Ludus implements what the algorithm adds to the loss."""
    parts = type(config).surrogate, type(config).metrics
    return all(part.__module__.startswith("ludus.") for part in parts)


def _moments(buffers: Normalizer | ReturnScale | None) -> RunningMoments | None:
    """Return the moments in the weights, which may be those of a warm start."""
    if buffers is None:
        return None
    moments = RunningMoments(tuple(buffers.mean.shape))
    moments.start(count=float(buffers.count), mean=to_numpy(buffers.mean), var=to_numpy(buffers.var))
    return moments


def _publish(moments: RunningMoments | None, buffers: Normalizer | ReturnScale | None) -> None:
    if moments is not None and buffers is not None:
        buffers.mean.copy_(torch.from_numpy(np.asarray(moments.mean)))
        buffers.var.copy_(torch.from_numpy(np.asarray(moments.var)))
        buffers.count.fill_(moments.count)


# --------------------------------------------------------------------------------------------------------------------
# The learner.


class OnPolicyLearner:
    """Learns from items whose advantages were computed when they arrived, with the values of the weights of that time."""

    makes_items: type[ExperienceBuilder] = ExperienceBuilder
    in_groups = False  # whether units of batches are groups of rows
    empties_tables = True  # whether each round's one batch is everything that its table holds

    def __init__(self, config: OnPolicyConfig, model: Model, context: LearnerContext) -> None:
        model = reuse_model(self, model, context)
        self.config, self.model, self.spec, self._context = config, model, model.spec, context
        self.placement = model.placement
        self._items = self.makes_items(config, model, context)
        self._budget = Budget.of(config.collect(), context)
        self._progress = 0.0  # of the budget, before the rows of the next update were collected
        self._seed = context.seed
        self._updates = self._waiting = 0
        self._from_block = False  # whether this update's rows were played where it computes

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return decision rows with advantage and value target; with a memory, sequences of them."""
        columns = self._items.build(trajectories, self._progress)
        self._budget.add(trajectories)
        self._waiting += trajectories.num_rows
        return [(ROLLOUTS, columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        """Return one update on all waiting items."""
        return [(ROLLOUTS, 0)] if self._waiting else []

    # ------------------------------------------------------------------------------------------ learning

    def update(self, batch: Sample) -> Metrics:
        """Run `epochs` times `minibatches` steps on the loss. Raise TrainingError; the weights of before this update
        then stay, as with any error."""
        return self._update(lambda: self._batch(batch.columns))

    def _update(self, make_batch: Callable[[], Batch]) -> Metrics:
        model, progress = self.model, self._progress
        rate, snapshot = self.config.learning_rate.at(progress), model.snapshot()
        try:
            learned = make_batch()
            metrics = self._learn(learned, rate)
        except Exception:
            model.restore(snapshot)
            raise
        self._updates += 1
        self._waiting = 0
        self._progress = self._budget.progress
        model.after_update(learned, self._progress)
        rates = {"learning_rate": rate, **model.coefficients(progress)}
        return {"rows": float(len(learned)), **rates, **self._items.metrics, **metrics}

    def _batch(self, columns: Mapping[str, Any]) -> Batch:
        if wrong := not_finite(columns):
            raise self._error(wrong, "before the first epoch: check rewards and value estimates")
        return self._weighted(*self._items.batch(columns))

    def _weighted(self, batch: Batch, traced: dict[str, Tensor]) -> Batch:
        """Return the batch with the advantages that the loss takes."""
        weight = None
        if self.config.correction == "vtrace" and len(batch):
            batch, weight = self._corrected(batch, traced)
        advantage = batch.advantage.double()
        if self.config.normalise_advantages:
            advantage = normalize_advantages(advantage, weight)
        elif weight is not None:
            advantage = advantage * weight
        return replace(batch, advantage=advantage.float())

    @torch.no_grad()
    def _corrected(self, batch: Batch, traced: dict[str, Tensor]) -> tuple[Batch, Tensor]:
        """Return the batch with targets and advantages by the present weights, and the importance weight of each row.
        Ratios of the loss then are relative to these weights, not to those that acted; that difference is in the
        advantages, which V-trace weights."""
        config = self.config
        logp = self.model.log_prob(batch)
        value = self.model.values(batch.x, batch.memory, batch.start, batch.state)[0]
        value = value if batch.state_index is None else value[torch.from_numpy(batch.state_index)]
        target, advantage, weight = vtrace_targets(
            {**traced, "logp": batch.logp},
            value=value,
            logp=logp,
            gamma=config.gamma,
            lam=config.gae_lambda,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
        )
        if "other" in traced:
            advantage = traced["weight"] * advantage + traced["other"]
        return replace(batch, advantage=advantage, target=target.float(), logp=logp.float(), value=value), weight

    def _learn(self, batch: Batch, rate: float) -> Metrics:
        return {**self._run_epochs(batch, rate), **explained_variance(batch, self.model)}

    def _run_epochs(self, batch: Batch, rate: float) -> Metrics:
        """Run the epochs of an update. Return the statistics of the last step; raise TrainingError."""
        model, names = self.model, self.model.names
        stats, epochs = StepStats.initial(1 + len(names)), 0
        seed = seeding.key(self._seed, "on-policy", "update", *self._stream) % 2**63
        with model.learning(batch, seed) as rows:
            for count, parts in self._epochs(rows, batch.units):
                stats = model.steps(parts, rate, self._progress)
                epochs += 0 if stats.early_stopped else count
                if stats.nonfinite:
                    when = f"in epoch {epochs}" if count == 1 else f"in one of {count} epochs"
                    raise self._error(stats.nonfinite_name(names), f"{when}, at a rate of {rate:g}")
                if stats.early_stopped:
                    break
        out = {"loss": stats.scalars[0], "gradient_norm": stats.grad_norm, "epochs": float(epochs)}
        return {**out, **dict(zip(names, stats.scalars[1:], strict=True))}

    @property
    def _stream(self) -> tuple[int, ...]:
        """Return what the random numbers of the epochs depend on."""
        return (self._updates,)

    def shuffler(self) -> np.random.Generator:
        """Return the generator that assigns an update's rows to minibatches."""
        return seeding.generator(self._seed, "on-policy", "shuffle", *self._stream)

    def _error(self, what: str, where: str) -> TrainingError:
        return TrainingError(
            f"{type(self.config).__name__} update {self._updates + 1}: {what} became NaN or infinite {where}. The weights from before "
            "this update are kept; a smaller learning_rate, or finite rewards and observations, may help."
        )

    def _epochs(self, rows: Any, units: int) -> Iterator[tuple[int, Iterable[Any]]]:
        """Yield (number of epochs, prepared parts): the whole batch, or minibatches of its units, shuffled for each
        epoch; nothing for an empty batch. On a device all epochs of a whole batch come together, since reading numbers
        means waiting and nothing is decided by them."""
        count, epochs = min(self.config.minibatches, units), self.config.epochs
        on_gpu = self.placement.device != "cpu" or self.placement.graphs is not None
        if count < 2:
            whole = list(self.model.prepare(rows, None)) * count
            together = on_gpu and self.config.kl_limit is None
            yield from [(epochs, whole * epochs)] * count if together else [(1, whole)] * (epochs * count)
            return
        if not on_gpu or self.model.memory or self.in_groups:
            rng = self.shuffler()
            for _ in range(epochs):
                yield 1, self.model.prepare(rows, np.array_split(rng.permutation(units), count))
            return
        orders = self._orders(units, epochs)
        whole_update = self.model.prepare_epochs(rows, orders, count) if isinstance(self.model, TorchModel) else None
        if whole_update is not None:
            yield epochs, [whole_update]
            return
        for order in orders.unbind(0):
            yield 1, self.model.prepare(rows, order.tensor_split(count))

    def _orders(self, units: int, epochs: int) -> Tensor:
        """Return int64[epochs, units] on the device, the order of the units in each epoch: the one in which a CPU would take them, or drawn
        where they were played."""
        device = self.placement.torch
        if not self._from_block:
            rng = self.shuffler()
            return to_device(np.stack([rng.permutation(units) for _ in range(epochs)]), device)
        there = generator_on(device, seeding.key(self._seed, "on-policy", "shuffle", *self._stream))
        return torch.stack([torch.randperm(units, generator=there, device=device) for _ in range(epochs)])

    # ------------------------------------------------------------------------------------------ on a device

    def on_device_unsupported_reason(self) -> str:
        return on_device_unsupported_reason(self.model, self._context, self.config)

    @cached_property
    def _on_device(self) -> OnDeviceBatcher:
        return OnDeviceBatcher(self.config, cast(TorchModel, self.model), self._items.inputs, self._context)

    def table(self) -> Tensor:
        return self._on_device.table()

    def act(self, x: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        return self._on_device.act(x, mask, generator)

    def learn(self, block: Block) -> Metrics:
        self._budget.count(block.num_rows, block.num_episodes)
        progress, self._from_block = self._progress, True
        try:
            return self._update(lambda: self._weighted(*self._on_device.batch(block, progress)))
        finally:
            self._from_block = False

    # ------------------------------------------------------------------------------------------ several updates, read later

    def rounds_unsupported_reason(self) -> str:
        if type(self) is not OnPolicyLearner:  # it may learn otherwise than `round_update`
            return "its learner is of a class of its own"
        return rounds_unsupported_reason(self.model, self.config)

    def round_settings(self, ahead: int, episodes: int) -> RoundSettings:
        progress = self._budget.progress_after(ahead * episodes) if ahead else self._progress
        updates = self._updates + ahead
        return RoundSettings(
            progress,
            self.config.learning_rate.at(progress),
            cast(TorchModel, self.model).loss_coefficients(progress),
            seeding.key(self._seed, "on-policy", "shuffle", updates) % 2**63,
        )

    def enqueue_update(self, block: Block, settings: RoundSettings) -> RoundNumbers:
        model = cast(TorchModel, self.model)
        update = model.repeated(round_update)
        return update(model, self._on_device, block, settings.rate, settings.coefficients, torch.tensor(settings.seed))

    def finish_update(self, settings: RoundSettings, numbers: Sequence[float], rows: int, episodes: int) -> Metrics:
        model = cast(TorchModel, self.model)
        self._budget.count(rows, episodes)
        *scalars, norm, wrong, spread, unexplained = numbers
        if wrong:
            model.undo_failed_updates()
            stats = StepStats(scalars, norm, early_stopped=False, nonfinite=True)
            when = f"in one of {self.config.epochs} epochs, at a rate of {settings.rate:g}"
            raise self._error(stats.nonfinite_name(model.names), when)
        self._updates += 1
        self._progress = self._budget.progress
        return {
            "rows": float(rows),
            "learning_rate": settings.rate,
            **model.coefficients(settings.progress),
            **self._items.metrics,
            "loss": scalars[0],
            "gradient_norm": norm,
            "epochs": float(self.config.epochs),
            **dict(zip(model.names, scalars[1:], strict=True)),
            "explained_variance": 1.0 - unexplained / spread if spread > 0 else 0.0,
        }

    def snapshot(self) -> Any:
        return self.model.snapshot()

    def restore(self, snapshot: Any) -> None:
        self.model.restore(snapshot)

    # ------------------------------------------------------------------------------------------ state

    def weights(self) -> Weights:
        return self.model.weights()

    def state_dict(self) -> State:
        learned = self._items.learned_reward
        return {
            **self.model.state_dict(),
            **({} if learned is None else {"learned_reward": learned.state_dict()}),
            "budget": self._budget.state_dict(),
            "progress": self._progress,
            "updates": self._updates,
            "waiting": self._waiting,
            "blind": self._items.unknown_bootstrap_count,
        }

    def load_state_dict(self, state: State) -> None:
        self.model.load_state_dict(state)
        self._budget.load_state_dict(state["budget"])
        self._progress = float(state["progress"])
        if self._items.learned_reward is not None:
            self._items.learned_reward.load_state_dict(state["learned_reward"])
        self._updates, self._waiting, self._items.unknown_bootstrap_count = (
            int(state[key]) for key in ("updates", "waiting", "blind")
        )


def explained_variance(batch: Batch, model: Model) -> Metrics:
    """Return the explained variance 1 - Var(G - V) / Var(G) of the values that targets were made with, if there are
    any."""
    if not model.names:
        return {}
    spread, unexplained = scalars_to_host(
        [batch.target.var(correction=0), (batch.target - batch.value).var(correction=0)]
    )
    return {"explained_variance": 1.0 - unexplained / spread if spread > 0 else 0.0}
