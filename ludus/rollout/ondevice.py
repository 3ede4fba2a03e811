r"""Rollouts on a device: a learner and its opponents act where the environments live, and what the learner did stays there.

request --> draws: who sits where, episode by episode
            tables of all (enumerated games), or networks --actions--> DeviceVectorEnv --> Block, results of episodes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.backend.device import generator_on, scalars_to_host, to_device, to_numpy
from ludus.core import seeding
from ludus.core.errors import EnvError
from ludus.core.types import Enumeration, EnvSpec, PolicyRef
from ludus.envs.device_vector import DeviceTimestep, DeviceVectorEnv
from ludus.policies.specs import information_state_ids
from ludus.replay.blocks import Block, placed_where
from ludus.rollout.base import EpisodeResults, EpisodeSums, Rollout, RolloutRequest
from ludus.rollout.opponents import always, check_request, compiled, learner_refs, mixture_refs

Stream = torch.Generator | None


class NetworkOpponent(Protocol):
    """An opponent that plays by networks."""

    def act(self, x: Tensor, mask: Tensor | None, generator: Stream) -> Tensor:
        """Actions [n, …] for observations [n, *shape], mask bool[n, A] or None."""
        ...


class ActingLearner(Protocol):
    """A learner."""

    def act(self, x: Tensor, mask: Tensor | None, generator: Stream) -> tuple[Tensor, Tensor]:
        """Return as `NetworkOpponent.act`, and the actions' log-probabilities float32[n]."""
        ...

    def table(self) -> Tensor:
        """Return, in an enumerated game, the log-probabilities float32[I, A] of its newest policy in the states that its seats cover; -inf
        where illegal."""
        ...


class Opponent(Protocol):
    """Gives a policy on the device: as probabilities float64[I_p, A] of a player's states in an enumerated game, else as what acts."""

    def table(self, ref: PolicyRef, player: int) -> NDArray[np.float64]: ...
    def acts(self, ref: PolicyRef) -> NetworkOpponent: ...


# --------------------------------------------------------------------------------------------------------------------
# Who sits where.

LEARNER = 0  # among the policies of a request; its opponents come behind it


class SeatAssignment:
    """Draws of one request, on the device. refs: the opponents that the mixture names, in its order.

    learners: the players that the learner plays in some environment, rising. mine bool[E, P]: whether it plays; seat int64[E]: where, first
    of all. policy int64[E, P]: who does, 0 for the learner, k + 1 for refs[k]; plays: (who, player) of the opponents that may be drawn.
    entry int64[E, F] drawn of each factor (-1: of the learner's own seats)."""

    def __init__(self, request: RolloutRequest, *, num_envs: int, num_players: int, device: torch.device) -> None:
        check_request(request, num_players)
        seats_in_turn, players = request.seats, torch.arange(num_players, device=device)
        environments = torch.arange(num_envs, device=device)
        self.seat = to_device(np.array(seats_in_turn), device)[environments % len(seats_in_turn)]
        self.is_learner = self.seat[:, None] == players
        present = set(seats_in_turn[:num_envs])
        if request.together:
            self.seat, present = torch.full_like(self.seat, seats_in_turn[0]), set(seats_in_turn)
            self.is_learner = to_device(np.isin(np.arange(num_players), seats_in_turn), device).expand(num_envs, -1)
        self.learners = sorted(present)
        alone = present if request.together or len(present) == 1 else set()
        self.others = [p for p in range(num_players) if p not in alone]
        self.refs: tuple[PolicyRef, ...] = ()
        self.plays: tuple[tuple[int, int], ...] = ()
        factors = request.opponents.factors
        self.policy = torch.zeros(num_envs, num_players, dtype=torch.int64, device=device)
        self.entry = torch.full((num_envs, len(factors)), -1, dtype=torch.int64, device=device)
        self._factor = np.full(num_players, -1)  # of each seat
        for f, factor in enumerate(factors):
            self._factor[list(factor.seats)] = f
        free_seats = [[p for p in factor.seats if p not in always(request)] for factor in factors]
        self._needed = [(~self.is_learner[:, seats]).any(1) for seats in free_seats]
        self.load(request)

    def load(self, request: RolloutRequest) -> None:
        """Draw from the mixture of this request from now on, which has the same entries."""
        own = {*learner_refs(request)} - _named_outside(request)
        self.refs = tuple(ref for ref in mixture_refs(request.opponents) if ref not in own)
        known = {ref: k for k, ref in enumerate(self.refs, 1)} | dict.fromkeys(own, LEARNER)
        factors, (players, device) = request.opponents.factors, (self.policy.shape[1], self.policy.device)
        cumulative, policies, _ = compiled(factors, players, known, always=always(request))
        self.plays = tuple((int(k), p) for p in self.others for k in np.unique(policies[:, :, p]) if k > LEARNER)
        room = room_for(cumulative.shape[1]) - cumulative.shape[1]
        cumulative = np.pad(cumulative, ((0, 0), (0, room)), constant_values=np.inf)
        policies = np.pad(policies, ((0, 0), (0, room), (0, 0)))
        self.cumulative = to_device(cumulative, device)
        self.policies = to_device(policies.astype(np.int64).reshape(-1, players), device)

    def with_mixture(self, cumulative: Tensor, policies: Tensor) -> SeatAssignment:
        """Return a copy that draws from another mixture with as many factors."""
        other = copy(self)
        other.cumulative, other.policies = cumulative, policies
        return other

    def uniforms(self, generator: Stream) -> Tensor:
        """Return what `draw` takes."""
        shape = len(self.policy), len(self.cumulative)
        return torch.rand(*shape, dtype=torch.float64, generator=generator, device=self.policy.device)

    def draw(self, u: Tensor, where: Tensor | None = None) -> None:
        """Draw policies again: everywhere, or where bool[E]. u: float64[E, F], uniform in [0, 1)."""
        if not self.others:
            return
        factors, most = self.cumulative.shape
        entry = (u[:, :, None] >= self.cumulative).sum(2)
        sampled_policies = self.policies[entry + most * torch.arange(factors, device=u.device)]  # [E, F, P]
        columns = [
            sampled_policies[:, self._factor[p], p] if p in self.others else self.policy[:, p]
            for p in range(sampled_policies.shape[2])
        ]
        policy = torch.where(self.is_learner, LEARNER, torch.stack(columns, 1))
        entry = torch.where(torch.stack(self._needed, 1), entry, -1)
        self.policy = policy if where is None else torch.where(where[:, None], policy, self.policy)
        self.entry = entry if where is None else torch.where(where[:, None], entry, self.entry)


def _named_outside(request: RolloutRequest) -> set[PolicyRef]:
    """Return the policies that may play a seat which the learner does not learn to play."""
    return {
        ref
        for factor in request.opponents.factors
        for entry in factor.entries
        for seat, ref in zip(factor.seats, entry, strict=True)
        if seat not in request.seats
    }


# --------------------------------------------------------------------------------------------------------------------
# How they act.


class DeviceActions(NamedTuple):
    """actions: as `DeviceVectorEnv.step` takes them. logp: [E, n] of the learner's, by player; None: said by its table afterwards."""

    actions: tuple[Tensor, ...]
    logp: Mapping[int, Tensor] | None


class Players(Protocol):
    """All who play a request."""

    def load(self, seats: SeatAssignment) -> None:
        """Load the newest weights of the learner, and of its opponents."""
        ...

    def act(self, timestep: DeviceTimestep, seats: SeatAssignment, generator: Stream) -> DeviceActions: ...


class PolicyTables:
    """In an enumerated game: a row for each information state of each policy, all in one table, so that a step is a look-up."""

    def __init__(self, spec: EnvSpec, learner: ActingLearner, opponent: Opponent, seats: tuple[int, ...]) -> None:
        assert spec.enumeration is not None
        self._game: Enumeration = spec.enumeration
        self._learner, self._opponent = learner, opponent
        self._base = information_state_ids(spec.enumeration, seats).start
        self.logp = self._opponent_tables = self._below = self._first = torch.empty(0)
        self._loaded: tuple[object, ...] = ()

    def load(self, seats: SeatAssignment) -> None:
        self.logp = self._learner.table()
        if self._loaded != (loaded := (seats.refs, seats.plays)):
            self._load_others(seats)
            self._loaded = loaded
        self._below = torch.cat([thresholds(self.logp.exp()), self._opponent_tables])

    def _load_others(self, seats: SeatAssignment) -> None:
        """Load the opponents' tables behind the learner's rows."""
        device, actions = self.logp.device, self.logp.shape[1]
        first = np.zeros((len(seats.refs) + 1, len(self._game.offset) - 1), np.int64)  # row of id 0, had it one
        first[LEARNER] = -self._base
        parts, at = [np.ones((0, actions))], len(self.logp)
        for k, p in seats.plays:
            parts.append(self._opponent.table(seats.refs[k - 1], p))
            first[k, p] = at - self._game.offset[p]
            at += len(parts[-1])
        self._opponent_tables = thresholds(to_device(np.concatenate(parts), device))
        self._first = to_device(first, device)

    def act(self, timestep: DeviceTimestep, seats: SeatAssignment, generator: Stream) -> DeviceActions:
        actions = []
        first = self._first.gather(0, seats.policy)  # [E, P]
        for p, slots in enumerate(timestep.slots):
            below = self._below[(slots.observation + first[:, p, None]).flatten()]
            u = torch.rand(len(below), 1, generator=generator, device=below.device)
            actions.append((u >= below).sum(1).view(slots.observation.shape))
        return DeviceActions(tuple(actions), None)

    def log_prob(self, observation: Tensor, action: Tensor) -> Tensor:
        """Return log-probabilities of the learner's actions, for ids of the states of its seats (or any others, whose answers mean
        nothing)."""
        index = (observation - self._base).clamp(0, len(self.logp) - 1)
        return self.logp.flatten()[index * self.logp.shape[1] + action.clamp(max=self.logp.shape[1] - 1)]


def thresholds(probs: Tensor) -> Tensor:
    """Return float32[n, A], of which an action is the first that is above a uniform number; one of probability 0 is never taken. Sums are
    taken as products, whose bits repeat on a GPU."""
    weights, ones = probs.double(), torch.ones(probs.shape[1], probs.shape[1], dtype=torch.float64, device=probs.device)
    upto, behind = weights @ ones.triu(), weights @ ones.tril(-1)
    return torch.where(behind > 0, upto / upto[:, -1:], torch.inf).float()


class Networks:
    """Elsewhere. Each is shown the rows of all environments, since who plays where is not read back."""

    def __init__(self, learner: ActingLearner, opponent: Opponent) -> None:
        self._learner, self._opponent = learner, opponent
        self._known: dict[PolicyRef, NetworkOpponent] = {}

    def load(self, seats: SeatAssignment) -> None:
        refs = {seats.refs[k - 1] for k, _ in seats.plays}
        self._known = {ref: self._known.get(ref) or self._opponent.acts(ref) for ref in refs}

    def act(self, timestep: DeviceTimestep, seats: SeatAssignment, generator: Stream) -> DeviceActions:
        actions, logps = [], {}
        for p, slots in enumerate(timestep.slots):
            envs, agents = slots.due.shape
            x = slots.observation.reshape(envs * agents, *slots.observation.shape[2:])
            mask = None if slots.mask is None else slots.mask.reshape(envs * agents, -1)
            chosen = None
            if p in seats.learners:
                chosen, logp = self._learner.act(x, mask, generator)
                logps[p] = logp.view(envs, agents)
            for k in [k for k, player in seats.plays if player == p]:
                action = self._known[seats.refs[k - 1]].act(x, mask, generator)
                is_played = (seats.policy[:, p] == k).repeat_interleave(agents).view(-1, *[1] * (action.dim() - 1))
                chosen = action if chosen is None else torch.where(is_played, action, chosen)
            assert chosen is not None
            actions.append(chosen.view(envs, agents, *chosen.shape[1:]))
        return DeviceActions(tuple(actions), logps)


# --------------------------------------------------------------------------------------------------------------------
# Playing a request.

_AHEAD = 16  # steps between two looks at whether it is enough, where nothing says how many are
_PATIENCE = 10_000  # steps without a decision of the learner


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """The last decision of each slot [C, …], where its reward has not come yet: bool[C]."""

    is_waiting: Tensor
    columns: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class _ReadBack:
    """What was read back. newest: the highest number of an episode in its environment."""

    counters: dict[str, int]
    sums: EpisodeSums
    newest: int


class DevicePlay:
    """Plays the requests of one task on one vector."""

    def __init__(self, env: DeviceVectorEnv, players: Players) -> None:
        self.env, self._players = env, players
        self._seats: SeatAssignment | None = None
        self._generator: Stream = None
        self._timestep: DeviceTimestep | None = None
        self._pending: _Pending | None = None
        self._episode = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
        self._first = 0

    def play(self, request: RolloutRequest, *, each: bool = False) -> Rollout:
        """Play as `RolloutWorker.play`, except for `seconds` of the request, which do not count. The trajectories are a `Block`, in `left`.
        Read back is how much there is, and what the episodes came to; and each of them, if that is wanted."""
        seats, timestep = self._begin(request)
        once = request.amount == self.env.num_envs and request.unit == "episodes"
        steps = _Steps(request, self.env.spec, seats, once=once, first=self._pending)
        while (ahead := steps.ahead()) > 0:
            for _ in range(ahead):
                answer = self._players.act(timestep, seats, self._generator)
                steps.record_actions(timestep, answer)
                timestep = self.env.step(answer.actions)
                steps.record_result(timestep, seats, self._episode)
                self._episode = self._episode + timestep.over
                if not once:
                    seats.draw(seats.uniforms(self._generator), timestep.over)
        self._timestep = timestep
        table = self._players if isinstance(self._players, PolicyTables) else None
        block, self._pending, read_back = steps.block(timestep, table, self._episode.max(), fresh=not request.carry_on)
        return Rollout(
            None,
            steps.records.results(self._first, read_back.sums.count if each else 0),
            read_back.counters,
            {},
            next_episode=self._first + (read_back.newest + 1) * self.env.num_envs,
            left=(block,) if block.num_rows else (),
            sums=None if each else read_back.sums,
        )

    def _begin(self, request: RolloutRequest) -> tuple[SeatAssignment, DeviceTimestep]:
        env = self.env
        if request.carry_on and self._seats is not None and self._timestep is not None:
            self._seats.load(request)
            self._players.load(self._seats)
            return self._seats, self._timestep
        players, device = env.spec.num_players, env.device
        seats = SeatAssignment(request, num_envs=env.num_envs, num_players=players, device=device)
        self._seats, self._pending, self._first = seats, None, request.first_episode
        self._players.load(seats)
        self._generator = generator_on(device, seeding.key(request.seed, "actions"))
        self._episode = torch.zeros_like(self._episode)
        seats.draw(seats.uniforms(self._generator))
        whole = request.unit == "episodes"
        seed = seeding.key(request.seed, "environment") % 2**63
        return seats, env.reset(seed, episodes=request.amount // env.num_envs if whole else None)


class _Steps:
    """What happens in one request, step by step, and what is made of it."""

    def __init__(
        self, request: RolloutRequest, spec: EnvSpec, seats: SeatAssignment, *, once: bool, first: _Pending | None
    ) -> None:
        """once: each environment plays one episode."""
        self._request, self._spec, self._once, self._first = request, spec, once, first
        self._players = seats.learners
        agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._is_learner = torch.cat([seats.is_learner[:, p, None].expand(-1, agents[p]) for p in self._players], 1)
        self._slots = tuple(p for p in self._players for _ in range(agents[p]))
        self._columns: dict[str, list[Tensor]] = {}
        self._due: list[Tensor] = []  # bool[E, all agents]
        self._records: list[Tensor] = []  # float64[E, …] of episodes: over, terminated, length, which, returns, entries
        self._seat = seats.seat
        playing = self._players if request.together else self._players[:1]
        self._playing = sum(agents[p] for p in playing)  # of the learner's agents in one environment
        self._most = len(seats.seat) * self._playing

    # ------------------------------------------------------------------------------------------ as it goes on

    def ahead(self) -> int:
        """Return how many steps to make now; 0: it is enough."""
        request, num_steps, longest = self._request, len(self._due), self._spec.max_decisions
        if num_steps and self._is_learner.device.type == "meta":  # nothing is ever over there
            return 0
        if request.unit == "episodes":
            if not num_steps:
                return _AHEAD if longest is None else longest * self._spec.num_players
            if self._once and longest is not None:  # each step is somebody's decision
                return 0
            return 0 if scalars_to_host([self._over])[0] >= request.amount else _AHEAD
        if not num_steps:
            return -(-request.amount // self._most)
        decided = int(scalars_to_host([torch.stack(self._columns["row"]).sum()])[0])
        if not decided and num_steps > _PATIENCE:
            raise EnvError(
                f"{num_steps} steps of {self._spec.id} passed without a decision of the learner in seats {request.seats}."
            )
        missing = max(0, request.amount - decided)
        return -(-missing * num_steps // decided) if decided else _AHEAD

    def record_actions(self, timestep: DeviceTimestep, answer: DeviceActions) -> None:
        """Record the actions of this timestep."""
        slots, own_slots = timestep.slots, [timestep.slots[p] for p in self._players]
        self._due.append(torch.cat([side.due for side in slots], 1))
        self._keep("observation", [side.observation for side in own_slots])
        if own_slots[0].mask is not None:
            self._keep("mask", [side.mask for side in own_slots])
        self._keep("action", [answer.actions[p] for p in self._players])
        if answer.logp is not None:
            self._keep("logp", [answer.logp[p] for p in self._players])
        self._columns.setdefault("row", []).append(torch.cat([side.due for side in own_slots], 1) & self._is_learner)
        if timestep.state is not None and self._request.state:
            self._keep("state", [self._of_slots(timestep.state)])

    def record_result(self, timestep: DeviceTimestep, seats: SeatAssignment, episode: Tensor) -> None:
        """Record the result of the actions. episode int64[E]: which one it was of each environment."""
        own_slots = [timestep.slots[p] for p in self._players]
        for name in ("due", "reward", "ended", "terminated"):
            self._keep(name, [getattr(side, name) for side in own_slots])
        if own_slots[0].final is not None:
            self._keep("final", [side.final for side in own_slots])
        if timestep.final_state is not None and self._request.state:
            self._keep("final_state", [self._of_slots(timestep.final_state)])
        over = timestep.over
        self._keep("over", [over[:, None].expand(-1, self._is_learner.shape[1])])
        numbers = [each.double()[:, None] for each in (over, timestep.terminated, timestep.length, episode)]
        row = torch.cat([*numbers, timestep.returns.double(), seats.entry.double()], 1)
        self._records = (
            [torch.where(over[:, None], row, self._records[0])]
            if self._once and self._records
            else [*self._records, row]
        )

    def _keep(self, name: str, parts: Sequence[Any]) -> None:
        """Columns of the learner's players [E, n, …], side by side, out of buffers that are the environment's."""
        self._columns.setdefault(name, []).append(torch.cat(list(parts), 1))

    def _of_slots(self, state: Tensor) -> Tensor:
        return state[:, None].expand(-1, self._is_learner.shape[1], *state.shape[1:])

    @property
    def _over(self) -> Tensor:
        """How many episodes have ended."""
        return torch.stack([row[:, 0] for row in self._records]).sum()

    # ------------------------------------------------------------------------------------------ what is made of it

    def block(
        self, timestep: DeviceTimestep, table: PolicyTables | None, newest: Tensor, *, fresh: bool
    ) -> tuple[Block, _Pending | None, _ReadBack]:
        """Return (what is learned from, what waits for the next block, what was read back)."""
        columns = {name: torch.stack(parts).flatten(1, 2) for name, parts in self._columns.items()}
        if table is not None:
            columns["logp"] = table.log_prob(columns["observation"], columns["action"])
        decided, due = columns["row"].sum(), torch.stack(self._due)
        if self._first is not None:
            columns = {name: torch.cat([self._before(name, column)[None], column]) for name, column in columns.items()}
        at, row = closing_times(columns["row"], columns["due"] | columns["ended"])
        until = at
        if self._is_learner.shape[1] > 1:
            until, _ = closing_times(columns["row"], columns["due"] | columns["over"])
        reward, ended, terminated = (columns[name].gather(0, at) for name in ("reward", "ended", "terminated"))
        numbers = [row.sum(), (row & ended).sum(), (row & ended & ~terminated).sum()]
        numbers += [newest, due.any(2).sum(), due.sum(), decided, *self.records.sums()]
        read = scalars_to_host(numbers)
        rows, at_ends, cut_short, latest, *counted = map(int, read[:7])
        pending, last = self._waiting(columns, columns["row"] & ~row, timestep)
        block = Block(
            row,
            columns["observation"],
            columns.get("mask"),
            columns["action"],
            columns["logp"],
            reward,
            ended,
            terminated,
            at,
            until,
            final=columns.get("final"),
            last=last.get("observation"),
            players=self._slots,
            num_rows=rows,
            num_truncated=cut_short,
            num_episodes=at_ends // self._playing,
            fresh=fresh,
            state=columns.get("state"),
            final_state=columns.get("final_state"),
            last_state=last.get("state"),
        )
        counters = dict(zip(("env_steps", "decisions", "learner_decisions"), counted, strict=True))
        sums = EpisodeSums(int(read[7]), *read[8:])
        return block, pending, _ReadBack({**counters, "episodes": sums.count}, sums, latest)

    def _before(self, name: str, column: Tensor) -> Tensor:
        """Return a row ahead of the others: of decisions that waited for their rewards; nothing came of them then."""
        assert self._first is not None
        waiting = self._first.is_waiting if name == "row" else self._first.columns.get(name)
        return torch.zeros_like(column[0]) if waiting is None else waiting

    def _waiting(
        self, columns: Mapping[str, Tensor], still_open: Tensor, timestep: DeviceTimestep
    ) -> tuple[_Pending | None, dict[str, Tensor]]:
        """Return (decisions whose rewards have not come; what follows the last rows that have theirs: one of these, or what is due now)."""
        if self._request.unit == "episodes":
            return None, {}
        is_waiting, k = still_open.any(0), still_open.to(torch.int8).argmax(0)
        slot = torch.arange(len(k), device=k.device)
        names = ("observation", "mask", "action", "logp", "state")
        pending = _Pending(is_waiting, {name: columns[name][k, slot] for name in names if name in columns})
        now = {"observation": torch.cat([timestep.slots[p].observation for p in self._players], 1).flatten(0, 1)}
        if "state" in columns and timestep.state is not None:
            now["state"] = self._of_slots(timestep.state).flatten(0, 1)
        return pending, {name: _where(is_waiting, pending.columns[name], column) for name, column in now.items()}

    @property
    def records(self) -> EpisodeRecords:
        """Return those of its episodes."""
        return EpisodeRecords(torch.stack(self._records), self._seat, self._spec.num_players)


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeRecords:
    """Episodes that may have ended, on the device.

    Attributes:
        rows: float64[T, E, 4 + P + F]: whether it is over, whether it terminated, its length, which one it was of its environment, returns,
            and the entry of each factor.
        seat: int64[E], the learner's.
        players: P.
    """

    rows: Tensor
    seat: Tensor
    players: int

    @staticmethod
    def of(seats: SeatAssignment, length: Tensor, returns: Tensor) -> EpisodeRecords:
        """Return those of environments that have played one episode each, to its end.

        Args:
            seats: Who sat where.
            length: int64[E], steps of the environment.
            returns: float64[E, P].
        """
        one = torch.ones_like(returns[:, :2])
        row = torch.cat([one, length.double()[:, None], 0.0 * one[:, :1], returns, seats.entry.double()], 1)
        return EpisodeRecords(row[None], seats.seat, returns.shape[1])

    def sums(self) -> list[Tensor]:
        """Return `EpisodeSums`, on the device."""
        rows = self.rows
        over, length, returns = rows[..., 0] > 0, rows[..., 2], rows[..., 4 : 4 + self.players]
        seat = self.seat[None].expand(len(rows), -1)[..., None]
        own_returns = returns.gather(2, seat)[..., 0]
        others = returns.scatter(2, seat, -torch.inf).amax(2) if self.players > 1 else torch.zeros_like(own_returns)
        count = over.sum()

        def mean(numbers: Tensor) -> Tensor:
            return torch.where(over, numbers, 0.0).sum() / count

        low, high = torch.where(over, own_returns, torch.inf).amin(), torch.where(over, own_returns, -torch.inf).amax()
        m2 = torch.where(over, (own_returns - mean(own_returns)).square(), 0.0).sum()
        return [count, mean(own_returns), m2, low, high, mean(length), mean((own_returns > others).double())]

    def results(self, first: int, count: int) -> EpisodeResults:
        """Return episodes that have ended, in one transfer.

        Args:
            first: What their indices count from.
            count: How many there are.
        """
        envs = len(self.seat)
        rows = np.zeros((0, 1 + self.rows.shape[2]))
        if count:
            records = self.rows.flatten(0, 1)
            where = placed_where(records[:, 0] > 0, count)
            places = torch.stack([where % envs, self.seat[where % envs]], 1).double()
            rows = to_numpy(torch.cat([places, records[where, 1:]], 1))
        environment, seat, terminated, length, episode = (rows[:, k].astype(np.int64) for k in range(5))
        index = first + episode * envs + environment
        order = np.argsort(index, kind="stable")
        return EpisodeResults(
            returns=np.ascontiguousarray(rows[order, 5 : 5 + self.players]),
            length=length[order].astype(np.int32),
            terminated=terminated[order] > 0,
            seat=seat[order].astype(np.int8),
            entry=rows[order, 5 + self.players :].astype(np.int32),
            index=index[order],
        )


_LEAST = 4


def room_for(count: int) -> int:
    """Return the power of two that is `count` or more, at least 4: a population that grows comes in few sizes, each of which is a graph."""
    return max(_LEAST, 1 << max(count - 1, 0).bit_length())


def closing_times(row: Tensor, closes: Tensor) -> tuple[Tensor, Tensor]:
    """Return (when each decision's reward came, by time int64[K, C]; the decisions bool[K, C] whose reward has)."""
    times = len(row)
    when = torch.where(closes, torch.arange(times, device=row.device)[:, None], times)
    when = when.flip(0).cummin(0).values.flip(0)
    return when.clamp(max=times - 1), row & (when < times)


def _where(condition: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return torch.where(condition.view(-1, *[1] * (one.dim() - 1)), one, other)
