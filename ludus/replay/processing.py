"""Processing of trajectories where they are made: in the worker, once a request is played, before anything is stored or sent.

    episodes --> finished segments --> processing, one after the other --> learner's items --> tables

A processing is pure: what it answers depends on the rows, on its options, and on a random stream of the request's shard. So results do not
depend on workers or runtimes, and a resumed run equals one that was not killed. Payoffs, returns and counts are those of the real rows;
only what is learned from changes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ludus.core.config import Config
from ludus.core.errors import ConfigError, LudusError, ScenarioError
from ludus.core.parts import build_part, resolve_name
from ludus.core.types import Array, EnvSpec, SegmentEnd
from ludus.core.user_code import describe_error, qualified_name, short_repr
from ludus.replay.base import Processed, ProcessesTrajectories
from ludus.replay.trajectories import OF_ROWS, Trajectories, join

PROCESSING: Mapping[str, str] = {
    "her": "ludus.replay.processing:HER",
    "reward_clip": "ludus.replay.processing:RewardClip",
    "reward_scale": "ludus.replay.processing:RewardScale",
}
"""By name. Of one's own: `module:Class`."""


class Processing(Config):
    """Base of processings: derive a class whose fields are its options.

    Attributes:
        adds: Whether it returns further rows.
        whole_episodes: Whether it needs whole episodes, and not fragments of them.
    """

    adds: ClassVar[bool] = False
    whole_episodes: ClassVar[bool] = False

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raise ScenarioError if it cannot process the decisions of the players `seats` in this environment."""

    @abstractmethod
    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        """Return what changes in some trajectories.

        Args:
            rows: At least one segment, in read-only arrays, with what earlier processings of the list changed and added
                (`Trajectories.added`).
            env: The environment.
            rng: Random stream of this request and shard only.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what it does, in a method `process`.")


def parse_processing(value: Any) -> tuple[Processing, ...]:
    """Return processings from a value: a name or `module:Class`, a mapping with `kind` and options, an object, or a list of these.

    Raises:
        ConfigError: For a value that is none.
        UnknownName: For an unknown name.
    """
    parts = []
    for item in value if isinstance(value, list | tuple) else () if value is None else (value,):
        part = build_part("processing", item, PROCESSING, expected=(Processing,))
        if not isinstance(part, Processing):
            raise ConfigError(
                f"{qualified_name(part)!r} is no processing: derive it from ludus.replay.processing.Processing, with its options as fields."
            )
        parts.append(part)
    return tuple(parts)


def processed(
    rows: Trajectories,
    chain: Sequence[ProcessesTrajectories],
    *,
    env: EnvSpec,
    stream: Callable[[int], np.random.Generator],
) -> Trajectories:
    """Return the rows after all of `chain`. Rewards, extras and further rows may change, nothing else.

    Args:
        rows: Trajectories of one request and shard.
        chain: Processings, in order.
        env: The environment.
        stream: Gives the random stream of each place in the chain.

    Raises:
        ScenarioError: For a result that does not fit.
    """
    if any(each.adds for each in chain):
        rows = replace(rows, added=np.zeros(rows.num_segments, np.bool_))
    for place, each in enumerate(chain):
        try:
            answer = each.process(_read_only(rows), env=env, rng=stream(place))
        except LudusError:
            raise
        except Exception as error:
            raise ScenarioError(f"processing {qualified_name(each)} raised {describe_error(error)}.") from error
        if wrong := why_not(each, rows, answer):
            raise ScenarioError(f"processing {qualified_name(each)} answered {wrong}.")
        rows = _with(rows, answer)
    return rows


def _with(rows: Trajectories, answer: Processed) -> Trajectories:
    changes: dict[str, Any] = {}
    if answer.reward is not None:
        changes["reward"] = np.array(answer.reward, np.float32)
    if answer.extras:
        changes["extras"] = {**rows.extras, **{name: np.array(array) for name, array in answer.extras.items()}}
    rows = replace(rows, **changes)
    if answer.more is None:
        return rows
    return join([rows, replace(answer.more, added=np.ones(answer.more.num_segments, np.bool_))])


def _read_only(rows: Trajectories) -> Trajectories:
    def view(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            value = value.view()
            value.flags.writeable = False
        return value

    columns = {f.name: view(getattr(rows, f.name)) for f in fields(Trajectories)}
    return Trajectories(**{**columns, "extras": {name: view(array) for name, array in rows.extras.items()}})


# --------------------------------------------------------------------------------------------------------------------
# What was answered.


def why_not(each: ProcessesTrajectories, rows: Trajectories, answer: Any) -> str:
    """Return why a result cannot be used, as the end of a sentence; "" if it can."""
    if not isinstance(answer, Processed):
        return f"{short_repr(answer)}, a {type(answer).__name__}; expected a ludus.replay.processing.Processed"
    columns = {**answer.extras} if answer.reward is None else {"reward": answer.reward, **answer.extras}
    for name, array in columns.items():
        kinds = "f" if name == "reward" else "biuf"
        if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
            description = f"of {array.dtype}" if isinstance(array, np.ndarray) else f"as {short_repr(array)}"
            return f"{name!r} {description}; expected an array of {'floats' if name == 'reward' else 'numbers'}"
        if array.shape[:1] != (rows.num_rows,) or (name == "reward" and array.ndim != 1):
            return f"{name!r} of shape {list(array.shape)}; there are {rows.num_rows} rows"
    if answer.more is None:
        return ""
    if not each.adds:
        return "rows beside the given ones, and its `adds` is False; set adds: ClassVar[bool] = True"
    kinds_then = {**rows.extras, **answer.extras}
    return _why_not_more(rows, kinds_then, answer.more)


def _why_not_more(rows: Trajectories, extras: Mapping[str, Array], more: Any) -> str:
    if not isinstance(more, Trajectories):
        return f"{short_repr(more)} as `more`; expected Trajectories"
    start, segments = np.asarray(more.start), more.num_segments
    if start[0] != 0 or (np.diff(start) < 1).any():
        return f"segments in `more` that start at {short_repr(start)}; expected 0 first, and at least one row in each"
    if more.extras.keys() != extras.keys():
        return f"extras {sorted(more.extras)} in `more`; the rows have {sorted(extras)}"
    if more.policy != rows.policy:
        return f"rows of the policy {more.policy!r} in `more`; expected {rows.policy!r}"
    pairs = {name: (extras[name], more.extras[name], int(start[-1])) for name in extras}
    for f in fields(Trajectories):
        if f.name not in ("start", "policy", "extras", "added"):
            length = int(start[-1]) if f.name in OF_ROWS else segments
            pairs[f.name] = getattr(rows, f.name), getattr(more, f.name), length
    for name, (expected, array, length) in pairs.items():
        if wrong := _why_not_column(expected, array, length):
            return f"{name!r} in `more` {wrong}"
    known = np.unique(np.stack([rows.seat, rows.agent]), axis=1).T.tolist()
    if not all(pair in known for pair in np.unique(np.stack([more.seat, more.agent]), axis=1).T.tolist()):
        return "segments in `more` of agents or seats that the rows have none of"
    return ""


def _why_not_column(expected: Any, array: Any, length: int) -> str:
    if expected is None or array is None:
        return (
            ""
            if expected is None and array is None
            else f"as {short_repr(array)}, and in the rows {short_repr(expected)}"
        )
    if (
        not isinstance(array, np.ndarray)
        or array.dtype != expected.dtype
        or array.shape != (length, *expected.shape[1:])
    ):
        description = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else short_repr(array)
        return f"as {description}; expected {expected.dtype}{[length, *expected.shape[1:]]}"
    return ""


# --------------------------------------------------------------------------------------------------------------------
# Rewards.


class RewardScale(Processing):
    """Rewards times a factor, for the learner; payoffs stay as they are."""

    factor: float = Field(gt=0, allow_inf_nan=False)

    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        """See `Processing`."""
        return Processed(reward=rows.reward * np.float32(self.factor))


class RewardClip(Processing):
    """Rewards clipped to an interval, as DQN's on Atari (Mnih et al. 2015); payoffs stay as they are."""

    low: float = -1.0
    high: float = 1.0

    @model_validator(mode="after")
    def _check(self) -> RewardClip:
        if not self.low < self.high:
            raise ValueError(f"low {self.low:g} must be below high {self.high:g}")
        return self

    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        """See `Processing`."""
        return Processed(reward=np.clip(rows.reward, np.float32(self.low), np.float32(self.high)))


# --------------------------------------------------------------------------------------------------------------------
# Hindsight.


class HER(Processing):
    """Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495): each decision is also learned from as if the outcome of a
    later one of its episode had been the goal.

    Attributes:
        goal: [first, last + 1] of the entries of an observation that hold the goal.
        achieved: [first, last + 1] of the entries that hold what is achieved.
        copies: Relabelled rows for each decision.
        strategy: The later decision is any of the episode ("future"), or its last ("final").
        tolerance: A goal is reached within this distance of each entry.
        rewards: Reward where the goal is not reached, and where it is.
        reward: Instead, `module:function` of (achieved, goal) float32[n, g] that returns float[n].
        ends: Whether an episode ends where its goal is reached; another end of it stays one.
    """

    adds: ClassVar[bool] = True
    whole_episodes: ClassVar[bool] = True

    goal: tuple[int, int]
    achieved: tuple[int, int]
    copies: int = Field(default=4, ge=1)
    strategy: Literal["future", "final"] = "future"
    tolerance: float = Field(default=0.0, ge=0)
    rewards: tuple[float, float] = (-1.0, 0.0)
    reward: str = ""
    ends: bool = True

    @model_validator(mode="after")
    def _check_places(self) -> HER:
        widths = [last - first for first, last in (self.goal, self.achieved)]
        if widths[0] != widths[1] or widths[0] < 1 or min(*self.goal, *self.achieved) < 0:
            raise ValueError(
                f"goal is {list(self.goal)} and achieved {list(self.achieved)}: [first, last + 1] of as many entries of an observation"
            )
        if self.reward:
            resolve_name("reward of hindsight", self.reward, {}, expected=(), functions=True)
        return self

    def check(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        """Raise ScenarioError where observations are not vectors that are long enough."""
        last = max(self.goal[1], self.achieved[1])
        for agent in (agent for seat in seats for agent in env.agents_of(seat)):
            shape = tuple(agent.observation.shape or ())
            if env.enumeration is not None or len(shape) != 1 or shape[0] < last:
                shown_as = (
                    "ids of states (env.tree=off shows vectors)" if env.enumeration is not None else f"{list(shape)}"
                )
                raise ScenarioError(
                    f"HER finds goals in entries up to {last} of an observation, and in {env.id} {agent.name} sees {shown_as}. Give places "
                    "that there are, or wrap the environment so that it shows vectors."
                )

    def process(self, rows: Trajectories, *, env: EnvSpec, rng: np.random.Generator) -> Processed:
        """See `Processing`."""
        if rows.memory0 is not None:
            raise ScenarioError(
                "HER relabels decisions one by one, and the policy remembers those before; use one without memory."
            )
        length, start = np.diff(rows.start), rows.start
        segment = np.repeat(np.arange(rows.num_segments), length)
        own = np.flatnonzero(np.ones(len(segment), np.bool_) if rows.added is None else ~rows.added[segment])
        row = np.repeat(own, self.copies)
        last = start[segment[row] + 1] - 1
        later = last if self.strategy == "final" else row + (rng.random(len(row)) * (last + 1 - row)).astype(np.int64)
        after = following(rows)
        achieved, wanted = slice(*self.achieved), slice(*self.goal)
        goal = after[later, achieved]
        came = after[row, achieved]
        reached = self._reached(came, goal)
        failed = (rows.tail[segment[row]] == SegmentEnd.TERMINATED) & (row == last)
        failed &= ~self._reached(came, rows.observation[row, wanted])
        over = failed | (reached & self.ends)
        return Processed(more=self._relabelled(rows, row, segment[row], goal, self._paid(came, goal, reached), over))

    def _reached(self, came: Array, goal: Array) -> NDArray[np.bool_]:
        apart: Array = np.abs(came.astype(np.float64) - goal)  # unsigned numbers would wrap
        near: NDArray[np.bool_] = np.all(apart <= self.tolerance, axis=1)
        return near

    def _paid(self, came: Array, goal: Array, reached: NDArray[np.bool_]) -> Array:
        if self.reward:
            pay = resolve_name("reward of hindsight", self.reward, {}, expected=(), functions=True)
            answer = np.asarray(pay(came.astype(np.float32), goal.astype(np.float32)), np.float32)
            if answer.shape != (len(came),):
                raise ScenarioError(
                    f"{self.reward} answered {list(answer.shape)} for {len(came)} rows; expected one reward each."
                )
            return answer
        missed, hit = self.rewards
        paid = np.where(reached, hit, missed)
        return paid.astype(np.float32)

    def _relabelled(
        self,
        rows: Trajectories,
        row: NDArray[np.int64],
        segment: NDArray[np.int64],
        goal: Array,
        reward: Array,
        over: NDArray[np.bool_],
    ) -> Trajectories:
        """Return each row as a segment of its own, with another goal."""
        ends = row == rows.start[segment + 1] - 1

        def behind(column: Array | None, bootstrap: Array | None) -> Array | None:
            """Return what follows each row."""
            if column is None or bootstrap is None:
                return None
            following = column[np.where(ends, row, row + 1)]
            following[ends] = bootstrap[segment[ends]]
            return following

        now, then = rows.observation[row], behind(rows.observation, rows.bootstrap_observation)
        assert then is not None
        now[:, slice(*self.goal)] = goal
        then[:, slice(*self.goal)] = goal
        return replace(
            rows,
            start=np.arange(len(row) + 1),
            observation=now,
            bootstrap_observation=then,
            action=rows.action[row],
            logp=rows.logp[row],
            reward=reward,
            mask=None if rows.mask is None else rows.mask[row],
            bootstrap_mask=behind(rows.mask, rows.bootstrap_mask),
            t=rows.t[row],
            dt=None if rows.dt is None else rows.dt[row],
            tail=np.where(over, SegmentEnd.TERMINATED, SegmentEnd.CUT).astype(np.int8),
            agent=rows.agent[segment],
            seat=rows.seat[segment],
            episode=rows.episode[segment],
            version_lo=rows.version_lo[segment],
            version_hi=rows.version_hi[segment],
            state=None if rows.state is None else rows.state[row],
            bootstrap_state=behind(rows.state, rows.bootstrap_state),
            bootstrap_value=None if rows.bootstrap_value is None else rows.bootstrap_value[segment],
            extras={name: column[row] for name, column in rows.extras.items()},
        )


def following(rows: Trajectories) -> Array:
    """Return the next observation of each row, [N, …]: the next row's, or the segment's bootstrap observation."""
    after = np.empty_like(rows.observation)
    after[:-1] = rows.observation[1:]
    after[rows.start[1:] - 1] = rows.bootstrap_observation
    return after
