"""Payoffs by play: the matches of profiles, each with luck of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.types import Factor, Match, Mixture, PolicyRef
from ludus.policies.base import Policy
from ludus.population.matches import moments, statistics_of
from ludus.rollout.base import EpisodeResults, PlannedEpisodes, RolloutRequest
from ludus.rollout.manager import Pending, RolloutManager
from ludus.rollout.opponent_sampling import mixture_refs


@dataclass(frozen=True, slots=True)
class MatchProfile:
    """One policy for each player: its index in the player's population, and its ref. block: the how many-th match of theirs it is.
    portions: of episodes that it is long."""

    index: tuple[int, ...]
    seats: tuple[PolicyRef, ...]
    block: int = 0
    portions: int = 1


class MatchPlayer:
    """Plays profiles through the rollout manager. Episode k of block b starts from seeds that a profile's policies have in whatever order
    they sit, so that with players who share a population (i, j) and (j, i) are the two halves of mirrored blocks. Other profiles have luck
    of their own: with the same cards against everybody, a policy's luck would not average out over a mixture of opponents.
    """

    def __init__(self, rollouts: RolloutManager, policy: Callable[[PolicyRef], Policy], *, seed: int) -> None:
        self._rollouts, self._policy, self._seed = rollouts, policy, seed

    def returns(self, players: Mixture, episodes: int, *, block: int | str = 0) -> NDArray[np.float64]:
        """float64[episodes, P]: of `episodes`."""
        return self.episodes(players, episodes, block=block).returns

    def episodes(self, players: Mixture, episodes: int, *, block: int | str = 0) -> EpisodeResults:
        """So many where every seat is drawn from `players`. Another `block` gives independent ones; no match has one with a name."""
        return self._rollouts.finish(self._start(players, episodes, block)).episodes

    @property
    def statistics(self) -> tuple[str, ...]:
        """What the environment counts, by name."""
        return self._rollouts.spec.statistics

    def planned(self, episodes: PlannedEpisodes) -> EpisodeResults:
        """What came of these episodes, in their order."""
        episodes = episodes.of_players()
        policies = [(ref, self._policy(ref)) for ref in episodes.refs]
        pending = [
            self._rollouts.start(request, policies, task_slot=self._rollouts.match_slot)
            for request in episodes.requests(self._rollouts.num_envs)
        ]
        return EpisodeResults.joined([self._rollouts.finish(one).episodes for one in pending])

    def play(self, profiles: Iterable[MatchProfile], episodes: int, *, ahead: int = 1) -> Iterator[Match]:
        """One match for each profile, in their order, whose portions are `episodes` long; `ahead` of them are given out at a time, so that
        workers which are done with one go on with the next."""
        waiting: deque[tuple[MatchProfile, Pending]] = deque()
        for profile in profiles:
            alone = Mixture((Factor(tuple(range(len(profile.seats))), (profile.seats,), (1.0,)),))
            waiting.append((profile, self._start(alone, episodes * profile.portions, *_luck(profile))))
            if len(waiting) >= ahead:
                yield self._match(*waiting.popleft())
        while waiting:
            yield self._match(*waiting.popleft())

    def _start(self, players: Mixture, episodes: int, *luck: int | str) -> Pending:
        request = RolloutRequest(
            learner=None,
            seats=(),
            opponents=players,
            unit="episodes",
            amount=episodes,
            seed=seeding.key(self._seed, "matches", *luck),
        )
        policies = [(ref, self._policy(ref)) for ref in mixture_refs(players)]
        return self._rollouts.start(request, policies, task_slot=self._rollouts.match_slot)

    def _match(self, profile: MatchProfile, pending: Pending) -> Match:
        episodes = self._rollouts.finish(pending).episodes
        returns = episodes.returns
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
            statistics=statistics_of(self.statistics, episodes.statistics),
        )


def _luck(profile: MatchProfile) -> list[int | str]:
    """What the seeds of its episodes depend on: not on the order of the seats, nor on how old the weights are."""
    return [profile.block, *sorted(f"{ref.population}/{ref.policy}" for ref in profile.seats)]


def outcomes(returns: NDArray[np.float64]) -> tuple[tuple[int, int, int], ...]:
    """float64[n, P] -> per player (won, drawn, lost): the highest return alone wins, shared it draws."""
    best = returns.max(axis=1, keepdims=True)
    top = returns == best
    alone = top.sum(axis=1, keepdims=True) == 1
    won, drawn = (top & alone).sum(axis=0), (top & ~alone).sum(axis=0)
    return tuple((int(w), int(d), int(len(returns) - w - d)) for w, d in zip(won, drawn, strict=True))
