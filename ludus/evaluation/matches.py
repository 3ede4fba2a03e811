"""Payoffs by play: every missing profile plays the same, commonly seeded episodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.types import Factor, Match, Mixture, PolicyRef, Solution
from ludus.policies.base import Policy
from ludus.population.matches import moments
from ludus.rollout.base import RolloutRequest
from ludus.rollout.manager import Pending, RolloutManager
from ludus.rollout.opponent_sampling import mixture_refs

# --------------------------------------------------------------------------------------------------------------------
# What is drawn for the seats of an episode, from solutions and names.


def factors_of(solution: Solution, members: Sequence[Sequence[PolicyRef]], seats: Sequence[int]) -> tuple[Factor, ...]:
    """How a solution plays some of the seats: each by itself, or from a joint distribution with what it is over these seats alone.

    members: [P] the policies of each player. What has no weight is left out.
    """
    if solution.joint is None:
        return tuple(_factor((p,), [members[p]], solution.strategies[p]) for p in seats)
    others = tuple(p for p in range(solution.joint.ndim) if p not in seats)
    return (_factor(tuple(seats), [members[p] for p in seats], solution.joint.sum(axis=others)),) if seats else ()


def instead(mixture: Mixture, seat: int, ref: PolicyRef) -> Mixture:
    """The mixture with one policy in a seat: the others are drawn as before, whatever was drawn for that seat."""
    factors = []
    for factor in mixture.factors:
        if factor.seats == (seat,):
            factors.append(Factor((seat,), ((ref,),), (1.0,)))
        elif seat in factor.seats:
            factors += [_without(factor, seat), Factor((seat,), ((ref,),), (1.0,))]
        else:
            factors.append(factor)
    return Mixture(tuple(factors))


def _without(factor: Factor, seat: int) -> Factor:
    """Over the other seats, each entry once."""
    place = factor.seats.index(seat)
    probs: dict[tuple[PolicyRef, ...], float] = {}
    for entry, prob in zip(factor.entries, factor.probs, strict=True):
        rest = entry[:place] + entry[place + 1 :]
        probs[rest] = probs.get(rest, 0.0) + prob
    return Factor(factor.seats[:place] + factor.seats[place + 1 :], tuple(probs), tuple(probs.values()))


def _factor(seats: tuple[int, ...], members: Sequence[Sequence[PolicyRef]], probs: np.ndarray) -> Factor:
    kept = np.argwhere(probs > 0)
    entries = tuple(tuple(members[k][i] for k, i in enumerate(profile)) for profile in kept.tolist())
    return Factor(seats, entries, tuple(float(p) for p in probs[tuple(kept.T)]))


@dataclass(frozen=True, slots=True)
class MatchProfile:
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

    def play(self, profiles: Iterable[MatchProfile], episodes: int, *, ahead: int = 1) -> Iterator[Match]:
        """One match for each profile, in their order, whose portions are `episodes` long; `ahead` of them are given out at a time, so that
        workers which are done with one go on with the next."""
        waiting: deque[tuple[MatchProfile, Pending]] = deque()
        for profile in profiles:
            alone = Mixture((Factor(tuple(range(len(profile.seats))), (profile.seats,), (1.0,)),))
            waiting.append((profile, self._start(alone, episodes * profile.portions, profile.block)))
            if len(waiting) >= ahead:
                yield self._match(*waiting.popleft())
        while waiting:
            yield self._match(*waiting.popleft())

    def _start(self, players: Mixture, episodes: int, block: int | str) -> Pending:
        request = RolloutRequest(
            learner=None,
            seats=(),
            opponents=players,
            unit="episodes",
            amount=episodes,
            seed=seeding.key(self._seed, "matches", block),
        )
        return self._rollouts.start(request, [(ref, self._policy(ref)) for ref in mixture_refs(players)])

    def _match(self, profile: MatchProfile, pending: Pending) -> Match:
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


def outcomes(returns: NDArray[np.float64]) -> tuple[tuple[int, int, int], ...]:
    """float64[n, P] -> per player (won, drawn, lost): the highest return alone wins, shared it draws."""
    best = returns.max(axis=1, keepdims=True)
    top = returns == best
    alone = top.sum(axis=1, keepdims=True) == 1
    won, drawn = (top & alone).sum(axis=0), (top & ~alone).sum(axis=0)
    return tuple((int(w), int(d), int(len(returns) - w - d)) for w, d in zip(won, drawn, strict=True))
