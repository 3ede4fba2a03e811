"""Tournaments: everybody against everybody, in every seat, stored piece by piece.

entrants -> meetings -> what is not stored yet, in pieces -> [ policies: rollout workers, thousands at once
                                                            | bots: processes that can be ended            ] -> store -> report
With a budget the pieces come in rounds, and each depends on what is stored (`ludus.tournament.ranking_decisions`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import ConfigError, RunError
from ludus.core.types import EnvSpec, PolicyRef
from ludus.envs.config import Environment
from ludus.envs.tree.game_tree import GameTree, find_tree
from ludus.evaluation.evaluate import Tell
from ludus.evaluation.exact import tree_on
from ludus.evaluation.matches import MatchRunner, outcomes
from ludus.evaluation.policies import FindRun
from ludus.evaluation.run_ratings import parse_ratings
from ludus.metagame.population.match_log import Moments, moments, statistics_of
from ludus.metagame.population.ratings.base import Rater
from ludus.policies.agents import FOLDER as AGENT_LOGS
from ludus.policies.agents import fault_notes
from ludus.policies.base import Policy
from ludus.policies.bots import DEADLINE, BotPolicy, BotSettings
from ludus.rollout.base import EpisodeResults, PlannedEpisodes
from ludus.rollout.host import LocalRollouts, PolicyMessage
from ludus.rollout.manager import RolloutManager
from ludus.rollout.rollouts import Rollouts
from ludus.runtime.base import Runtime
from ludus.runtime.inprocess import build_runtime
from ludus.tournament.entrants import Entrant, EntrantPlayer, TournamentField, read_field, run_at
from ludus.tournament.meetings import Chunk, Pairing, episode_seeds, missing_chunks, split_chunk
from ludus.tournament.pool import ProcessPool, Setup
from ludus.tournament.ranking_decisions import Rounds, decide_ranking
from ludus.tournament.results import PairingResult, pool_chunks
from ludus.tournament.tournament_report import TournamentReport, report_of
from ludus.tournament.tournament_store import PlayedChunk, TournamentStore, match_of_seating

_TREE_ENVS, _API_ENVS = 16_384, 1024
_BOT_ENVS = 128  # where bots play
_RESTARTS = 3  # of each process in which policies play
_STUCK = 600.0  # seconds without a step after which one is made again
_BATCH = 65_536  # episodes between two commits


@dataclass(frozen=True, slots=True)
class TournamentOptions:
    """How a tournament is played.

    Attributes:
        episodes: Deals of each pairing, each played in every seating.
        seed: Seed of all deals.
        deadline: Time limit of a bot in seconds, for start-up (at least 10) and for each move.
        workers: Processes for bots, and for policies where `runtime` has any.
        runtime: Where policies run.
        num_envs: Environments that are stepped together; None: by the kind of game.
        budget: Adaptive: instead of `episodes`, the most episodes in all, spent on pairs whose ranking is undecided.
        confidence: Probability that no decided ranking is wrong (see `ludus.tournament.ranking_decisions`).
    """

    episodes: int = 100
    seed: int = 0
    deadline: float = DEADLINE
    workers: int = 1
    runtime: str = "inprocess"
    num_envs: int | None = None
    budget: int | None = None
    confidence: float = 0.95


Options = TournamentOptions
"""Its name in earlier releases."""


def play_tournament(
    entrants: Sequence[str],
    folder: Path | str,
    *,
    find_run: FindRun = run_at,
    env: Environment | None = None,
    options: TournamentOptions | None = None,
    tell: Tell | None = None,
    ratings: Sequence[str] = (),
) -> TournamentReport:
    """Play what is missing of a round-robin tournament, and report it.

    The same call continues after a kill and counts nothing twice; with more entrants or more episodes it plays what is missing.

    Args:
        entrants: Names, as `ludus.tournament.entrants` reads them.
        folder: Directory of the results.
        find_run: Finds the directory of a run by its name.
        env: The game, if no entrant belongs to a run.
        options: How it is played.
        tell: Called with (episodes that are done, episodes in all).
        ratings: Ratings such as "elo,prior=2" or "openskill"; default: Bradley–Terry for two players.

    Returns:
        Standings, ratings and the cross-table.

    Raises:
        ConfigError: For a name of nothing, one that comes twice, and entrants of different games.
        RunError: If a run or the results cannot be read, or the results cannot be written.
        ScenarioError: For a bot that cannot play the game.
        PolicyError: For a bot that raises, makes an illegal move or exceeds its time limit; nothing of that chunk is stored.
    """
    options = options or TournamentOptions()
    raters = parse_ratings(ratings)
    field = read_field(entrants, env=env, find_run=find_run, deadline=options.deadline)
    return run_tournament(field, Path(folder), options, tell, raters=raters)


def run_tournament(
    field: TournamentField,
    folder: Path,
    options: TournamentOptions,
    tell: Tell | None = None,
    *,
    raters: Mapping[str, Rater] | None = None,
    camps: Mapping[str, int] | None = None,
) -> TournamentReport:
    """As `play_tournament`, with entrants and ratings that were read. camps: as `list_pairings` takes them."""
    _check(options)
    pairings = field.pairings(camps)
    facts = {e.name: (e.sha256, e.detail) for e in field.entrants}
    rounds = _rounds(options, pairings, field.spec)
    with (
        TournamentStore(folder, game=field.game, seed=options.seed, entrants=facts) as store,
        closing(_Play(field, options, store, tell)) as play,
    ):
        played = store.played()
        _check_orders(folder, played, pairings)
        if rounds is None:
            known = store.stored()
            play.all([p for m in pairings for p in missing_chunks(m, known.get(m.id, ()), options.episodes)])
        else:
            rounds.spec = play.spec
            while chunks := rounds.next_pieces(played):
                played = play.all(chunks, most=rounds.left)
                rounds.spec = play.spec
        results = pool_chunks(store.played(), pairings)
    if play.spec is not field.spec:
        _warned(
            f"{field.spec.id} had returns outside of its utility range {field.spec.utility_range}. What was seen is used, "
            f"{play.spec.utility_range}: decisions are less certain than they say. Give it a range that holds (env.options.utility_range)."
        )
    orders = None
    if options.budget is not None:
        orders = decide_ranking(results, play.spec, budget=options.budget, confidence=options.confidence)
    report = report_of(results, folder=folder, spec=play.spec, seats=field.able, raters=raters, orders=orders)
    return replace(report, notes=(*report.notes, *fault_notes(folder)))


def _check_orders(folder: Path, played: Sequence[PlayedChunk], pairings: Sequence[Pairing]) -> None:
    """Raise RunError for results of other orders of seats than are played now."""
    wanted = {pairing.id: pairing.seatings for pairing in pairings}
    for chunk in played:
        seatings = tuple(tuple(ref.policy for ref in match.seats) for match in chunk.matches)
        if seatings != wanted.get(chunk.pairing, seatings):
            raise RunError(
                f"in {str(folder)!r} {chunk.pairing} were played in other orders of their seats, {len(seatings)} of them, than they "
                f"are now, {len(wanted[chunk.pairing])}: an older Ludus chose them. Give another --dir."
            )


def _rounds(options: TournamentOptions, pairings: Sequence[Pairing], spec: EnvSpec) -> Rounds | None:
    if options.budget is None:
        return None
    return Rounds(pairings, spec, budget=options.budget, confidence=options.confidence)


def _check(options: TournamentOptions) -> None:
    if options.episodes < 2:
        raise ConfigError(f"episodes is {options.episodes}; an interval needs at least 2.")
    if options.workers < 1 or options.deadline <= 0:
        raise ConfigError(
            f"workers={options.workers}, deadline={options.deadline} were given; at least one worker and a positive deadline are needed."
        )


def _warned(sentence: str) -> None:
    """Of a process that has died, or environments that were made again."""
    warnings.warn(sentence, stacklevel=2)


class _Play:
    """Player of chunks, which it stores. Rollouts start once, when they are first needed."""

    def __init__(
        self, field: TournamentField, options: TournamentOptions, store: TournamentStore, tell: Tell | None
    ) -> None:
        self._field, self._options, self._store = field, options, store
        self._tell = tell or (lambda *_: None)
        self._sides = _Sides(field.entrants, field.spec)
        self.spec = store.widen(field.spec, np.empty((0, field.spec.num_players)))  # as returns turn out to be
        self._done = self._total = 0
        self._runtime: Runtime | None = None
        self._rollouts: Rollouts[Any] | None = None
        self._pool: ProcessPool | None = None
        self._records: list[PlayedChunk] = []

    def all(self, chunks: Sequence[Chunk], *, most: int | None = None) -> list[PlayedChunk]:
        """Return what they brought. Those between policies are played first. most: episodes that may be asked for, these included, if it is
        known (None: these are all)."""
        with_bots = {e.name for e in self._field.entrants if e.has_bots}
        slow = [p for p in chunks if with_bots & set(p.pairing.entrants)]
        fast = [p for p in chunks if not with_bots & set(p.pairing.entrants)]
        self._total = self._done + (sum(p.episodes for p in chunks) if most is None else most)
        self._records = []
        if fast:
            self._by_policies(fast)
        if slow:
            self._by_bots(slow)
        return self._records

    def close(self) -> None:
        """End whatever plays."""
        with ExitStack() as parts:
            for part in (self._pool, self._runtime, self._rollouts):
                if part is not None:
                    parts.callback(part.close)

    def _by_policies(self, chunks: Sequence[Chunk]) -> None:
        if self._rollouts is None:
            self._rollouts = self._start_rollouts(self._options.budget or sum(chunk.episodes for chunk in chunks))
        player = MatchRunner(self._rollouts, self._sides.policies.__getitem__, seed=self._options.seed)
        for batch in _batches([part for p in chunks for part in split_chunk(p, _BATCH)]):
            episodes = self._sides.episodes(batch, self._options.seed, refs=tuple(self._sides.policies))
            self._record(batch, player.play_planned(episodes, on_progress=self._on_progress))

    def _start_rollouts(self, most: int) -> Rollouts[Any]:
        """most: episodes that may be played at a time."""
        make_env, spec, num_envs = self._field.settings.make, self._field.spec, min(self._envs(), most)
        bots = BotSettings(restarts=_RESTARTS)
        if self._options.runtime == "inprocess":
            return LocalRollouts(make_env, spec=spec, num_envs=num_envs, bots=bots, tell=_warned)
        self._runtime = build_runtime(self._options.runtime)
        self._runtime.tell = _warned
        hosts = min(self._options.workers, num_envs)
        return RolloutManager(
            self._runtime,
            make_env,
            spec=spec,
            num_envs=num_envs,
            shards=hosts,
            hosts=hosts,
            resources={"num_cpus": 1.0} if hosts > 1 else {},
            restarts=_RESTARTS,
            bots=bots,
            deadline=_STUCK,
            tell=_warned,
        )

    def _envs(self) -> int:
        if self._options.num_envs is not None:
            return self._options.num_envs
        if self._field.spec.enumeration is not None:
            return _TREE_ENVS
        settings = self._field.settings
        return _API_ENVS if settings.id.startswith("openspiel/") else settings.num_envs

    def _by_bots(self, chunks: Sequence[Chunk]) -> None:
        if self._pool is None:
            self._pool = ProcessPool(
                Setup(
                    self._field.settings,
                    min(_BOT_ENVS, self._envs()),
                    tuple((ref, PolicyMessage(policy)) for ref, policy in self._sides.policies.items()),
                    self._sides.bots,
                    str(self._store.folder.absolute() / AGENT_LOGS),
                ),
                workers=self._options.workers,
                deadline=self._options.deadline,
                restarts=_RESTARTS,
                episodes=lambda chunk: self._sides.episodes([chunk], self._options.seed, refs=self._sides.refs),
                record=lambda chunk, episodes: self._record([chunk], episodes),
            )
        self._pool.play(chunks)

    def _on_progress(self, ended: int) -> None:
        """Of the batch that is played."""
        self._tell(self._done + ended, self._total)

    def _record(self, chunks: Sequence[Chunk], episodes: EpisodeResults) -> None:
        """episodes: of the pieces, in their order."""
        ends = list(accumulate(chunk.episodes for chunk in chunks))
        parts = np.split(np.arange(ends[-1]), ends[:-1])
        names = self._field.spec.statistics
        records = [_played(chunk, episodes.take(part), names) for chunk, part in zip(chunks, parts, strict=True)]
        self.spec = self._store.widen(self.spec, episodes.returns)
        self._store.record(records)
        self._records += records
        self._done += ends[-1]
        self._tell(self._done, self._total)


def _batches(chunks: Sequence[Chunk]) -> Iterator[list[Chunk]]:
    """Yield pieces that are played and stored together."""
    batch: list[Chunk] = []
    episodes = 0
    for chunk in chunks:
        if batch and episodes + chunk.episodes > _BATCH:
            yield batch
            batch, episodes = [], 0
        batch.append(chunk)
        episodes += chunk.episodes
    yield batch


def _played(chunk: Chunk, episodes: EpisodeResults, names: Sequence[str]) -> PlayedChunk:
    """episodes: deals × seatings, the seatings of a deal side by side. names: of their statistics."""
    pairing, returns = chunk.pairing, episodes.returns
    by_seating = returns.reshape(chunk.n, len(pairing.seatings), returns.shape[1])
    matches = []
    for k, seats in enumerate(pairing.seatings):
        totals = moments(by_seating[:, k])
        match = match_of_seating(pairing, chunk.first, seats, totals, outcomes(by_seating[:, k]))
        counted = None if episodes.statistics is None else episodes.statistics[k :: len(pairing.seatings)]
        matches.append(replace(match, statistics=statistics_of(names, counted)))
    total = moments(by_seating.reshape(chunk.n, -1) @ _shares(pairing))
    return PlayedChunk(pairing.id, chunk.first, chunk.n, total.mean, total.m2, tuple(matches))


def _shares(pairing: Pairing) -> NDArray[np.float64]:
    """Return float64[seatings × P, entrants]: weights whose product with a deal's returns is each entrant's mean over its seats."""
    seats = np.array(pairing.seatings).ravel()
    seated = seats[:, None] == np.array(pairing.entrants)[None, :]
    shares: NDArray[np.float64] = seated / seated.sum(axis=0)
    return shares


def _key(player: EntrantPlayer) -> tuple[int, str]:
    """Return the same for one policy, or bot, of several entrants."""
    return id(player.policy), player.mode


class _Sides:
    """All players of all entrants, and how a piece's episodes are drawn from them. refs: of the policies, then of the bots."""

    def __init__(self, entrants: Sequence[Entrant], spec: EnvSpec) -> None:
        self._count = spec.num_players
        seats = [seat for entrant in entrants for seat in entrant.seats if seat is not None]
        players_by_key = {_key(player): player for seat in seats for player in seat.players}
        self.policies: dict[PolicyRef, Policy] = {}
        self.bots: dict[PolicyRef, BotPolicy] = {}
        refs: dict[tuple[int, str], PolicyRef] = {}
        for k, (key, player) in enumerate(players_by_key.items()):
            refs[key] = ref = PolicyRef(0, str(k), mode=player.mode)
            if isinstance(player.policy, BotPolicy):
                self.bots[ref] = player.policy
            else:
                self.policies[ref] = player.policy
        self.refs = (*self.policies, *self.bots)
        place = {ref: k for k, ref in enumerate(self.refs)}
        self._distributions: dict[tuple[str, int], tuple[NDArray[np.int32], NDArray[np.float64]]] = {}
        for entrant in entrants:
            for p, seat in enumerate(entrant.seats):
                if seat is None:
                    continue
                places = [place[refs[_key(player)]] for player in seat.players]
                cumulative = np.cumsum(np.array(seat.probs) / np.sum(seat.probs))
                self._distributions[entrant.name, p] = np.array(places, np.int32), cumulative[:-1]
        self._keys: list[np.uint64] = []

    def episodes(self, chunks: Sequence[Chunk], seed: int, *, refs: tuple[PolicyRef, ...]) -> PlannedEpisodes:
        """refs: whoever may play, the first ones of all. The orders of a deal share its luck, and no more."""
        total = sum(chunk.episodes for chunk in chunks)
        seats = np.empty((total, self._count), np.int32)
        deal = np.empty(total, np.uint64)
        own = np.empty(total, np.uint64)
        at = 0
        for chunk in chunks:
            orders, end = chunk.pairing.seatings, at + chunk.episodes
            keys = episode_seeds(chunk, seed)
            deal[at:end] = np.repeat(keys, len(orders))
            for k, order in enumerate(orders):
                rows = slice(at + k, end, len(orders))
                own[rows] = keys ^ self._key_of(seed, k)
                for p, name in enumerate(order):
                    seats[rows, p] = self._draw(name, p, own[rows])
            at = end
        return PlannedEpisodes(refs, seats, deal, own)

    def _key_of(self, seed: int, order: int) -> np.uint64:
        """Return what tells the orders of a deal apart."""
        while len(self._keys) <= order:
            self._keys.append(np.uint64(seeding.key(seed, "tournament order", len(self._keys))))
        return self._keys[order]

    def _draw(self, name: str, player: int, keys: NDArray[np.uint64]) -> NDArray[np.int32] | np.int32:
        places, cumulative = self._distributions[name, player]
        if len(places) == 1:
            return np.int32(places[0])
        at = np.full(len(keys), np.uint64(2**63 + player))  # counters that no decision of an episode reaches
        choice: NDArray[np.int32] = places[np.searchsorted(cumulative, seeding.uniforms(keys, at), side="right")]
        return choice


# --------------------------------------------------------------------------------------------------------------------
# A tournament on a compiled game tree, computed instead of played.


def computable(field: TournamentField) -> bool:
    """Return whether the game is a compiled tree, and what everybody does is a function of its states."""
    enumeration = field.spec.enumeration
    return enumeration is not None and all(
        who.policy.tabulate(enumeration, p, mode=who.mode) is not None
        for entrant in field.entrants
        for p, seat in enumerate(entrant.seats)
        if seat is not None
        for who in seat.players
    )


def exact_tournament(
    field: TournamentField,
    *,
    raters: Mapping[str, Rater] | None = None,
    camps: Mapping[str, int] | None = None,
    device: str = "auto",
) -> TournamentReport:
    """Return expected returns of all meetings. raters: as `report_of` takes them. camps: as `list_pairings` does. device: as `tree_on`.

    Raises ConfigError for a game without a tree, and for an entrant that cannot be tabulated (a bot, or a policy with memory); what the
    raters raise.
    """
    env = field.settings.make(num_envs=1)
    tree = find_tree(env)
    env.close()
    if tree is None:
        raise ConfigError(
            f"{field.spec.id} is not compiled into a tree ({field.spec.no_tree}), so nothing can be computed; leave out --exact."
        )
    pairings = field.pairings(camps)
    place: list[dict[str, int]] = [{} for _ in range(tree.num_players)]
    stacks = []
    for p in range(tree.num_players):
        able = [e for e in field.entrants if e.seats[p] is not None]
        place[p] = {e.name: k for k, e in enumerate(able)}
        stacks.append(np.array([_plan(tree, e, p) for e in able]))
    by_profile = np.ascontiguousarray(np.moveaxis(tree_on(tree, device).payoffs(stacks), 0, -1))
    results = [_result(pairing, by_profile, place) for pairing in pairings]
    return report_of(results, folder=None, spec=field.spec, seats=field.able, raters=raters)


def _plan(tree: GameTree, entrant: Entrant, player: int) -> NDArray[np.float64]:
    """Return float64[S_p]: of the mixture that an entrant sends to this seat."""
    seat = entrant.seats[player]
    assert seat is not None
    plan = np.zeros(tree.num_sequences(player))
    for who, prob in zip(seat.players, seat.probs, strict=True):
        table = who.policy.tabulate(tree.enumeration, player, mode=who.mode)
        if table is None:
            raise ConfigError(
                f"{entrant.name!r} is a bot, or has memory: its returns can be played, not computed. Leave out --exact."
            )
        plan += prob * tree.realization(player, table)
    return plan


def _result(pairing: Pairing, by_profile: NDArray[np.float64], place: Sequence[dict[str, int]]) -> PairingResult:
    """by_profile: float64[n_0, …, P]."""
    matches = []
    total, count = dict.fromkeys(pairing.entrants, 0.0), dict.fromkeys(pairing.entrants, 0)
    for seats in pairing.seatings:
        values = by_profile[tuple(place[p][name] for p, name in enumerate(seats))]
        match = match_of_seating(pairing, 0, seats, Moments(0, values, np.zeros_like(values)), ())
        matches.append(replace(match, exact=True))
        for name, value in zip(seats, values.tolist(), strict=True):
            total[name] += value
            count[name] += 1
    mean = np.array([total[name] / count[name] for name in pairing.entrants])
    return PairingResult(pairing, 0, mean, np.zeros_like(mean), tuple(matches), exact=True)
