"""Payoffs by play: every missing profile plays the same, commonly seeded episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus import seeding
from ludus.policies.base import Policy
from ludus.population.statistics import moments
from ludus.rollout.base import RolloutOrder
from ludus.rollout.draws import mixture_refs
from ludus.rollout.manager import Pending, RolloutManager
from ludus.types import Factor, Match, Mixture, PolicyRef


@dataclass(frozen=True, slots=True)
class Profile:
    """One policy for each player: its index in the player's population, and its ref. block: the how many-th match of theirs it is.
    portions: of episodes that it is long."""

    index: tuple[int, ...]
    seats: tuple[PolicyRef, ...]
    block: int = 0
    portions: int = 1


class MatchPlayer:
    """Plays profiles through the rollout manager. Episode k of block b of every profile starts from the same seeds (common random numbers),
    so that with players who share a population (i, j) and (j, i) are the two halves of mirrored blocks."""

    def __init__(self, rollouts: RolloutManager, policy: Callable[[PolicyRef], Policy], *, seed: int) -> None:
        self._rollouts, self._policy, self._seed = rollouts, policy, seed

    def returns(self, players: Mixture, episodes: int, *, block: int | str = 0) -> NDArray[np.float64]:
        """float64[episodes, P]: returns where every seat is drawn from `players`. Another `block` gives independent episodes; no match has
        one with a name."""
        return self._rollouts.finish(self._start(players, episodes, block)).episodes.returns

    def play(self, profiles: Iterable[Profile], episodes: int, *, ahead: int = 1) -> Iterator[Match]:
        """One match for each profile, in their order, whose portions are `episodes` long; `ahead` of them are given out at a time, so that
        workers which are done with one go on with the next."""
        waiting: deque[tuple[Profile, Pending]] = deque()
        for profile in profiles:
            alone = Mixture((Factor(tuple(range(len(profile.seats))), (profile.seats,), (1.0,)),))
            waiting.append((profile, self._start(alone, episodes * profile.portions, profile.block)))
            if len(waiting) >= ahead:
                yield self._match(*waiting.popleft())
        while waiting:
            yield self._match(*waiting.popleft())

    def _start(self, players: Mixture, episodes: int, block: int | str) -> Pending:
        order = RolloutOrder(
            learner=None,
            seats=(),
            opponents=players,
            unit="episodes",
            amount=episodes,
            seed=seeding.key(self._seed, "matches", block),
        )
        return self._rollouts.start(order, [(ref, self._policy(ref)) for ref in mixture_refs(players)])

    def _match(self, profile: Profile, pending: Pending) -> Match:
        returns = self._rollouts.finish(pending).episodes.returns
        found = moments(returns)
        name = "-".join(map(str, profile.index))
        return Match(
            f"match-{name}-{profile.block}",
            profile.index,
            profile.seats,
            len(returns),
            found.mean,
            found.m2,
            wins=outcomes(returns),
        )


def won(returns: NDArray[np.float64], seat: NDArray[np.int8]) -> float:
    """The share of the episodes, float64[n, P], that the player in seat[n] won: with a return above all others' (alone: above 0)."""
    rows = np.arange(len(seat))
    others = np.array(returns)
    others[rows, seat] = -np.inf
    best = others.max(axis=1) if returns.shape[1] > 1 else np.zeros(len(seat))
    return float((returns[rows, seat] > best).mean())


def outcomes(returns: NDArray[np.float64]) -> tuple[tuple[int, int, int], ...]:
    """float64[n, P] -> per player (won, drawn, lost): the highest return alone wins, shared it draws."""
    best = returns.max(axis=1, keepdims=True)
    top = returns == best
    alone = top.sum(axis=1, keepdims=True) == 1
    won, drawn = (top & alone).sum(axis=0), (top & ~alone).sum(axis=0)
    return tuple((int(w), int(d), int(len(returns) - w - d)) for w, d in zip(won, drawn, strict=True))
