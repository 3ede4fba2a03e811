"""The rules that move the probabilities of opponents while a policy trains against them: their seam, the rules, and their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError
from ludus.core.types import State
from ludus.metagame.solvers.pfsp import Weighting, pfsp, pfsp_weights

# --------------------------------------------------------------------------------------------------------------------
# The seam of rules that move the probabilities of opponents during a task.


class OpponentResults(NamedTuple):
    """What one rollout says of K entries. played: int64[K] episodes in which the entry was drawn. value: float64[K], the entry's own mean
    return in them (of a joint entry, over its seats), NaN where it was not played. won: float64[K], the episodes that the learner won,
    draws half each. earned: float64[K], the learner's mean return in them, NaN where the entry was not played."""

    played: NDArray[np.int64]
    value: NDArray[np.float64]
    won: NDArray[np.float64]
    earned: NDArray[np.float64]


@runtime_checkable
class Rule(Protocol):
    """Pure: all it remembers is in the state, which a checkpoint holds. Its options are its fields."""

    def start(self, probs: NDArray[np.float64]) -> State:
        """Return the state that begins with float64[K] probabilities, K at least 1."""
        ...

    def update(self, state: State, evidence: OpponentResults) -> State:
        """Return the state after a rollout."""
        ...

    def probs(self, state: State) -> NDArray[np.float64]:
        """Return float64[K], summing to 1: what the next episodes draw from."""
        ...


@runtime_checkable
class NoRegret(Protocol):
    """A rule whose mean over rounds is announced: that of what it holds best, without what it explores."""

    def strategy(self, state: State) -> NDArray[np.float64]:
        """Return float64[K], summing to 1."""
        ...


@runtime_checkable
class PerGroup(Protocol):
    """A rule that is another one for each group of factors with the same entries, which are moved as one."""

    def of_group(self, group: int) -> Rule:
        """group: 0, 1, … in the order of their first factors."""
        ...


# --------------------------------------------------------------------------------------------------------------------
# Rules that give priority to opponents which are worth the learner's time.


@dataclass(frozen=True, slots=True)
class PFSPRule:
    """`pfsp` of the win rates within the task (`ludus.metagame.solvers.pfsp` lists the other places of PFSP). prior: draws that each
    opponent starts with. decay: what earlier episodes keep of their weight with each rollout."""

    weighting: Weighting = "squared"
    prior: float = 10.0
    decay: float = 0.99

    def __post_init__(self) -> None:
        pfsp_weights(np.zeros(1), self.weighting)
        if not self.prior > 0:
            raise ConfigError(f"pfsp: prior is {self.prior}, expected a number of draws above 0.")
        if not 0.0 < self.decay <= 1.0:
            raise ConfigError(f"pfsp: decay is {self.decay}, expected above 0, at most 1.")

    def start(self, probs: NDArray[np.float64]) -> State:
        return {"won": np.zeros(len(probs)), "played": np.zeros(len(probs)), "start": np.array(probs)}

    def update(self, state: State, evidence: OpponentResults) -> State:
        won = self.decay * state["won"] + evidence.won
        return {**state, "won": won, "played": self.decay * state["played"] + evidence.played}

    def probs(self, state: State) -> NDArray[np.float64]:
        if not state["played"].any():
            return np.asarray(state["start"])
        rate = (state["won"] + 0.5 * self.prior) / (state["played"] + self.prior)
        return pfsp(rate, self.weighting)


@dataclass(frozen=True, slots=True)
class Quality:
    """Softmax of quality scores; with every episode that the learner wins against entry k, q_k falls by rate / (K p_k), so that what is
    beaten is met less often and nothing is forgotten for good (OpenAI et al. 2019, "Dota 2 with Large Scale Deep Reinforcement Learning",
    appendix on opponents; rate 0.01 there). The scores begin with the logarithms of the given probabilities."""

    rate: float = 0.01

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ConfigError(f"quality: rate is {self.rate}, expected above 0.")

    def start(self, probs: NDArray[np.float64]) -> State:
        return {"score": np.log(np.maximum(probs, 1e-12))}

    def update(self, state: State, evidence: OpponentResults) -> State:
        """Return the state after a rollout: each score falls at most by 1, however many episodes the rollout has."""
        probs = self.probs(state)
        fall = np.minimum(1.0, self.rate * evidence.won / (len(probs) * np.maximum(probs, 1e-12)))
        return {"score": state["score"] - fall}

    def probs(self, state: State) -> NDArray[np.float64]:
        weight = np.exp(state["score"] - state["score"].max())
        return np.asarray(weight / weight.sum())


# --------------------------------------------------------------------------------------------------------------------
# Rules without regret: entries that do better against the learner are drawn more often. The entries' values are
# means over the episodes that drew them, so each entry needs to be drawn now and then: `explore` of the probability
# is spread evenly. An entry that a rollout did not draw counts as average in it.


@dataclass(frozen=True, slots=True)
class RegretMatchingPlusRule:
    """Probabilities in proportion to the positive part of cumulative regrets, which is cut at zero in every round (Tammelin 2014,
    regret matching+). Needs no rate and no range."""

    explore: float = 0.05

    def __post_init__(self) -> None:
        _check(explore=self.explore)

    def start(self, probs: NDArray[np.float64]) -> State:
        return {"regret": np.zeros(len(probs)), "start": np.array(probs)}

    def update(self, state: State, evidence: OpponentResults) -> State:
        regret = np.maximum(state["regret"] + _advantage(evidence, self.probs(state)), 0.0)
        return {**state, "regret": regret}

    def strategy(self, state: State) -> NDArray[np.float64]:
        regret = state["regret"]
        total = regret.sum()
        return np.asarray(regret / total if total > 0 else state["start"])

    def probs(self, state: State) -> NDArray[np.float64]:
        return _explored(self.strategy(state), self.explore)


@dataclass(frozen=True, slots=True)
class Hedge:
    """Probabilities in proportion to exp(rate_t × cumulative advantage), rate_t = rate × sqrt(ln K / t) / scale (Freund and Schapire 1997;
    the falling rate of Auer, Cesa-Bianchi and Gentile 2002). scale: the greatest advantage seen so far."""

    rate: float = 1.0
    explore: float = 0.05

    def __post_init__(self) -> None:
        _check(explore=self.explore)
        if not self.rate > 0:
            raise ConfigError(f"hedge: rate is {self.rate}, expected above 0.")

    def start(self, probs: NDArray[np.float64]) -> State:
        return {"sum": np.zeros(len(probs)), "start": np.array(probs), "rounds": 0, "scale": 0.0}

    def update(self, state: State, evidence: OpponentResults) -> State:
        gained = _advantage(evidence, self.probs(state))
        return {
            **state,
            "sum": state["sum"] + gained,
            "rounds": int(state["rounds"]) + 1,
            "scale": max(float(state["scale"]), float(np.abs(gained).max())),
        }

    def strategy(self, state: State) -> NDArray[np.float64]:
        start, scale = np.asarray(state["start"]), float(state["scale"])
        if scale == 0.0:
            return start
        rate = self.rate * np.sqrt(np.log(max(2, len(start))) / state["rounds"]) / scale
        power = rate * state["sum"]
        weight = start * np.exp(power - power.max())
        return np.asarray(weight / weight.sum())

    def probs(self, state: State) -> NDArray[np.float64]:
        return _explored(self.strategy(state), self.explore)


def _check(*, explore: float) -> None:
    if not 0.0 <= explore <= 1.0:
        raise ConfigError(f"explore is {explore}, expected a share from 0 to 1.")


def _advantage(evidence: OpponentResults, probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[K]: each entry's value above the mean under `probs`; 0 where it was not played."""
    has_played = evidence.played > 0
    if not has_played.any():
        return np.zeros(len(probs))
    weight = np.where(has_played, probs, 0.0)
    total = weight.sum()
    value = np.where(has_played, evidence.value, 0.0)
    mean = float((weight * value).sum() / total) if total > 0 else float(value[has_played].mean())
    return np.where(has_played, value - mean, 0.0)


def _explored(probs: NDArray[np.float64], explore: float) -> NDArray[np.float64]:
    return np.asarray((1.0 - explore) * probs + explore / len(probs))


# --------------------------------------------------------------------------------------------------------------------
# A rule that draws opponents by what would make the learner's payoffs unlike those of its population. Response
# diversity of a policy is the distance of its row a of payoffs, against the opponents' policies, to the convex hull
# of the rows that are there (Liu et al. 2021, "Towards unifying behavioral and response diversity", there its
# square; Perez-Nieves et al. 2021 measure a whole population, by the expected cardinality of a determinantal point
# process). The gradient of ½ distance² by a is a - p, where p is the nearest point of the hull. So a policy gains
# both payoff against the meta-strategy σ and diversity when it trains against opponents drawn by σ + weight × (a -
# p). Opponents with a negative share, against which it would have to lose more, are left out.

Floats = NDArray[np.float64]


def nearest_in_hull(rows: Floats, point: Floats) -> Floats:
    """Return float64[m] weights, summing to 1, of the point of the convex hull of rows float64[m, n] that is nearest to float64[n].

    With x = t β, ‖(rows - point)ᵀ x‖² + (1 - Σ x)² is least, over x ≥ 0, at the β of the nearest point: a problem of least squares with
    non-negative unknowns, which needs no penalty (Lawson and Hanson 1974, chapter 23).
    """
    from scipy.optimize import nnls  # 0.2 s to import, and most runs never need it

    moved = rows - point
    moved = np.vstack([moved.T / max(float(np.abs(moved).max()), 1e-300), np.ones(len(rows))])
    solution, _ = nnls(moved, np.append(np.zeros(len(point)), 1.0))
    return np.asarray(solution / solution.sum())


def hull_difference(rows: Floats, point: Floats) -> Floats:
    """Return float64[n]: the point minus the nearest point of the hull; its length is the response diversity, its direction the
    gradient."""
    return np.asarray(point - nearest_in_hull(rows, point) @ rows)


@dataclass(frozen=True, slots=True)
class ReturnRows:
    """The rule of one group of factors, against K entries. rows: float64[m, K], or None where the learner never meets the group."""

    rows: Floats | None
    weight: float
    explore: float
    prior: float
    decay: float

    def start(self, probs: Floats) -> State:
        return {"earned": np.zeros(len(probs)), "played": np.zeros(len(probs)), "start": np.array(probs)}

    def update(self, state: State, evidence: OpponentResults) -> State:
        new = np.where(evidence.played > 0, evidence.played * evidence.earned, 0.0)
        played = self.decay * state["played"] + evidence.played
        return {**state, "earned": self.decay * state["earned"] + new, "played": played}

    def probs(self, state: State) -> Floats:
        share = np.array(state["start"])
        has_played = state["played"] > 0
        if self.rows is not None and has_played.any():
            played = state["played"][has_played]
            difference = hull_difference(self.rows[:, has_played], state["earned"][has_played] / played)
            share[has_played] += self.weight * np.maximum(difference, 0.0) * played / (played + self.prior)
        return np.asarray((1.0 - self.explore) * share / share.sum() + self.explore / len(share))


@dataclass(frozen=True, slots=True)
class ResponseDiversityRule:
    """tables: for each group of factors, the payoffs [m][K] of the population's m policies against its K entries, or None. weight: of a
    difference of one, in the unit of payoffs. explore: of the games, spread evenly, since payoffs against an opponent that is never met
    are not known. prior: episodes against an opponent with which what is known of it counts half. decay: what earlier episodes keep of
    their weight with each rollout, as the learner changes."""

    tables: tuple[tuple[tuple[float, ...], ...] | None, ...]
    weight: float = 1.0
    explore: float = 0.05
    prior: float = 20.0
    decay: float = 0.9

    def __post_init__(self) -> None:
        if not (
            0.0 <= self.weight < np.inf and 0.0 <= self.explore <= 1.0 and self.prior >= 0.0 and 0.0 < self.decay <= 1.0
        ):
            raise ConfigError(
                f"response diversity: weight and prior are 0 or more, explore is a share, and decay is above 0, at most 1; given weight: "
                f"{self.weight}, prior: {self.prior}, explore: {self.explore}, decay: {self.decay}."
            )

    def of_group(self, group: int) -> ReturnRows:
        """Return the rule of a group."""
        table = self.tables[group]
        rows = None if table is None else np.array(table, np.float64)
        return ReturnRows(rows, self.weight, self.explore, self.prior, self.decay)


# --------------------------------------------------------------------------------------------------------------------
# The rules by name.

RULES: Final[dict[str, str]] = {
    "hedge": "ludus.rollout.opponent_rules:Hedge",
    "pfsp": "ludus.rollout.opponent_rules:PFSPRule",
    "quality": "ludus.rollout.opponent_rules:Quality",
    "regret_matching_plus": "ludus.rollout.opponent_rules:RegretMatchingPlusRule",
}
"""Rules of `AdaptiveMixture`: name -> `module:Class`; each class's fields are its options. They are applied within a task, after each
rollout; `ludus.schedulers.self_play.PAST_OPPONENT_RULES` are applied between the chunks of self-play."""
