"""Options that families of algorithms share: how collected trajectories are processed, how numbers change over a training task, and how
fast trajectories are replayed.

Replay is paced in one of two ways. `updates_per_decision` counts updates per collected decision. `samples_per_insert`
counts, in items of the table, how often each is sampled on average: Reverb's rate limiter
(`ludus.replay.rate_limiter`), with a window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ludus.algorithms.common.base import REPLAY, Algorithm, CollectConfig, Learner, LearnerContext, Warmup, updates_of
from ludus.algorithms.rewards.registry import LearnedRewardChoice
from ludus.core.config import Config, refuse_unread
from ludus.core.errors import DataError, ScenarioError
from ludus.core.parts import dump_part, resolve_name
from ludus.core.types import EnvSpec, SegmentEnd, State, Weights
from ludus.core.user_code import qualified_name
from ludus.replay.base import Sizes, TableSpec
from ludus.replay.processing import PROCESSING, parse_processing
from ludus.replay.rate_limiter import RateLimiter, TableFill
from ludus.replay.selectors import RESERVOIR, SELECTORS, SelectorChoice
from ludus.replay.trajectories import Trajectories


class Schedule(Config):
    """A number that goes from `start` to `end` over the first `over` of the training budget, and then stays.

    Progress is the learner's own count of collected episodes or decisions (whichever `response` limits; of both, the
    unit of its `CollectConfig`) over `LearnerContext.total`; with no total the value stays at `start`. In a scenario a
    plain number is a constant.

    Attributes:
        start: Value at the beginning.
        end: Value at the end; None: constant.
        shape: Interpolation: linear, exponential (both ends positive), cosine, or step (`start` until `over`, then
            `end`).
        over: Share of the budget until `end` is reached, in (0, 1].
    """

    start: float = Field(ge=0, allow_inf_nan=False)
    end: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    shape: Literal["linear", "exponential", "cosine", "step"] = "linear"
    over: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _check(self) -> Schedule:
        if self.shape == "exponential" and self.end is not None and min(self.start, self.end) <= 0:
            raise ValueError(
                "an exponential schedule needs a positive start and end; use shape=linear to reach 0 "
                f"(given: {self.start:g} to {self.end:g})"
            )
        refuse_unread(self, {name: (self.end is not None, "an end") for name in ("shape", "over")})
        return self

    @property
    def largest(self) -> float:
        """Return the largest value."""
        return self.start if self.end is None else max(self.start, self.end)

    def at(self, progress: float) -> float:
        """Return the value at `progress` of the budget, in [0, 1]."""
        if self.end is None:
            return self.start
        x = min(max(progress / self.over, 0.0), 1.0)
        if self.shape == "step":
            return self.end if x >= 1.0 else self.start
        if self.shape == "exponential":
            return float(self.start * (self.end / self.start) ** x)
        if self.shape == "cosine":
            x = 0.5 * (1.0 - math.cos(math.pi * x))
        return self.start + (self.end - self.start) * x


def _constant(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"start": value}
    if isinstance(value, (Mapping, Schedule)):
        return value
    raise ValueError("a number was expected, or a schedule such as {start: 0.001, end: 0}")


Scheduled = Annotated[Schedule, BeforeValidator(_constant)]
"""A field that takes a number or a `Schedule`."""


# --------------------------------------------------------------------------------------------------------------------
# How much of its training budget a learner has seen: what its schedules follow.


@dataclass(slots=True)
class Budget:
    """Progress of a learner: collected `unit`s over the context's `total`. Episodes are those in which the learner had
    a decision, in one seat or several."""

    unit: str
    total: int | None
    collected: int = 0

    @staticmethod
    def of(collect: CollectConfig, context: LearnerContext) -> Budget:
        return Budget(context.unit or collect.unit, context.total)

    def add(self, trajectories: Trajectories) -> None:
        """Count a rollout: its decisions, or the episodes that ended in it."""
        ended = trajectories.tail != SegmentEnd.CUT
        if trajectories.added is not None:
            ended &= ~trajectories.added
        self.count(trajectories.num_decisions, len(np.unique(trajectories.episode[ended])))

    def count(self, rows: int, episodes: int) -> None:
        """Count decisions and episodes that ended."""
        self.collected += rows if self.unit == "decisions" else episodes

    @property
    def progress(self) -> float:
        """Return the progress in [0, 1]; 0 where the total is unknown."""
        return self.progress_after(0)

    def progress_after(self, episodes: int) -> float:
        """Return what `progress` will be after this many episodes more, if they are counted."""
        return min(1.0, (self.collected + episodes) / self.total) if self.total else 0.0

    def state_dict(self) -> State:
        return {"collected": self.collected}

    def load_state_dict(self, state: State) -> None:
        self.collected = int(state["collected"])


ProcessingList = Annotated[
    tuple[Any, ...],
    BeforeValidator(parse_processing),
    PlainSerializer(lambda chain: [dump_part(part, PROCESSING) for part in chain]),
]


class CollectOptions(Config):
    """Base of algorithms whose trajectories may be processed by the workers, and whose rewards may be learned.

    A subclass that can learn from added rows (relabelled ones, say) sets `takes_added`; one whose learner uses learned
    rewards sets `takes_learned_rewards`.

    Attributes:
        learner_class: `module:Class` of the learner, constructed with (algorithm, context, start). It is a string, so
            that a configuration can be read without loading torch.
        processing: Parts that process trajectories where they are collected, in order: names of
            `ludus.replay.processing.PROCESSING` (her, reward_clip, reward_scale) or `module:Class`, with options.
        learned_reward: A network that computes rewards, in addition to the game's or instead of them: a name of
            `ludus.algorithms.rewards.registry.LEARNED_REWARDS` (rnd, icm, gail, airl) or `module:Class`, with options.
    """

    learner_class: ClassVar[str] = ""
    takes_added: ClassVar[bool] = False
    takes_learned_rewards: ClassVar[bool] = False

    processing: ProcessingList = ()
    learned_reward: LearnedRewardChoice = None

    def learner(self, context: LearnerContext, start: Weights | None = None) -> Learner:
        """Return a new learner, of `learner_class`.

        Args:
            context: Environment, seats, seed, budget and device.
            start: Weights of the same spec to start from; None: fresh ones from the context's seed.

        Raises:
            NotImplementedError: A custom algorithm has neither `learner_class` nor its own `learner`.
        """
        if not self.learner_class:
            raise NotImplementedError(
                f"{type(self).__name__} must say what learns with it: learner_class = 'module:Class', or a method `learner`."
            )
        learner: Learner = resolve_name("learner", self.learner_class, {})(self, context, start)
        return learner

    @model_validator(mode="after")
    def _check_learned_reward(self) -> Self:
        learned = self.learned_reward
        if learned is not None and not self.takes_learned_rewards:
            raise ValueError(
                f"{qualified_name(self)} learns from the game's rewards only; leave learned_reward out, or use an algorithm such "
                f"as ppo, a2c, "
                "dqn or sac"
            )
        gamma = (
            getattr(self, "gamma", None) if "gamma" in self.model_fields_set else None
        )  # else the environment says it
        if learned is not None and learned.discounted and gamma == 1.0:
            raise ValueError(
                f"learned_reward {qualified_name(learned)} sums the rewards of an absorbing state without end (absorbing, say), "
                "which gamma 1 does not bound; give a smaller gamma, such as 0.99, or leave that out"
            )
        return self


def check_learned_reward(algorithm: Algorithm, env: EnvSpec, seats: tuple[int, ...]) -> None:
    """Raise ScenarioError or ConfigError for a learned reward that does not fit the environment."""
    learned = getattr(algorithm, "learned_reward", None)
    if learned is not None:
        learned.check(env, seats)


def check_processing(algorithm: Algorithm, env: EnvSpec, seats: tuple[int, ...]) -> None:
    """Raise ScenarioError for processing that does not fit the environment, what is collected, or the algorithm."""
    if not (collect := algorithm.collect()).processing:
        return
    name = qualified_name(algorithm)
    for each in collect.processing:
        each.check(env, seats)
        if each.whole_episodes and collect.unit != "episodes":
            raise ScenarioError(
                f"{qualified_name(each)} processes whole episodes, and {name} collects decisions, in fragments. Set "
                f"rollout_unit=episodes (of "
                "algorithms that learn once: batch_unit)."
            )
        if each.adds and not getattr(algorithm, "takes_added", False):
            raise ScenarioError(
                f"{qualified_name(each)} adds decisions that no policy took, and {name} learns from real ones only. Use an algorithm "
                "that replays single decisions, such as dqn, sac or td3."
            )


_WINDOW = ("min_diff", "max_diff", "error_buffer")

TAKEN, BEST = "taken", "best"
"""Extras of policies that know what actions are worth: the one that they took, and the best one."""
InitialPriority = Literal["largest", "error"]
NO_PRIORITIES = "initial_priority=error is what rows are drawn by at first, and at priority_exponent=0 all are drawn alike; give 0.6, say"


class ReplayOptions(CollectOptions):
    """Base of algorithms that replay from a table. A subclass has `capacity`, `batch` and `updates_per_decision`, and
    returns its table from `replay_table`.

    Attributes:
        samples_per_insert: How often an item is sampled on average; None: `updates_per_decision` paces replay. With it,
            D = samples_per_insert × inserted − sampled stays in a window once the table holds its least size, all in
            items.
        min_diff: Lower bound of D for updates; None: samples_per_insert × least size, so that no sample is drawn in
            advance.
        max_diff: Upper bound of D for inserts; None: infinite.
        error_buffer: Both bounds at once: samples_per_insert × least size, minus and plus this.
        sampler: How items are sampled: a name of `ludus.replay.selectors.SELECTORS` (uniform, prioritised, lifo,
            less_used_newest …) or `module:Class`; None: uniformly, or by priority if `priority_exponent` > 0.
        remover: Which item leaves a full table: a name as for `sampler`, or "reservoir"; None: the oldest.
        priority_exponent: Items are sampled ∝ error^priority_exponent (Schaul et al. 2016); 0: uniformly. 0.5 to 0.9 is
            usual.
        importance: Exponent of the weights (least chance of the batch / chance)^importance that make up for sampling by
            priority; from 0.4 rising to 1, where updates are unbiased.
        publish_every: Rounds of collecting and learning between two publications of the weights; a checkpoint
            publishes, too.
    """

    samples_per_insert: float | None = Field(default=None, gt=0)
    min_diff: float | None = None
    max_diff: float | None = None
    error_buffer: float | None = Field(default=None, gt=0)
    sampler: str | None = None
    remover: str | None = None
    priority_exponent: float = Field(default=0.0, ge=0, le=1)
    importance: Scheduled = Schedule(start=0.4, end=1.0)
    publish_every: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _check_replayed_reward(self) -> Self:
        if self.learned_reward is not None and self.learned_reward.on_policy:
            raise ValueError(
                f"learned_reward {qualified_name(self.learned_reward)} judges what the newest policy does, and "
                f"{qualified_name(self)} learns from "
                "older rows too; use an on-policy algorithm, such as ppo"
            )
        return self

    @model_validator(mode="after")
    def _check_pace(self) -> Self:
        bounds = [name for name in _WINDOW if getattr(self, name) is not None]
        if self.samples_per_insert is None and bounds:
            raise ValueError(
                f"{bounds[0]} bounds samples_per_insert × inserted − sampled; give samples_per_insert, too"
            )
        for what, name in (("sampler", self.sampler), ("remover", self.remover)):
            if name is not None and (what, name) != ("remover", RESERVOIR):
                resolve_name(what, name, SELECTORS, expected=(("pick",),))
        self._check_batch()
        try:
            RateLimiter.of(self.limiter)
        except DataError as error:
            raise ValueError(str(error)) from None
        self._check_priorities()
        return self

    def _check_batch(self) -> None:
        own: Any = self
        different = (
            self.sampler is not None
            and not resolve_name("sampler", self.sampler, SELECTORS, expected=(("pick",),)).repeats
        )
        if different and own.batch > own.capacity:
            raise ValueError(
                f"sampler={self.sampler} gives batches of different items, and the batch {own.batch} is more than the capacity "
                f"{own.capacity}"
            )

    def _check_priorities(self) -> None:
        if (largest := self.importance.largest) > 1.0:
            raise ValueError(
                f"importance is an exponent from 0 to 1; its start and end must be at most 1 (given: {largest:g})"
            )
        if self.priority_exponent and not self.prioritised:
            raise ValueError(
                f"priority_exponent is {self.priority_exponent:g}, and sampler={self.sampler} goes by no priorities; set "
                "priority_exponent=0, or sampler=prioritised"
            )
        if not self.priority_exponent and "prioritised" in (self.sampler, self.remover):
            raise ValueError(
                "prioritised draws in proportion to priority ** priority_exponent, which at 0 is uniform; give priority_exponent, "
                "0.5 say"
            )

    @property
    def prioritised(self) -> bool:
        """Return whether sampling or removal uses items' errors."""
        return goes_by_priority("prioritised" if self.priority_exponent else "ring", self.sampler, self.remover)

    @property
    def warm_up_option(self) -> str:
        """Return the name of the option that sets the least size of the table before the first update."""
        return "min_size"

    @property
    def limiter(self) -> Mapping[str, float]:
        """Return the rate limiter's options, as in `TableSpec.limiter`, where items pace replay; else {}."""
        ratio, least = self.samples_per_insert, getattr(self, self.warm_up_option)
        if ratio is None:
            return {}
        window = {name: float(value) for name in _WINDOW if (value := getattr(self, name)) is not None}
        if "error_buffer" not in window:
            window.setdefault("min_diff", ratio * least)
        return {"samples_per_insert": ratio, "min_size": least, **window}

    def replay_table(self, *, capacity: int, min_size: int | None = None) -> TableSpec:
        """Return the spec of the replay table.

        Args:
            capacity: Most items.
            min_size: Items before a batch is sampled, where decisions pace replay; None: one.
        """
        limiter = self.limiter or ({} if min_size is None else {"min_size": min_size})
        kind = "prioritised" if self.priority_exponent else "ring"
        return TableSpec(
            REPLAY,
            kind,
            capacity=capacity,
            limiter=limiter,
            sampler=self.sampler,
            remover=self.remover,
            priority_exponent=self.priority_exponent or 1.0,
        )

    def replay_sizes(self, *, insert: int | None, batch: int) -> Mapping[str, Sizes]:
        """Return the sizes for deadlock detection.

        A table that holds inserts back receives them in pieces, of one item where there is room for no more.

        Args:
            insert: Items of a rollout; None: unknown.
            batch: Items of a batch.
        """
        if self.limiter and RateLimiter.of(self.limiter).max_diff < float("inf"):
            return {REPLAY: Sizes(insert=1, batch=batch)}
        return {} if insert is None else {REPLAY: Sizes(insert=insert, batch=batch)}

    def due(self, *, decisions: int, items: int, updates: int) -> int:
        """Return the number of updates that are due now.

        Args:
            decisions: Decisions collected so far.
            items: Items inserted so far.
            updates: Updates done so far.
        """
        own: Any = self
        if self.samples_per_insert is None:
            return updates_of(decisions - own.warm_up().decisions, own.updates_per_decision) - updates
        return _limiter(tuple(self.limiter.items())).owed(own.batch, TableFill(items, updates * own.batch, items))

    def warm_up(self) -> Warmup:
        """Return the warm-up (`HasWarmup`); where items pace replay, in items, of which there are no more than
        decisions."""
        own: Any = self
        option = self.warm_up_option
        least = int(getattr(self, option))
        if self.samples_per_insert is None:
            return Warmup(option, least, own.updates_per_decision)
        first = _limiter(tuple(self.limiter.items())).first_sample(own.batch)
        return Warmup(option, least, self.samples_per_insert / own.batch, batch=own.batch, first=max(0, first - least))


@lru_cache(maxsize=64)
def _limiter(options: tuple[tuple[str, float], ...]) -> RateLimiter:
    return RateLimiter.of(dict(options))


@lru_cache(maxsize=64)
def goes_by_priority(kind: str, sampler: str | None, remover: str | None) -> bool:
    """Return whether sampling from such a table, or removal, uses priorities."""
    return SelectorChoice.of(TableSpec(REPLAY, kind, sampler=sampler, remover=remover)).by_priority
