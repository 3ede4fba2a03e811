"""Who plays each episode: the learner in its own seat, opponents drawn once per episode from a mixture's factors.

A draw is a function of (request's seed, environment, episode, factor) alone, so it does not depend on the other environments, nor on
when the episode starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.arrays import kernel
from ludus.core.errors import PolicyError, ScenarioError
from ludus.core.types import Mixture, OpponentFactor, PolicyRef
from ludus.policies.specs import mode_keys, sample_modes
from ludus.rollout.base import PlannedEpisodes, RolloutRequest
from ludus.rollout.shards import Shard

LEARNER = -1
_TOLERANCE = 1e-6


class OpponentSampler:
    """Draws of one request, for the E environments of a shard and P players.

    seat int8[E]: the learner's, its first one where it plays several (-1: none). mine bool[P, E]: whether the learner plays player p in
    environment e. learners: the players that it plays somewhere; others: those that it does not play everywhere; shared: both.
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
        self.policy = np.full((num_envs, num_players), LEARNER, np.int32)
        self._keys = shard.keys(request.seed, "opponents") if factors else np.empty(0, np.uint64)
        self._cumulative, self._policies, self._seats = compiled(factors, num_players, known, always=always(request))
        if request.planned is not None:
            self.policy[:] = _planned(request.planned, shard, known)

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
        if not len(self._seats):
            return
        _draw(
            environments,
            episode,
            self._keys,
            self._cumulative,
            self._policies,
            self._seats,
            self.seat,
            self.entry,
            self.policy,
        )


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


@kernel
def _draw(environments, episode, keys, cumulative, policies, seats, learner, entry, policy):  # type: ignore[no-untyped-def]
    factors, players = seats.shape
    for e in environments:
        for f in range(factors):
            u = seeding.uniform(keys[e], np.uint64(episode[e] * factors + f))
            k = 0
            while u >= cumulative[f, k]:
                k += 1
            needed = False
            for p in range(players):
                if seats[f, p] and p != learner[e] and policies[f, k, p] != LEARNER:
                    policy[e, p] = policies[f, k, p]
                    needed = True
            entry[e, f] = k if needed else -1
