"""Stoppers: pure functions of a `Progress` record that say when to stop, and why.

In a scenario a stopper is a mapping from its name to its setting: `{generations: 20}`, `{nash_conv: 0.3}`,
`{win_rate: {above: 0.9, matches: 100}}`. Several names stop at whichever comes first, as `{any: [...]}` does; `{all: [...]}` waits for
every one of them. A stopper of the user's own is named `module:Class`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, Field, PlainSerializer, PlainValidator

from ludus.core import recorders
from ludus.core.config import Config
from ludus.core.errors import ConfigError, ScenarioError, UnknownName
from ludus.core.parts import build_from_class, require, resolve_name
from ludus.core.user_code import qualified_name, short_repr

# --------------------------------------------------------------------------------------------------------------------
# The progress record that stoppers, schedules and displays read. Counters are separate and named (invariant 9).


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts since the start of a run, or of one training task, over all workers. Histories are oldest first.

    Attributes:
        env_steps: Steps of single environments.
        decisions: Of learners.
        episodes: Training episodes.
        samples: Rows learned from.
        updates: Calls of `Learner.update`.
        seconds: Wall time, summed over resumed sessions.
        generations: Finished ones.
        nash_conv: Per generation, where known.
        scores: Per evaluation: mean return of the learner.
        win_rates: Per evaluation: (share won, matches).
        gains: Per generation: best response's return over the meta-strategy's value.
    """

    env_steps: int = 0
    decisions: int = 0
    episodes: int = 0
    samples: int = 0
    updates: int = 0
    seconds: float = 0.0
    generations: int = 0
    nash_conv: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()
    win_rates: tuple[tuple[float, int], ...] = ()
    gains: tuple[float, ...] = ()


STOPPERS: Mapping[str, str] = {
    "all": "ludus.training.stopping:AllOf",
    "any": "ludus.training.stopping:AnyOf",
    "best_response_gain": "ludus.training.stopping:BestResponseGain",
    "decisions": "ludus.training.stopping:Decisions",
    "episodes": "ludus.training.stopping:Episodes",
    "generations": "ludus.training.stopping:Generations",
    "nash_conv": "ludus.training.stopping:NashConv",
    "no_improvement": "ludus.training.stopping:NoImprovement",
    "samples": "ludus.training.stopping:Samples",
    "seconds": "ludus.training.stopping:Seconds",
    "steps": "ludus.training.stopping:Steps",
    "updates": "ludus.training.stopping:Updates",
    "win_rate": "ludus.training.stopping:WinRate",
}


@runtime_checkable
class Stopper(Protocol):
    """Decides when a run or a training task stops.

    Attributes:
        setting: The field that `{name: value}` sets when the value is not a mapping.
    """

    setting: ClassVar[str]

    def reason(self, progress: Progress) -> str | None:
        """Return why to stop, as a sentence; None: continue."""
        ...

    def fraction(self, progress: Progress) -> float | None:
        """Return the share that is done, in [0, 1]; None if unknown."""
        ...

    def limit(self, unit: str) -> float | None:
        """Return the largest value that the counter `unit` ("episodes", "decisions", "seconds" …) can have, a whole number except for
        seconds; None: not bounded by this stopper."""
        ...


def stop_reason(stopper: Stopper, progress: Progress) -> str | None:
    """Return why it stops; None: it does not. Raises ScenarioError for any other answer."""
    reason = stopper.reason(progress)
    if reason is not None and not (isinstance(reason, str) and reason):
        raise ScenarioError(
            f"stopper {qualified_name(stopper)}.reason answered {short_repr(reason)}; expected a sentence, or None to go on."
        )
    return reason


def fraction_done(stopper: Stopper, progress: Progress) -> float | None:
    """Return the share that is done, in [0, 1]; None if unknown. Raises ScenarioError for any other answer."""
    share = stopper.fraction(progress)
    if share is not None and not (isinstance(share, int | float | np.number) and share == share):  # no NaN
        raise ScenarioError(
            f"stopper {qualified_name(stopper)}.fraction answered {short_repr(share)}; expected a number from 0 to 1, or None."
        )
    return None if share is None else min(1.0, max(0.0, float(share)))


def limit_in_unit(stopper: Stopper, unit: str) -> float | None:
    """Return the largest value that a counter can have, an int except for seconds; None if unknown. Raises ScenarioError for any other
    answer."""
    limit = stopper.limit(unit)
    clock = unit == "seconds"
    kinds = (int, np.integer, float) if clock else (int, np.integer)
    if limit is not None and (not isinstance(limit, kinds) or not limit >= 0):
        raise ScenarioError(
            f"stopper {qualified_name(stopper)}.limit({unit!r}) answered {short_repr(limit)}; expected a "
            f"{'' if clock else 'whole '}number, or None."
        )
    return None if limit is None else float(limit) if clock else int(limit)


def training_budget(stopper: Stopper, unit: str) -> tuple[int | None, str]:
    """Return how long a training is, for schedules that run over it.

    Args:
        stopper: What ends the training.
        unit: What its rollouts count, "episodes" or "decisions".

    Returns:
        (limit, unit): the limit in that unit; where there is none, the limit in the other one; (None, unit) where there is neither.
    """
    for counter in (unit, *({"episodes", "decisions"} - {unit})):
        limit = limit_in_unit(stopper, counter)
        if limit is not None:
            return int(limit), counter
    return None, unit


def parse_stopper(value: Any) -> Stopper:
    """Return the stopper that `value` describes (or is, or is the class of). Raises UnknownName with the nearest name, or ConfigError."""
    if isinstance(value, type):
        value = build_from_class("stopper", value)
    if isinstance(value, Stopper):
        return value
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(
            f"a stopper is a mapping such as {{generations: 20}}; given {value!r}. In Python also an object, ludus.Generations(20). Names: "
            f"{', '.join(sorted(STOPPERS))}."
        )
    if len(value) > 1:
        return AnyOf(of=[{name: setting} for name, setting in value.items()])
    name, setting = next(iter(value.items()))
    head, _, rest = str(name).partition(":")
    if rest and setting is None and head in STOPPERS:  # as YAML reads {seconds:600}
        raise ConfigError(f"{name!r} was given, where a space is missing: {{{head}: {rest}}}.")
    cls = resolve_name("stopper", str(name), STOPPERS, expected=(Stopper,))
    if not hasattr(cls, "setting"):
        raise ConfigError(
            f"stopper {name!r}: {cls!r} lacks `setting`, the name of its main field; see ludus.training.stopping.Stopper."
        )
    options = setting if isinstance(setting, Mapping) else {cls.setting: setting}
    try:
        stopper = cls(**options)
    except UnknownName:
        raise  # of a stopper inside this one
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"stopper {name!r}: {error}") from None
    require(stopper, "stopper", (Stopper,), STOPPERS)
    assert isinstance(stopper, Stopper)
    return stopper


def dump_stopper(stopper: Stopper) -> dict[str, Any]:
    """Return the shortest mapping from which `parse_stopper` makes an equal stopper. Raises ConfigError if it is no `Config` model."""
    cls = type(stopper)
    path = f"{cls.__module__}:{cls.__qualname__}"
    name = next((name for name, target in STOPPERS.items() if target == path), path)
    if not isinstance(stopper, BaseModel):
        raise ConfigError(
            f"stopper {path!r} cannot be written into a scenario; derive it from ludus.core.config.Config."
        )
    fields = stopper.model_dump(mode="json", exclude_defaults=True)
    return {name: fields[cls.setting] if fields.keys() == {cls.setting} else fields}


StopperField = Annotated[Stopper, PlainValidator(parse_stopper), PlainSerializer(dump_stopper)]
"""A field of a configuration model that holds a stopper."""


# ---------------------------------------------------------------------------------------------- counters


class _Setting(Config):
    """Takes its main field without its name too: Episodes(500)."""

    setting: ClassVar[str]

    def __init__(self, *setting: Any, **values: Any) -> None:
        if len(setting) > 1 or (setting and self.setting in values):
            raise ConfigError(f"{type(self).__name__} takes {self.setting}, and others by name; given {setting}.")
        super().__init__(**dict(zip([self.setting], setting, strict=False)), **values)


class _Counter(_Setting):
    """Stops when the counter named `counter` has reached `value`."""

    setting: ClassVar[str] = "value"
    counter: ClassVar[str]
    value: int = Field(ge=1)

    def reason(self, progress: Progress) -> str | None:
        now = getattr(progress, self.counter)
        return f"{now:,} of {self.value:,} {self.counter.replace('_', ' ')} are done" if now >= self.value else None

    def fraction(self, progress: Progress) -> float | None:
        return min(1.0, int(getattr(progress, self.counter)) / self.value)

    def limit(self, unit: str) -> int | None:
        return self.value if unit == self.counter else None

    def lacks(self, grows: Collection[str]) -> str | None:
        return None if self.counter in grows else self.counter


class Steps(_Counter):
    """Stops after a number of steps of single environments.

    Attributes:
        value: Steps, summed over all environments; it is met when they are done.
    """

    counter = "env_steps"


class Decisions(_Counter):
    """Stops after a number of decisions of learners.

    Attributes:
        value: Decisions, summed over all learners; it is met when they are done.
    """

    counter = "decisions"


class Episodes(_Counter):
    """Stops after a number of training episodes.

    Attributes:
        value: Episodes of all tasks; it is met when they are done. Matches of an evaluation do not count.
    """

    counter = "episodes"


class Samples(_Counter):
    """Stops after a number of rows learned from, each counted as often as it was used.

    Attributes:
        value: Rows; it is met when they have been used.
    """

    counter = "samples"


class Updates(_Counter):
    """Stops after a number of calls of `Learner.update`.

    Attributes:
        value: Calls; it is met when they are done.
    """

    counter = "updates"


class Generations(_Counter):
    """Stops after a number of generations: rounds of evaluate, solve, train, add.

    Attributes:
        value: Generations, from the run's first; it is met when they are done.
    """

    counter = "generations"


class _Unbounded(_Setting):
    """Bounds no counter; how much is done cannot be said in advance, mostly. reads: the field of `Progress` that it waits for."""

    reads: ClassVar[str]

    def fraction(self, progress: Progress) -> float | None:
        return None

    def limit(self, unit: str) -> float | None:
        return None

    def lacks(self, grows: Collection[str]) -> str | None:
        return None if self.reads in grows else self.reads


class Seconds(_Unbounded):
    """Stops after a wall time, summed over resumed sessions. It is a clock: exempt from determinism.

    Attributes:
        value: Seconds; it is met when they have passed.
    """

    reads: ClassVar[str] = "seconds"
    setting: ClassVar[str] = "value"
    value: float = Field(gt=0, allow_inf_nan=False)

    def reason(self, progress: Progress) -> str | None:
        return (
            f"{progress.seconds:.1f} of {self.value:g} seconds have passed" if progress.seconds >= self.value else None
        )

    def fraction(self, progress: Progress) -> float | None:
        return min(1.0, progress.seconds / self.value)

    def limit(self, unit: str) -> float | None:
        return self.value if unit == "seconds" else None


# ---------------------------------------------------------------------------------------------- results


class NashConv(_Unbounded):
    """Stops when the newest known NashConv is at most `at_most`.

    Attributes:
        at_most: Largest NashConv that meets it, in the game's utilities.
    """

    reads: ClassVar[str] = "nash_conv"
    setting: ClassVar[str] = "at_most"
    at_most: float = Field(ge=0, allow_inf_nan=False)

    def reason(self, progress: Progress) -> str | None:
        if not progress.nash_conv or not progress.nash_conv[-1] <= self.at_most:
            return None
        return f"NashConv {progress.nash_conv[-1]:.4g} is at most {self.at_most:g}"


class WinRate(_Unbounded):
    """Stops when the newest evaluations in a row were each won by a share above `above`, and have `matches` matches together.

    Attributes:
        above: Share of won matches that each of these evaluations exceeds.
        matches: Matches that they have together at least.
    """

    reads: ClassVar[str] = "win_rates"
    setting: ClassVar[str] = "above"
    above: float = Field(ge=0, lt=1)
    matches: int = Field(1, ge=1)

    def reason(self, progress: Progress) -> str | None:
        played = 0
        for share, matches in reversed(progress.win_rates):
            if not share > self.above:
                return None
            played += matches
            if played >= self.matches:
                return f"more than {self.above:.0%} were won in the last {played:,} matches"
        return None


class BestResponseGain(_Unbounded):
    """Stops when the best responses of the newest `generations` generations each gained at most `at_most` over the meta-strategy.

    Attributes:
        at_most: Largest gain that meets it, in the game's utilities.
        generations: Number of newest generations that are read; it is not met before there are so many.
    """

    reads: ClassVar[str] = "gains"
    setting: ClassVar[str] = "at_most"
    at_most: float = Field(allow_inf_nan=False)
    generations: int = Field(1, ge=1)

    def reason(self, progress: Progress) -> str | None:
        newest = progress.gains[-self.generations :]
        if len(newest) < self.generations or not all(gain <= self.at_most for gain in newest):
            return None
        return f"best responses gained at most {self.at_most:g} in the last {self.generations} generations (newest: {newest[-1]:.4g})"


class NoImprovement(_Unbounded):
    """Stops when none of the newest `evaluations` was better by more than `min_delta` than the best before them.

    Attributes:
        evaluations: Number of newest evaluations that are read; it is not met before there is one more.
        min_delta: Least improvement that counts, in the unit of `of`.
        of: "scores" and "win_rates" are better when larger, "nash_conv" when smaller. NaN is never better.
    """

    setting: ClassVar[str] = "evaluations"
    evaluations: int = Field(ge=1)
    min_delta: float = Field(0.0, ge=0, allow_inf_nan=False)
    of: Literal["scores", "nash_conv", "win_rates"] = "scores"

    def lacks(self, grows: Collection[str]) -> str | None:
        return None if self.of in grows else self.of

    def reason(self, progress: Progress) -> str | None:
        history = self._history(progress)
        if len(history) <= self.evaluations:
            return None
        before, newest = max(history[: -self.evaluations]), max(history[-self.evaluations :])
        if newest > before + self.min_delta:
            return None
        return f"{self.of} did not improve by more than {self.min_delta:g} in the last {self.evaluations} evaluations"

    def _history(self, progress: Progress) -> Sequence[float]:
        """Larger is better."""
        if self.of == "nash_conv":
            values: Sequence[float] = [-value for value in progress.nash_conv]
        elif self.of == "win_rates":
            values = [share for share, _ in progress.win_rates]
        else:
            values = progress.scores
        return [-math.inf if math.isnan(value) else value for value in values]


# ---------------------------------------------------------------------------------------------- combinations


class AnyOf(_Setting):
    """Stops with the first of its stoppers.

    Attributes:
        of: Stoppers, or mappings such as {generations: 20}; it is met when one of them is.
    """

    setting: ClassVar[str] = "of"
    of: tuple[StopperField, ...] = Field(min_length=1)

    def reason(self, progress: Progress) -> str | None:
        return next((why for stopper in self.of if (why := stop_reason(stopper, progress))), None)

    def fraction(self, progress: Progress) -> float | None:
        return max(
            (done for stopper in self.of if (done := fraction_done(stopper, progress)) is not None), default=None
        )

    def limit(self, unit: str) -> float | None:
        return min((most for stopper in self.of if (most := limit_in_unit(stopper, unit)) is not None), default=None)

    def lacks(self, grows: Collection[str]) -> str | None:
        missing = [missing_measures(stopper, grows) for stopper in self.of]
        return None if None in missing else missing[0]


class AllOf(_Setting):
    """Stops when all of its stoppers would stop at the same time.

    Attributes:
        of: Stoppers, or mappings such as {generations: 20}; it is met when all are.
    """

    setting: ClassVar[str] = "of"
    of: tuple[StopperField, ...] = Field(min_length=1)

    def reason(self, progress: Progress) -> str | None:
        reasons = [stop_reason(stopper, progress) for stopper in self.of]
        return None if None in reasons else " and ".join(why for why in reasons if why)

    def fraction(self, progress: Progress) -> float | None:
        shares = [fraction_done(stopper, progress) for stopper in self.of]
        known = [share for share in shares if share is not None]
        return min(known) if len(known) == len(shares) else None

    def limit(self, unit: str) -> float | None:
        limits = [limit_in_unit(stopper, unit) for stopper in self.of]
        known = [most for most in limits if most is not None]
        return max(known) if len(known) == len(limits) else None

    def lacks(self, grows: Collection[str]) -> str | None:
        return next((field for stopper in self.of if (field := missing_measures(stopper, grows))), None)


# --------------------------------------------------------------------------------------------------------------------
# Which stoppers could ever fire where they stand: one that cannot would let a response go on for ever (invariant
# 10).

RESPONSE = frozenset(recorders.PROGRESS) | {"seconds", "scores", "win_rates"}
"""The fields of `Progress` that grow during a training task."""
RUN = frozenset({"seconds", "generations", "gains"})
"""Those that grow during every run; counters too if its algorithm learns, nash_conv too where exploitability is computed."""


@runtime_checkable
class Measures(Protocol):
    """Stopper that reports which measure it waits for."""

    def lacks(self, grows: Collection[str]) -> str | None:
        """Return the field of `Progress` that it waits for and that is not among those that grow; None if it can fire."""
        ...


def missing_measures(stopper: Stopper, grows: Collection[str]) -> str | None:
    """Return what a stopper lacks; None if it can fire, or does not report that."""
    return stopper.lacks(grows) if isinstance(stopper, Measures) else None


def check_response(stopper: Stopper | None) -> None:
    """Raise ScenarioError if a training task would never end."""
    if stopper is None:
        raise ScenarioError("an algorithm that learns needs `response`: when to stop, such as {episodes: 20000}.")
    if field := missing_measures(stopper, RESPONSE):
        raise ScenarioError(
            f"response: the stopper waits for {field}, which does not change during one response, so it would go on for ever. "
            "Use episodes, decisions, steps, samples, updates, seconds, win_rate or no_improvement of scores."
        )


def check_stop(stopper: Stopper | None, *, learns: bool, exploitability: bool) -> None:
    """Raise ScenarioError if it could never end a run.

    Args:
        stopper: Of the run.
        learns: Whether the algorithm learns.
        exploitability: Whether exploitability is computed.
    """
    grows = RUN | (set(recorders.PROGRESS) if learns else set()) | ({"nash_conv"} if exploitability else set())
    if stopper is not None and (field := missing_measures(stopper, grows)):
        raise ScenarioError(
            f"stop: the stopper waits for {field}, which this run does not have, so it could never fire. Leave it out."
        )
