"""Payoffs by play: the matches of profiles, each with luck of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import PartDied
from ludus.core.types import Match, Mixture, OpponentFactor, PolicyRef
from ludus.metagame.population.match_log import moments, statistics_of, wider_range
from ludus.policies.base import Policy
from ludus.rollout.base import EpisodeResults, PlannedEpisodes, RolloutRequest
from ludus.rollout.opponents import mixture_refs
from ludus.rollout.rollouts import Pending, ProgressCallback, Rollouts


@dataclass(frozen=True, slots=True)
class MatchProfile:
    """One policy for each player: its index in the player's population, and its ref. block: the how many-th match of theirs it is.
    portions: of episodes that it is long."""

    index: tuple[int, ...]
    seats: tuple[PolicyRef, ...]
    block: int = 0
    portions: int = 1


class MatchRunner:
    """Plays profiles through the rollout manager. Episode k of block b starts from seeds that a profile's policies have in whatever order
    they sit, so that with players who share a population (i, j) and (j, i) are the two halves of mirrored blocks. Other profiles have luck
    of their own: with the same cards against everybody, a policy's luck would not average out over a mixture of opponents.
    """

    def __init__(
        self,
        rollouts: Rollouts[Any],
        policy: Callable[[PolicyRef], Policy],
        *,
        seed: int,
        early: EarlyMatches | None = None,
    ) -> None:
        """early: who may have played a match already."""
        self._rollouts, self._policy, self._seed, self._early = rollouts, policy, seed, early

    def returns(self, players: Mixture, episodes: int, *, block: int | str = 0) -> NDArray[np.float64]:
        """Return float64[episodes, P]: of `episodes`."""
        return self.episodes(players, episodes, block=block).returns

    def episodes(
        self, players: Mixture, episodes: int, *, block: int | str = 0, on_progress: ProgressCallback | None = None
    ) -> EpisodeResults:
        """So many where every seat is drawn from `players`. Another `block` gives independent ones; no match has one with a name.
        on_progress: called now and then with the number that have ended; what it raises ends all."""
        return self._rollouts.finish(
            self._start(players, episodes, block, on_progress=on_progress), on_progress=on_progress
        ).episodes

    @property
    def statistics(self) -> tuple[str, ...]:
        """Return what the environment counts, by name."""
        return self._rollouts.spec.statistics

    def play_planned(self, episodes: PlannedEpisodes, *, on_progress: ProgressCallback | None = None) -> EpisodeResults:
        """Return what came of these episodes, in their order. on_progress: as of `episodes`."""
        episodes = episodes.of_players()
        policies = [(ref, self._policy(ref)) for ref in episodes.refs]
        waiting: deque[Pending] = deque()
        results: list[EpisodeResults] = []

        def within(ended: int) -> None:
            if on_progress is not None:
                on_progress(sum(len(one.index) for one in results) + ended)

        listen = None if on_progress is None else within  # hosts are not asked for what nobody wants to know

        def finish() -> None:
            results.append(self._rollouts.finish(waiting.popleft(), on_progress=listen).episodes)
            within(0)

        for request in episodes.requests(self._rollouts.num_envs):
            waiting.append(
                self._rollouts.start(request, policies, task_slot=self._rollouts.match_slot, on_progress=listen)
            )
            if self._rollouts.hosts == 1:  # several have the next request at once
                finish()
        while waiting:
            finish()
        return EpisodeResults.joined(results)

    def play(
        self,
        profiles: Iterable[MatchProfile],
        episodes: int,
        *,
        ahead: int = 1,
        on_progress: ProgressCallback | None = None,
    ) -> Iterator[Match]:
        """One match for each profile, in their order, whose portions are `episodes` long; `ahead` of them are given out at a time, so that
        workers which are done with one go on with the next. on_progress: called now and then with the number of episodes of the
        present match that have ended; what it raises ends all."""
        waiting: deque[tuple[MatchProfile, Pending | None]] = deque()
        for profile in profiles:
            elsewhere = self._early is not None and self._early.has(profile)
            waiting.append((profile, None if elsewhere else self.start(profile, episodes, on_progress=on_progress)))
            if len(waiting) >= ahead:
                yield self._next(waiting, episodes, on_progress)
        while waiting:
            yield self._next(waiting, episodes, on_progress)

    def _next(
        self, waiting: deque[tuple[MatchProfile, Pending | None]], episodes: int, on_progress: ProgressCallback | None
    ) -> Match:
        profile, pending = waiting.popleft()
        match = None
        if self._early is not None:
            self._early.poll()
            match = self._early.take(profile, on_progress=on_progress) if pending is None else None
        return match or self.finish(
            profile, pending or self.start(profile, episodes, on_progress=on_progress), on_progress=on_progress
        )

    def start(self, profile: MatchProfile, episodes: int, *, on_progress: ProgressCallback | None = None) -> Pending:
        """Have the match of a profile played, whose portions are `episodes` long, and do not wait for it."""
        alone = Mixture((OpponentFactor(tuple(range(len(profile.seats))), (profile.seats,), (1.0,)),))
        return self._start(alone, episodes * profile.portions, *_seed_words(profile), on_progress=on_progress)

    def close(self) -> None:
        """End who plays for it."""
        self._rollouts.close()

    def is_done(self, pending: Pending) -> bool:
        """Return whether `complete` would not wait; of a rollout manager with one host."""
        try:
            return bool(self._rollouts.done([pending], at_least=0, timeout=0.0))
        except PartDied:  # it was stuck and has no restart left, as `complete` will say
            return True

    def _start(
        self, players: Mixture, episodes: int, *luck: int | str, on_progress: ProgressCallback | None = None
    ) -> Pending:
        request = RolloutRequest.evaluation(players, episodes, seed=seeding.key(self._seed, "matches", *luck))
        policies = [(ref, self._policy(ref)) for ref in mixture_refs(players)]
        slot = self._rollouts.match_slot
        pending: Pending = self._rollouts.start(request, policies, task_slot=slot, on_progress=on_progress)
        return pending

    def finish(self, profile: MatchProfile, pending: Pending, *, on_progress: ProgressCallback | None = None) -> Match:
        """Wait for a match that was begun."""
        episodes = self._rollouts.finish(pending, on_progress=on_progress).episodes
        returns = episodes.returns
        totals = moments(returns)
        name = "-".join(map(str, profile.index))
        return Match(
            f"match-{name}-{profile.block}",
            profile.index,
            profile.seats,
            len(returns),
            totals.mean,
            totals.m2,
            wins=outcomes(returns),
            statistics=statistics_of(self.statistics, episodes.statistics),
            outside=wider_range(self._rollouts.spec.utility_range, returns),
        )


@dataclass(slots=True, eq=False)
class _Table:
    """A runner and the match that it plays, if any."""

    player: MatchRunner
    profile: MatchProfile | None = None
    pending: Pending | None = None


class EarlyMatches:
    """Plays matches before they are asked for, by players of its own, while others train. A match is the same whoever plays it and when:
    what it draws depends on its profile and block alone. So this changes no result; one that nobody asks for was played for nothing.

    It begins with the last that are expected, so that whoever is asked meanwhile comes towards it from the first.
    """

    def __init__(self, players: Sequence[MatchRunner], episodes: int, *, tell: Callable[[str], None]) -> None:
        """players: each with a rollout manager of one host, which belongs to it. episodes: of a portion. tell: takes the sentence that a
        player has died too often, and plays no more."""
        self._tables = [_Table(player) for player in players]
        self._episodes, self._tell = episodes, tell
        self._waiting = dict[MatchProfile, None]()
        self._done = dict[MatchProfile, Match]()

    def expect(self, profiles: Iterable[MatchProfile]) -> None:
        """These will be asked for; what else was expected and has not begun will not."""
        known = {*self._done, *(table.profile for table in self._tables)}
        self._waiting = dict.fromkeys(profile for profile in profiles if profile not in known)
        self.poll()

    def poll(self) -> None:
        """Take what is done, and begin more."""
        for table in list(self._tables):
            if table.pending is not None and table.player.is_done(table.pending):
                self._finish(table)
            if table.pending is None and self._waiting and table in self._tables:
                table.profile, _ = self._waiting.popitem()
                table.pending = table.player.start(table.profile, self._episodes)

    def has(self, profile: MatchProfile) -> bool:
        """Return whether a match was begun. If not, it is not expected any more: who asks plays it."""
        self._waiting.pop(profile, None)
        return profile in self._done or any(table.profile == profile for table in self._tables)

    def take(self, profile: MatchProfile, *, on_progress: ProgressCallback | None = None) -> Match | None:
        """Return a match that was begun, once it is done; None if its player has died too often. on_progress: as in `MatchRunner.play`."""
        for table in list(self._tables):
            if table.profile == profile:
                self._finish(table, on_progress)
        return self._done.pop(profile, None)

    def _finish(self, table: _Table, on_progress: ProgressCallback | None = None) -> None:
        profile, pending = table.profile, table.pending
        assert profile is not None
        assert pending is not None
        table.profile = table.pending = None
        try:
            self._done[profile] = table.player.finish(profile, pending, on_progress=on_progress)
        except PartDied as error:  # no restart is left
            self._tables.remove(table)
            table.player.close()
            self._tell(
                f"one process fewer plays matches while others train: {error} The run goes on; others play them."
            )

    def close(self) -> None:
        """End the players. Closing twice is harmless."""
        for table in self._tables:
            table.player.close()
        self._tables = []


def _seed_words(profile: MatchProfile) -> list[int | str]:
    """Return what the seeds of its episodes depend on: not on the order of the seats, nor on how old the weights are."""
    return [profile.block, *sorted(f"{ref.population}/{ref.policy}" for ref in profile.seats)]


def outcomes(returns: NDArray[np.float64]) -> tuple[tuple[int, int, int], ...]:
    """Return float64[n, P] -> per player (won, drawn, lost): the highest return alone wins, shared it draws. Of one player: above and at
    0."""
    if returns.shape[1] == 1:
        returns = np.concatenate([returns, np.zeros_like(returns)], axis=1)
        return outcomes(returns)[:1]
    best = returns.max(axis=1, keepdims=True)
    top = returns == best
    alone = top.sum(axis=1, keepdims=True) == 1
    wins, draws = (top & alone).sum(axis=0), (top & ~alone).sum(axis=0)
    return tuple((int(w), int(d), int(len(returns) - w - d)) for w, d in zip(wins, draws, strict=True))
