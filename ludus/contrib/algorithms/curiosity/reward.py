"""Intrinsic rewards as a learner gets them: normalised, and in a stream of their own that does not end with an episode."""

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
from ludus.contrib.algorithms.learned_rewards.fitting import Fitted, Index
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
    """Advantages and value targets float64[N] of a stream that goes on behind the end of an episode. (Burda et al. 2019, section 2.3.)

    After an episode that terminated comes a new one, which begins wherever episodes begin, whatever was done before: so what follows its
    last decision has the value `beginning`, the mean over first observations. after float64[S]: values of the bootstrap observations, from
    which episodes that were truncated or cut go on. None: nothing comes after an episode, as in `returns.gae`.
    """
    return gae(start, reward, value, _behind(tail, after, beginning), gamma, lam)


def _behind(tail: NDArray[np.int8], after: Floats, beginning: float | None) -> Floats:
    return np.where(tail == SegmentEnd.TERMINATED, 0.0 if beginning is None else beginning, after)


def within_one_stream(
    reward: Floats, following: Floats, ended: NDArray[np.bool_], *, own: float, gamma: float
) -> Floats:
    """Rewards float64[N] from which action values that are discounted by `gamma`, and end with an episode, come to hold a stream that is
    discounted by `own` and goes on:

        reward + own × following − gamma × following where the episode goes on

    since what such values add for what comes next is gamma × its value there, and nothing behind an end. With equal discounts that is the
    reward, and at an end own × following. following float64[N]: what that stream is worth after each decision. ended bool[N]."""
    return reward + (own - gamma * ~ended) * following


@dataclass(frozen=True, slots=True, eq=False)
class _Worth:
    """What a stream's critic says of rows float64[N], and of bootstrap observations float64[S]. ended bool[S]: behind which values that end
    with an episode count nothing."""

    value: Floats
    after: Floats
    ended: NDArray[np.bool_]


class IntrinsicStream:
    """The critic of intrinsic returns, which sees an observation and remembers nothing."""

    def __init__(
        self, config: Curiosity, context: LearnerContext, placement: Placement, observations: Observations
    ) -> None:
        self._config, self._observations = config, observations
        with own_stream(seeding.key(context.seed, "curiosity", "critic") % 2**63):
            body, width = make_body(body_config(config.network, config.hidden, config.activation), observations.shape)
            module = nn.Sequential(orthogonal(body), orthogonal(nn.Linear(width, 1), 1.0))
        self._critic = Fitted(module, placement, seed=context.seed, name="intrinsic critic")
        self._beginning = 0.0

    def advantages(self, rows: Trajectories, reward: Floats, *, begins: NDArray[np.bool_]) -> tuple[Floats, Metrics]:
        """float64[N], with the critic as it is before it learns from them. begins: bool[S], which segments begin an episode."""
        advantage, metrics = self._learned(rows, reward, self._worth(rows, begins))
        return advantage, metrics

    def joined(
        self, rows: Trajectories, reward: Floats, *, begins: NDArray[np.bool_], gamma: float
    ) -> tuple[Floats, Metrics]:
        """As `within_one_stream`, of what it says before it learns; likewise."""
        worth, last = self._worth(rows, begins), rows.start[1:] - 1
        following, ended = np.empty(rows.num_rows), np.zeros(rows.num_rows, np.bool_)
        following[:-1] = worth.value[1:]
        following[last], ended[last] = _behind(rows.tail, worth.after, self._begins), worth.ended
        _, metrics = self._learned(rows, reward, worth)
        return within_one_stream(reward, following, ended, own=self._config.gamma, gamma=gamma), metrics

    def _worth(self, rows: Trajectories, begins: NDArray[np.bool_]) -> _Worth:
        x = self._observations.placed(rows.observation)
        value = in_parts(lambda part: self._values(x[part]), rows.num_rows)
        tails = self._observations.placed(rows.bootstrap_observation)
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
        return _Worth(value, after, ended)

    def _learned(self, rows: Trajectories, reward: Floats, worth: _Worth) -> tuple[Floats, Metrics]:
        """Advantages; the critic learns from the rows that were played."""
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
        x = self._observations.placed(rows.observation[own])
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
        """What comes behind the end of an episode is worth; None: nothing comes."""
        return None if self._config.episodic else self._beginning

    def _values(self, raw: Tensor) -> Tensor:
        out: Tensor = self._critic.module(self._observations.shown(raw))
        return out[:, 0]

    def state_dict(self) -> State:
        return {"critic": self._critic.state_dict(), "beginning": self._beginning}

    def load_state_dict(self, state: State) -> None:
        self._critic.load_state_dict(state["critic"])
        self._beginning = float(state["beginning"])


class Novelty(Protocol):
    """How new what comes after a decision is."""

    def errors(self, steps: Steps) -> Floats:
        """float64[N], as they are; 0 where nothing is known."""
        ...

    def learn(self, steps: Steps, which: Index) -> Metrics:
        """From these of the steps, which then are less new."""
        ...

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class IntrinsicReward:
    """Of rows: their novelty, over the running deviation of its discounted sums; then the networks learn from them."""

    def __init__(
        self,
        config: Curiosity,
        context: LearnerContext,
        placement: Placement,
        novelty: Callable[[Any, LearnerContext, Placement, Observations], Novelty],
        *,
        joined: float | None,
    ) -> None:
        """joined: the discount of the learner's action values, into which a second stream goes; None: it has advantages."""
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
        """As `LearnedReward.of`."""
        config, metrics = self._config, dict[str, float]()
        steps, own = Steps.of(rows, enumerated=self._observations.enumerated), _played(rows)
        self._observations.see(steps.after[steps.known & own])
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
            reward, more = stream.joined(rows, reward, begins=begins, gamma=self._joined)
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
        """Rows that were played and of which something is known, or a share of them."""
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
    """bool[N]: not those of added segments."""
    return np.ones(rows.num_rows, np.bool_) if rows.added is None else np.repeat(~rows.added, np.diff(rows.start))


def _mean(numbers: Array) -> float:
    return float(numbers.mean()) if len(numbers) else 0.0
