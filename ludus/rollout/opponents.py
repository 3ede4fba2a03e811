"""Opponents. Of a task, rollout by rollout: live refs become versions, and a rule moves probabilities. Of an episode: the learner sits in
its own seat, the others are drawn once per episode from a mixture's factors.

A draw is a function of (request's seed, environment, episode, factor) alone, so it does not depend on the other environments, nor on
when the episode starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.arrays import addresses, flat_at, kernel, rows_at
from ludus.core.errors import PolicyError, ScenarioError
from ludus.core.parts import build_part
from ludus.core.types import AdaptiveMixture, Mixture, OpponentFactor, Opponents, PolicyRef, State
from ludus.core.user_code import distribution, qualified_name
from ludus.policies.specs import mode_keys, sample_modes
from ludus.rollout.base import EpisodeResults, PlannedEpisodes, RolloutRequest, Shard
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
            rule = build_part("rule", {"kind": opponents.rule, **opponents.options}, RULES, (Rule, NoRegret, PerGroup))
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


LEARNER = -1
_TOLERANCE = 1e-6


class OpponentSampler:
    """Draws of one request, for the E environments of a shard and P players.

    seat int8[E]: the learner's, its first one where it plays several (-1: none). mine bool[P, E]: whether the learner plays player p in
    environment e. learners: the players that it plays somewhere; others: those that it does not play everywhere; shared: both.
    entry int32[E, F], policy int32[P, E]: by the last `draw`, entries of the factors and indices in the bank (-1: none).
    learner: index of the learner's policy in the bank; where it has modes, one of each: see `acting`.
    """

    def __init__(self, request: RolloutRequest, *, shard: Shard, num_players: int, refs: Sequence[PolicyRef]) -> None:
        check_request(request, num_players)
        num_envs = shard.num_envs
        known = {ref: k for k, ref in enumerate(refs)}
        factors = request.opponents.factors
        self.learner = LEARNER if request.learner is None else _index(known, request.learner)
        self._modes = request.modes
        self._acting = np.array([_index(known, ref) for ref in learner_refs(request)], np.int32)
        self._mode_keys = mode_keys(request.modes_seed, num_players) if request.modes else np.empty(0, np.uint64)
        self.seat = np.full(num_envs, LEARNER, np.int8)
        if request.learner is not None:
            self.seat[:] = np.array(request.seats, np.int8)[shard.environments % len(request.seats)]
        self.is_learner = self.seat[None, :] == np.arange(num_players, dtype=np.int8)[:, None]
        if request.together:
            self.seat[:] = request.seats[0]
            self.is_learner[:] = np.isin(np.arange(num_players), request.seats)[:, None]
        self.learners = [p for p, row in enumerate(self.is_learner) if row.any()]
        self.others = [p for p, row in enumerate(self.is_learner) if not row.all()]
        self.shared = set(self.learners) & set(self.others)
        if request.planned is not None:  # an environment plays one episode, so nobody is drawn for a second one
            self.others = []
        self.entry = np.full((num_envs, len(factors)), -1, np.int32)
        self.policy = np.full((num_players, num_envs), LEARNER, np.int32)
        keys = shard.keys(request.seed, "opponents") if factors else np.empty(0, np.uint64)
        cumulative, policies, seats = compiled(factors, num_players, known, always=always(request))
        self._held = keys, cumulative, policies, seats, self.seat, self.entry, self.policy  # as long as their addresses
        self._table = addresses(*self._held)
        self._shape = cumulative.shape
        if request.planned is not None:
            self.policy[:] = _planned(request.planned, shard, known).T

    def adopt(self, last: OpponentSampler) -> None:
        """Go on with the open episodes of the last request: what was drawn for them stays (invariant 1)."""
        if not np.array_equal(self.is_learner, last.is_learner) or self.entry.shape != last.entry.shape:
            raise ScenarioError(
                "a request that carries on has other seats, or another number of opponent factors, than the request before it; "
                "give the same ones, or carry_on=False."
            )
        self.entry[...] = last.entry

    @property
    def varies(self) -> bool:
        """Whether the learner's mode differs from episode to episode."""
        return bool(self._modes)

    def acting(self, player: int, episode: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return indices in the bank, int32[n]: the learner's policy, in the modes that it plays this seat of the episodes int64[n] in."""
        if not self._modes:
            return np.full(len(episode), self.learner, np.int32)
        keys = np.full(len(episode), self._mode_keys[player])
        return self._acting[sample_modes(keys, episode, self._modes)]

    def draw(self, environments: NDArray[np.int32], episode: NDArray[np.int64]) -> None:
        """Draw the opponents of `episode[environment]` for each given environment, into `entry` and `policy`."""
        factors, entries = self._shape
        if factors:
            _draw(environments, episode, factors, entries, len(self.policy), self._table)


def check_request(request: RolloutRequest, num_players: int) -> None:
    """Raise ScenarioError unless every seat has exactly one source of policies and the probabilities are distributions."""
    if request.amount < 1:
        raise ScenarioError(f"a request for {request.amount} {request.unit} was given; at least 1 is needed.")
    if request.unit == "episodes" and request.carry_on:
        raise ScenarioError("a request for whole episodes cannot carry on with open ones; give unit='decisions'.")
    if request.learner is None and request.unit == "decisions":
        raise ScenarioError("a request without a learner was given in its decisions; give unit='episodes'.")
    if request.learner is None and request.together:
        raise ScenarioError(
            "a request without a learner was given together=True, which is about the learner's seats; leave it out."
        )
    if request.modes:
        _check_modes(request)
    if request.learner is not None and not request.seats:
        raise ScenarioError(f"the learner {request.learner.policy!r} was given no seat; name at least one in `seats`.")
    wrong = [seat for seat in request.seats if not 0 <= seat < num_players]
    if wrong:
        raise ScenarioError(f"seats {wrong} were given to the learner; the game has players 0 to {num_players - 1}.")
    for factor in request.opponents.factors:
        _check_factor(factor, num_players)
    _check_seats(request, num_players)


def _check_modes(request: RolloutRequest) -> None:
    shares = [share for _, share in request.modes]
    if request.learner is None:
        raise ScenarioError("a request without a learner was given modes for it; name them in the opponents' refs.")
    if not all(share >= 0 for share in shares) or abs(sum(shares) - 1) > _TOLERANCE:
        raise ScenarioError(
            f"the learner's modes were given as {dict(request.modes)}; they need probabilities that sum to 1."
        )


def _check_factor(factor: OpponentFactor, num_players: int) -> None:
    total = sum(factor.probs)
    if not factor.entries or len(factor.entries) != len(factor.probs):
        raise ScenarioError(
            f"seats {factor.seats} have {len(factor.entries)} opponents and {len(factor.probs)} probabilities; give one "
            "probability for each opponent, and at least one."
        )
    if not all(p >= 0 for p in factor.probs) or abs(total - 1) > _TOLERANCE:
        raise ScenarioError(
            f"the opponents' probabilities for seats {factor.seats} are {factor.probs}; they must sum to 1."
        )
    for entry in factor.entries:
        if len(entry) != len(factor.seats):
            raise ScenarioError(
                f"seats {factor.seats} were given {len(entry)} policies in one entry; give one per seat."
            )
    if any(not 0 <= seat < num_players for seat in factor.seats):
        raise ScenarioError(
            f"opponents were given for seats {factor.seats}; the game has players 0 to {num_players - 1}."
        )


def _check_seats(request: RolloutRequest, num_players: int) -> None:
    if request.planned is not None:
        if request.learner is not None or request.opponents.factors or request.amount != len(request.planned.luck):
            raise ScenarioError(
                "planned episodes were given beside a learner or opponents, or in another number; they are all that is played."
            )
        return
    seats = [seat for factor in request.opponents.factors for seat in factor.seats]
    if len(seats) != len(set(seats)):
        raise ScenarioError(f"opponents were given for seats {sorted(seats)}; each seat may be in only one factor.")
    missing = [seat for seat in range(num_players) if seat not in seats and seat not in always(request)]
    if missing:
        raise ScenarioError(
            f"no opponents were given for seats {missing}; every seat that the learner does not always play needs a factor."
        )


def always(request: RolloutRequest) -> set[int]:
    """Return the seats that only the learner ever plays."""
    seats = set() if request.learner is None else set(request.seats)
    return seats if request.together or len(seats) == 1 else set()


def learner_refs(request: RolloutRequest) -> tuple[PolicyRef, ...]:
    """Return the learner's refs that a request names: one, or one for each of its modes."""
    if request.learner is None:
        return ()
    return tuple(request.learner._replace(mode=mode) for mode, _ in request.modes) or (request.learner,)


def mixture_refs(mixture: Mixture) -> tuple[PolicyRef, ...]:
    """Return every policy that a mixture can draw, each once, in order of appearance."""
    return tuple(dict.fromkeys(ref for f in mixture.factors for entry in f.entries for ref in entry))


def _index(known: dict[PolicyRef, int], ref: PolicyRef) -> int:
    if ref not in known:
        raise PolicyError(
            f"the request names {ref}, which the policy bank has not loaded; load every policy of a request before running it."
        )
    return known[ref]


def _planned(planned: PlannedEpisodes, shard: Shard, known: dict[PolicyRef, int]) -> NDArray[np.int32]:
    """Return int32[E, P], bank indices. An environment without an episode has the players of the last one."""
    if len(planned.luck) > shard.total:
        raise ScenarioError(
            f"{len(planned.luck)} planned episodes were given for {shard.total} environments, which play one each; give fewer at a time."
        )
    places = np.array([_index(known, ref) for ref in planned.refs], np.int32)
    episode = np.minimum(shard.environments, len(planned.luck) - 1)
    return places[planned.seats[episode]]


def compiled(
    factors: Sequence[OpponentFactor], num_players: int, known: dict[PolicyRef, int], *, always: set[int]
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.bool_]]:
    """Return cumulative float64[F, K], bank indices int32[F, K, P] (-1 outside the factor's seats), seats bool[F, P]."""
    most = max((len(f.entries) for f in factors), default=1)
    cumulative = np.full((len(factors), most), np.inf)
    policies = np.full((len(factors), most, num_players), LEARNER, np.int32)
    seats = np.zeros((len(factors), num_players), np.bool_)
    for f, factor in enumerate(factors):
        probs = np.array(factor.probs)
        last = int(np.flatnonzero(probs > 0)[-1])
        cumulative[f, :last] = np.cumsum(probs / probs.sum())[:last]
        seats[f, list(factor.seats)] = True
        for k, entry in enumerate(factor.entries):
            for seat, ref in zip(factor.seats, entry, strict=True):
                if seat not in always:
                    policies[f, k, seat] = _index(known, ref)
    return cumulative, policies, seats


_KEYS, _CUMULATIVE, _POLICIES, _SEATS, _LEARNER, _ENTRY, _POLICY = range(7)  # places in the table of `_draw`


@kernel
def _draw(environments, episode, factors, entries, players, table):  # type: ignore[no-untyped-def]
    keys, cumulative = flat_at(table, _KEYS, np.uint64), rows_at(table, _CUMULATIVE, np.float64, entries)
    policies, seats = rows_at(table, _POLICIES, np.int32, players), rows_at(table, _SEATS, np.bool_, players)
    learner, entry = flat_at(table, _LEARNER, np.int8), rows_at(table, _ENTRY, np.int32, factors)
    policy = rows_at(table, _POLICY, np.int32, len(learner))
    for e in environments:
        for f in range(factors):
            u = seeding.uniform(keys[e], np.uint64(episode[e] * factors + f))
            k = 0
            while u >= cumulative[f, k]:
                k += 1
            needed = False
            for p in range(players):
                member = policies[f * entries + k, p]
                if seats[f, p] and p != learner[e] and member != LEARNER:
                    policy[p, e] = member
                    needed = True
            entry[e, f] = k if needed else -1
