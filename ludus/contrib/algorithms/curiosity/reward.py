"""Intrinsic rewards as a learner receives them: normalised, and in a separate stream that does not end with an episode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.returns import gae
from ludus.algorithms.common.statistics import DiscountedReturns
from ludus.algorithms.rewards.base import NOTHING_AFTER, Floats, LearnedRows, LogProb
from ludus.contrib.algorithms.learned_rewards.fitting import Index, TrainableModule
from ludus.contrib.algorithms.learned_rewards.inputs import Observations, Steps, in_parts
from ludus.core import seeding
from ludus.core.errors import TrainingError
from ludus.core.types import Array, Metrics, SegmentEnd, State
from ludus.policies.bodies import body_config, make_body, orthogonal, own_stream
from ludus.replay.trajectories import Trajectories, select

if TYPE_CHECKING:
    from ludus.algorithms.common.base import LearnerContext
    from ludus.backend.device import Placement
    from ludus.contrib.algorithms.curiosity.config import Curiosity


def continuing_advantages(
    start: Index,
    tail: NDArray[np.int8],
    reward: Floats,
    value: Floats,
    after: Floats,
    *,
    beginning: float | None,
    gamma: float,
    lam: float,
) -> tuple[Floats, Floats]:
    """Return advantages and value targets float64[N] of a stream that continues after the end of an episode. (Burda et
    al. 2019, section 2.3.)

    After an episode that terminated comes a new one, which starts where episodes start, whatever was done before: so
    its last decision is followed by the value `beginning`, the mean over first observations.

    Args:
        start: int64[S + 1], where segments begin, and the end.
        tail: `SegmentEnd` int8[S].
        reward: float64[N].
        value: float64[N].
        after: float64[S], values of the bootstrap observations, from which truncated and cut episodes continue.
        beginning: Value after an episode that terminated; None: nothing follows it, as in `returns.gae`.
        gamma: Discount.
        lam: λ.
    """
    return gae(start, reward, value, _behind(tail, after, beginning), gamma, lam)


def _behind(tail: NDArray[np.int8], after: Floats, beginning: float | None) -> Floats:
    return np.where(tail == SegmentEnd.TERMINATED, 0.0 if beginning is None else beginning, after)


def fold_intrinsic_stream(
    reward: Floats, following: Floats, ended: NDArray[np.bool_], *, own: float, gamma: float
) -> Floats:
    """Return rewards float64[N] with which action values that are discounted by `gamma` and end with an episode learn a
    stream that is discounted by `own` and continues:

        reward + own × following − gamma × following where the episode continues

    since such values add gamma × the next value within an episode, and nothing after its end. With equal discounts that
    is the reward, and at an end own × following.

    Args:
        reward: float64[N].
        following: float64[N], value of the stream after each decision.
        ended: bool[N], whether the episode terminated.
        own: Discount of the stream.
        gamma: Discount of the action values.
    """
    return reward + (own - gamma * ~ended) * following


@dataclass(frozen=True, slots=True, eq=False)
class _StreamValues:
    """Estimates of a stream's critic: of rows float64[N], and of bootstrap observations float64[S]. ended bool[S]:
    where values that end with an episode count nothing after it."""

    value: Floats
    after: Floats
    ended: NDArray[np.bool_]


class IntrinsicStream:
    """The critic of intrinsic returns, which sees an observation and has no memory."""

    def __init__(
        self, config: Curiosity, context: LearnerContext, placement: Placement, observations: Observations
    ) -> None:
        self._config, self._observations = config, observations
        with own_stream(seeding.key(context.seed, "curiosity", "critic") % 2**63):
            body, width = make_body(body_config(config.network, config.hidden, config.activation), observations.shape)
            module = nn.Sequential(orthogonal(body), orthogonal(nn.Linear(width, 1), 1.0))
        self._critic = TrainableModule(module, placement, seed=context.seed, name="intrinsic critic")
        self._beginning = 0.0

    def advantages(self, rows: Trajectories, reward: Floats, *, begins: NDArray[np.bool_]) -> tuple[Floats, Metrics]:
        """Return advantages float64[N] by the present critic, then let it learn from the rows. begins: bool[S], whether
        a segment begins an episode."""
        advantage, metrics = self._learn(rows, reward, self._estimate_values(rows, begins))
        return advantage, metrics

    def folded_rewards(
        self, rows: Trajectories, reward: Floats, *, begins: NDArray[np.bool_], gamma: float
    ) -> tuple[Floats, Metrics]:
        """Return the rewards of `fold_intrinsic_stream` by the present critic, then let it learn from the rows."""
        worth, last = self._estimate_values(rows, begins), rows.start[1:] - 1
        following, ended = np.empty(rows.num_rows), np.zeros(rows.num_rows, np.bool_)
        following[:-1] = worth.value[1:]
        following[last], ended[last] = _behind(rows.tail, worth.after, self._begins), worth.ended
        _, metrics = self._learn(rows, reward, worth)
        return fold_intrinsic_stream(reward, following, ended, own=self._config.gamma, gamma=gamma), metrics

    def _estimate_values(self, rows: Trajectories, begins: NDArray[np.bool_]) -> _StreamValues:
        x = self._observations.to_tensor(rows.observation)
        value = in_parts(lambda part: self._values(x[part]), rows.num_rows)
        tails = self._observations.to_tensor(rows.bootstrap_observation)
        after = in_parts(lambda part: self._values(tails[part]), rows.num_segments)
        first = rows.start[:-1][begins if rows.added is None else begins & ~rows.added]
        if len(first):
            self._beginning = float(value[first].mean())
        ended = rows.tail == SegmentEnd.TERMINATED
        if self._observations.enumerated:  # nothing is known of an id of -1
            after = np.where(rows.bootstrap_observation < 0, self._beginning, after)
            ended = ended | (rows.bootstrap_observation < 0)
        if (nothing := rows.extras.get(NOTHING_AFTER)) is not None:
            after = np.where(nothing[rows.start[1:] - 1], self._beginning, after)
        return _StreamValues(value, after, ended)

    def _learn(self, rows: Trajectories, reward: Floats, worth: _StreamValues) -> tuple[Floats, Metrics]:
        """Return advantages; the critic learns from the rows that were played."""
        config, own = self._config, _played(rows)
        advantage, target = continuing_advantages(
            rows.start,
            rows.tail,
            reward,
            worth.value,
            worth.after,
            beginning=self._begins,
            gamma=config.gamma,
            lam=config.gae_lambda,
        )
        x = self._observations.to_tensor(rows.observation[own])
        there = torch.from_numpy(target[own]).float().to(x.device)
        losses = self._critic.learn(
            lambda part, _: [0.5 * (self._values(x[part]) - there[part]).square().mean()],
            len(x),
            epochs=config.critic_epochs,
            batch=config.batch,
            rate=config.critic_learning_rate,
            max_norm=config.max_gradient_norm,
        )
        return advantage, {} if losses is None else {"intrinsic_value_loss": losses[0]}

    @property
    def _begins(self) -> float | None:
        """Return the value after the end of an episode; None: nothing follows."""
        return None if self._config.episodic else self._beginning

    def _values(self, raw: Tensor) -> Tensor:
        out: Tensor = self._critic.module(self._observations.normalize(raw))
        return out[:, 0]

    def state_dict(self) -> State:
        return {"critic": self._critic.state_dict(), "beginning": self._beginning}

    def load_state_dict(self, state: State) -> None:
        self._critic.load_state_dict(state["critic"])
        self._beginning = float(state["beginning"])


class Novelty(Protocol):
    """Novelty of what follows a decision."""

    def errors(self, steps: Steps) -> Floats:
        """Return the novelty float64[N], not normalised; 0 where the next observation is unknown."""
        ...

    def learn(self, steps: Steps, which: Index) -> Metrics:
        """Learn from these of the steps, which reduces their novelty."""
        ...

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class IntrinsicReward:
    """Novelty of rows, divided by the running deviation of its discounted sums; then the networks learn from the rows."""

    def __init__(
        self,
        config: Curiosity,
        context: LearnerContext,
        placement: Placement,
        novelty: Callable[[Any, LearnerContext, Placement, Observations], Novelty],
        *,
        joined: float | None,
    ) -> None:
        """joined: Discount of the learner's action values, into which a second stream is folded; None: the learner has
        advantages."""
        self._config, self._seed, self._rollouts = config, context.seed, 0
        self._joined = joined
        self._observations = Observations(
            context.env,
            context.seats,
            what=type(config).__name__,
            normalise=config.normalise_observations,
            device=placement.torch,
        )
        self._novelty = novelty(config, context, placement, self._observations)
        self._returns = DiscountedReturns(config.gamma)
        self._stream = None
        if config.streams == "two":
            self._stream = IntrinsicStream(config, context, placement, self._observations)
        self.metrics: Metrics = {}

    def of(self, rows: Trajectories, game: Floats, log_prob: LogProb | None = None) -> LearnedRows:
        config, metrics = self._config, dict[str, float]()
        steps, own = Steps.of(rows, enumerated=self._observations.enumerated), _played(rows)
        self._observations.update_statistics(steps.after[steps.known & own])
        novelty = self._novelty.errors(steps)
        if not np.isfinite(novelty).all():
            raise TrainingError(f"{type(config).__name__}: a reward became NaN or infinite; look at the observations.")
        begins = self._returns.begins(rows)
        self._returns.add(rows if rows.added is None else select(rows, np.flatnonzero(~rows.added)), novelty[own])
        reward = novelty * self._returns.scale
        metrics |= {"game_reward": _mean(game[own]), "learned_reward": _mean(reward[own])}
        stream, advantage = self._stream, None
        more: Metrics = {}
        if stream is not None and self._joined is not None:
            reward, more = stream.folded_rewards(rows, reward, begins=begins, gamma=self._joined)
        elif stream is not None:
            advantage, more = stream.advantages(rows, reward, begins=begins)
        metrics |= more
        if advantage is None:
            result = LearnedRows(config.extrinsic * game + config.coefficient * reward)
        else:
            result = LearnedRows(game, config.extrinsic, config.coefficient * advantage)
        metrics |= self._novelty.learn(steps, self._learned_from(rows, steps))
        self._rollouts += 1
        self.metrics = metrics
        return result

    def _learned_from(self, rows: Trajectories, steps: Steps) -> Index:
        """Return the rows that were played and whose next observation is known, or a share of them."""
        index = np.flatnonzero(steps.known & _played(rows))
        if self._config.share == 1.0:
            return index
        rng = seeding.generator(self._seed, "curiosity", "share", self._rollouts)
        return np.sort(rng.permutation(index)[: max(1, round(self._config.share * len(index)))])

    def state_dict(self) -> State:
        return {
            "observations": self._observations.state_dict(),
            "novelty": self._novelty.state_dict(),
            "returns": self._returns.state_dict(),
            "rollouts": self._rollouts,
            **({} if self._stream is None else {"stream": self._stream.state_dict()}),
        }

    def load_state_dict(self, state: State) -> None:
        self._observations.load_state_dict(state["observations"])
        self._novelty.load_state_dict(state["novelty"])
        self._returns.load_state_dict(state["returns"])
        if self._stream is not None and "stream" in state:  # learners that replay had none in earlier versions
            self._stream.load_state_dict(state["stream"])
        self._rollouts = int(state["rollouts"])


def _played(rows: Trajectories) -> NDArray[np.bool_]:
    """Return bool[N], False for rows of added segments."""
    return np.ones(rows.num_rows, np.bool_) if rows.added is None else np.repeat(~rows.added, np.diff(rows.start))


def _mean(numbers: Array) -> float:
    return float(numbers.mean()) if len(numbers) else 0.0
