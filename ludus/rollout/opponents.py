"""The opponents of one task, rollout by rollout: live refs become versions, and a rule moves probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ludus.core.parts import build_part
from ludus.core.types import AdaptiveMixture, Mixture, OpponentFactor, Opponents, PolicyRef, State
from ludus.core.user_code import distribution, qualified_name
from ludus.rollout.base import EpisodeResults
from ludus.rollout.opponent_rules import RULES, NoRegret, OpponentResults, PerGroup, Rule


class AdaptiveOpponents:
    """`mixture()` is what the next request draws from. Factors with the same entries are moved as one, by what all of them have seen."""

    def __init__(self, opponents: Opponents) -> None:
        """Raise UnknownName or ConfigError for a rule that there is not."""
        self._start = initial_mixture(opponents)
        self._rules: list[Rule] = []  # of each group
        self._moves_live = False
        self._groups: list[list[int]] = []  # factors that are moved as one
        self._states: list[State] = []
        self._sums: list[NDArray[np.float64]] = []
        self._rounds = 0
        if isinstance(opponents, AdaptiveMixture):
            self._moves_live = opponents.moves_live
            groups: dict[object, list[int]] = {}
            for f, factor in enumerate(self._start.factors):
                groups.setdefault(factor.entries, []).append(f)
            self._groups = list(groups.values())
            rule = build_part("rule", {"kind": opponents.rule, **opponents.options}, RULES)
            self._rules = [
                rule.of_group(k) if isinstance(rule, PerGroup) else cast(Rule, rule) for k in range(len(self._groups))
            ]
            self._states = [
                rule.start(self._frozen(group)) for rule, group in zip(self._rules, self._groups, strict=True)
            ]
            self._sums = [np.zeros(len(self._movable(group))) for group in self._groups]

    def mixture(self, live: Callable[[PolicyRef], PolicyRef]) -> Mixture:
        """Return the mixture with the present probabilities, and with live refs as `live` says that they are now."""
        probs = self._probs() if self._rules else [factor.probs for factor in self._start.factors]
        return Mixture(
            tuple(
                replace(
                    factor,
                    entries=tuple(
                        tuple(ref if ref.version is not None else live(ref) for ref in entry)
                        for entry in factor.entries
                    ),
                    probs=tuple(float(p) for p in now),
                )
                for factor, now in zip(self._start.factors, probs, strict=True)
            )
        )

    def learn(self, episodes: EpisodeResults) -> None:
        """Move the probabilities by what happened in these episodes."""
        if not self._rules:
            return
        self._rounds += 1
        for k, group in enumerate(self._groups):
            movable = self._movable(group)
            if len(movable) < 2:
                continue
            self._sums[k] += self._meant(k, len(movable))
            results = opponent_results(
                episodes, [self._start.factors[f].seats for f in group], group, self._size(group)
            )
            results = OpponentResults(
                results.played[movable], results.value[movable], results.won[movable], results.earned[movable]
            )
            self._states[k] = self._rules[k].update(self._states[k], results)

    @property
    def average(self) -> Mixture | None:
        """With the mean of the probabilities of all rounds, of rules without regret less what they explore; None where nothing moves, or
        nothing was played."""
        if not self._rules or not self._rounds:
            return None
        means = [total / total.sum() if total.any() else None for total in self._sums]
        return replace(self._start, factors=self._with(means))

    def state_dict(self) -> State:
        return {
            "states": [dict(s) for s in self._states],
            "sums": [total.copy() for total in self._sums],
            "rounds": self._rounds,
        }

    def load_state_dict(self, state: State) -> None:
        self._states, self._sums = list(state["states"]), [np.array(s) for s in state["sums"]]
        self._rounds = int(state["rounds"])

    # ------------------------------------------------------------------------------------------ groups of factors

    def _size(self, group: Sequence[int]) -> int:
        return len(self._start.factors[group[0]].entries)

    def _movable(self, group: Sequence[int]) -> NDArray[np.intp]:
        """Return the entries without live refs, or all of them."""
        entries = self._start.factors[group[0]].entries
        if self._moves_live:
            return np.arange(len(entries))
        return np.flatnonzero([all(ref.version is not None for ref in entry) for entry in entries])

    def _frozen(self, group: Sequence[int]) -> NDArray[np.float64]:
        """Return what the movable entries' probabilities are among themselves, to begin with; uniform where they have none."""
        movable = self._movable(group)
        probs = np.array(self._start.factors[group[0]].probs)[movable]
        total = probs.sum()
        return probs / total if total > 0 else np.full(len(movable), 1.0 / max(1, len(movable)))

    def _now(self, k: int, size: int) -> NDArray[np.float64]:
        """Return what rule k plays, of so many entries."""
        rule = self._rules[k]
        return distribution(f"opponents' rule {qualified_name(rule)}", rule.probs(self._states[k]), size)

    def _meant(self, k: int, size: int) -> NDArray[np.float64]:
        """Return the same, without what it explores."""
        rule = self._rules[k]
        if not isinstance(rule, NoRegret):
            return self._now(k, size)
        return distribution(f"opponents' rule {qualified_name(rule)}", rule.strategy(self._states[k]), size)

    def _probs(self) -> list[tuple[float, ...]]:
        sizes = [len(self._movable(group)) for group in self._groups]
        now = [self._now(k, size) if size > 1 else None for k, size in enumerate(sizes)]
        return [factor.probs for factor in self._with(now)]

    def _with(self, moved: Sequence[NDArray[np.float64] | None]) -> tuple[OpponentFactor, ...]:
        """Return the factors with these probabilities of the movable entries, which share what the live ones leave."""
        factors = list(self._start.factors)
        for group, new in zip(self._groups, moved, strict=True):
            if new is None:
                continue
            movable = self._movable(group)
            for f in group:
                probs = np.array(factors[f].probs)
                probs[movable] = new * probs[movable].sum()
                factors[f] = replace(factors[f], probs=tuple(float(p) for p in probs))
        return tuple(factors)


def opponent_results(
    episodes: EpisodeResults, seats: Sequence[tuple[int, ...]], factors: Sequence[int], entries: int
) -> OpponentResults:
    """Return what episodes say of the entries of these factors, which play `seats`; [entries] each. The learner has won where its return is
    above that of everybody else, and drawn where somebody shares the highest one with it."""
    played, total, won, earned = np.zeros(entries, np.int64), np.zeros(entries), np.zeros(entries), np.zeros(entries)
    own_returns = episodes.learner_returns
    best = episodes.returns.max(axis=1, initial=-np.inf)
    shared = (episodes.returns == best[:, None]).sum(axis=1) > 1
    score = np.where(own_returns == best, np.where(shared, 0.5, 1.0), 0.0)
    for factor, places in zip(factors, seats, strict=True):
        entry = episodes.entry[:, factor]
        is_sampled = entry >= 0
        played += np.bincount(entry[is_sampled], minlength=entries)
        others = np.array(places)[None, :] != episodes.seat[is_sampled][:, None]
        value = _means(episodes.returns[is_sampled][:, list(places)], others)
        total += np.bincount(entry[is_sampled], weights=value, minlength=entries)
        won += np.bincount(entry[is_sampled], weights=score[is_sampled], minlength=entries)
        earned += np.bincount(entry[is_sampled], weights=own_returns[is_sampled], minlength=entries)
    value, earned = (np.where(played > 0, sums / np.maximum(played, 1), np.nan) for sums in (total, earned))
    return OpponentResults(played, value, won, earned)


def _means(values: NDArray[np.float64], where: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return float64[n]: the mean of each row's values where `where`; at least one is."""
    return np.asarray((values * where).sum(axis=1) / np.maximum(where.sum(axis=1), 1))


def initial_mixture(opponents: Opponents) -> Mixture:
    """Return what a task begins with."""
    return opponents.start if isinstance(opponents, AdaptiveMixture) else opponents


def live_refs(opponents: Opponents) -> tuple[PolicyRef, ...]:
    """Return the live refs, each once."""
    refs = (ref for factor in initial_mixture(opponents).factors for entry in factor.entries for ref in entry)
    return tuple(dict.fromkeys(ref for ref in refs if ref.version is None))
