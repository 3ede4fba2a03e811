r"""Rollouts of whole games of a tree on a device, in which everybody plays by a table: on a GPU one CUDA graph.

request, tables of all --> draws, games, decisions of the learner --> Block, sums of episodes      (one launch, one read)

Games of which some stay open are played by `ludus.rollout.ondevice`, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ludus.backend.device import Graphs, repeats, to_device
from ludus.core import seeding
from ludus.core.types import Mixture
from ludus.envs.tree.stepping import TreeDeviceEnv, keys, uniform_bits
from ludus.envs.tree.whole_games import Games, WholeGames
from ludus.replay.blocks import Block
from ludus.rollout.base import EpisodeSums, Rollout, RolloutRequest
from ludus.rollout.ondevice import (
    ActingLearner,
    EpisodeRecords,
    Opponent,
    SeatAssignment,
    closing_times,
    room_for,
)


class Tables(NamedTuple):
    """What is played with, on the device.

    Attributes:
        cumulative, policies: Of the mixture (`SeatAssignment`).
        logp: float32[I, A], the learner's log-probabilities.
        others: int64[n], thresholds of the opponents' tables, player by player.
        number: int64[R, P], which of a player's tables policy r is, from 1; 0 of the learner.
    """

    cumulative: Tensor
    policies: Tensor
    logp: Tensor
    others: Tensor
    number: Tensor


class Experience(NamedTuple):
    """What comes of it, where the graph leaves it until it runs again. C slots, K times.

    Attributes:
        columns: Of a `Block`: row, observation, action, logp, reward, ended and at, [K, C] each.
        numbers: float64[n], what is read back.
        records: float64[E, …] of episodes (`EpisodeRecords`).
    """

    columns: tuple[Tensor, ...]
    numbers: Tensor
    records: Tensor


class Form(NamedTuple):
    """What is the same in requests that one graph serves: whom the learner plays, and how the mixture is built. counts: tables of
    opponents, by player."""

    seats: tuple[int, ...]
    together: bool
    factors: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]


class TreeRollouts:
    """Plays on one vector, for task after task: graphs do not depend on whose tables they are.

    Args:
        env: The vector.
    """

    def __init__(self, env: TreeDeviceEnv) -> None:
        self.env, self.whole = env, WholeGames(env.games.tree, env.games)
        self._offset = env.games.tree.enumeration.offset
        self.graphs = Graphs() if repeats(str(env.device)) else None
        self._seats: dict[Form, SeatAssignment] = {}
        self._play: Callable[[Form, Tables, Tensor], Experience] = self._experience
        if self.graphs is not None:
            self._play = self.graphs.of(self._experience, env.device)

    def play(self, seats: SeatAssignment, request: RolloutRequest, tables: Tables, counts: Sequence[int]) -> Experience:
        """Play a request.

        Args:
            seats: Whose mixture is loaded.
            request: One episode of each environment.
            tables: Of all who may play.
            counts: Tables of opponents, by player.

        Returns:
            What the learner did; valid until this is called again.
        """
        factors = tuple(factor.seats for factor in request.opponents.factors)
        form = Form(request.seats, request.together, factors, tuple(counts))
        self._seats.setdefault(form, seats)
        seeds = [seeding.key(request.seed, name) % 2**63 for name in ("environment", "actions")]
        return self._play(form, tables, torch.tensor(seeds))

    def most_rows(self, request: RolloutRequest) -> int:
        """Return how many decisions the learner has at most in a request."""
        each = self.whole.tree.arrays.max_decisions * self.env.num_envs
        return each * len(request.seats) if request.together else each

    def _experience(self, form: Form, tables: Tables, seeds: Tensor) -> Experience:
        return self.experience(form, self._seats[form], tables, seeds)

    def experience(self, form: Form, seats: SeatAssignment, tables: Tables, seeds: Tensor) -> Experience:
        """Play whole games; a function of tensors on the device, which reads nothing."""
        whole, seats = self.whole, seats.with_mixture(tables.cumulative, tables.policies)
        episode = keys(seeds[1], torch.arange(len(seats.policy), device=seeds.device))
        factors = torch.arange(seats.entry.shape[1], device=seeds.device)
        seats.draw(uniform_bits(episode[:, None], factors) * 2.0**-53)
        places = whole.places(form.seats, form.counts)
        thresholds = [whole.games.board.below, *self._learner_thresholds(tables.logp, form.seats), tables.others]
        number = tables.number.gather(0, seats.policy).t()
        games = whole.play(torch.cat(thresholds), places, number, seeds[0])
        return self._learned(games, form, seats, tables.logp)

    def _learner_thresholds(self, logp: Tensor, seats: tuple[int, ...]) -> list[Tensor]:
        """Return those of the learner's tables, by rising player."""
        base, probs, offset = self._base(seats), logp.double().exp(), self._offset
        return [
            self.whole.games.thresholds(p, probs[None, offset[p] - base : offset[p + 1] - base]) for p in sorted(seats)
        ]

    def _base(self, seats: tuple[int, ...]) -> int:
        """Return the first information state of the learner's table."""
        return self._offset[min(seats)]

    def _learned(self, games: Games, form: Form, seats: SeatAssignment, logp: Tensor) -> Experience:
        """Return what the learner did in games."""
        whole, base = self.whole, self._base(form.seats)
        parts: list[list[Tensor]] = []
        over = whole.over(games)
        for p in seats.learners:
            own = whole.decisions(games, p)
            row = own.due[:-1] & seats.is_learner[:, p]
            at, row = closing_times(row, own.due[1:] | over)
            reward = (own.worth[1:].gather(0, at) - own.worth[:-1]).float()
            state, action = own.state[:-1], own.action
            chosen = logp.flatten()[(state - base).clamp(0, len(logp) - 1) * logp.shape[1] + action]
            parts.append([row, state, action, chosen, reward, over.gather(0, at), at])
        columns = tuple(torch.stack(sides, 2).flatten(1, 2) for sides in zip(*parts, strict=True))
        row, ended = columns[0], columns[5]
        length = whole.lengths(games)
        records = EpisodeRecords.of(seats, length, whole.returns(games))
        numbers = [row.sum(), (row & ended).sum(), length.sum(), whole.count_decisions(games), *records.sums()]
        return Experience(columns, torch.stack([n.double() for n in numbers]), records.rows)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRollout:
    """Games whose numbers are still on the device, valid until the next ones are played.

    Attributes:
        request: What was played.
        seats: Who sat where.
        experience: Of the learner.
        most_rows: How many decisions of the learner there are at most.
    """

    request: RolloutRequest
    seats: SeatAssignment
    experience: Experience
    most_rows: int

    @property
    def numbers(self) -> Tensor:
        """Return float64[n], what `read` takes."""
        return self.experience.numbers

    @property
    def block(self) -> Block:
        """Return what the learner did; its rows are not counted."""
        return self._block(self.most_rows, 0, counted=False)

    def episodes(self, numbers: Sequence[float]) -> int:
        """Return the number of episodes in which the learner had a decision. numbers: as of `read`."""
        return int(numbers[1]) // (len(self.seats.learners) if self.request.together else 1)

    def read(self, numbers: Sequence[float], *, each: bool = False, block: bool = True) -> Rollout:
        """Return the rollout.

        Args:
            numbers: The values of `numbers`.
            each: Whether episodes are told one by one.
            block: Whether the rollout has the learner's experience, which must still be valid.
        """
        rows, _, env_steps, decisions = map(int, numbers[:4])
        sums = EpisodeSums(int(numbers[4]), *numbers[5:])
        seats, first, envs = self.seats, self.request.first_episode, len(self.seats.seat)
        records = EpisodeRecords(self.experience.records, seats.seat, seats.policy.shape[1])
        return Rollout(
            None,
            records.results(first, sums.count if each else 0),
            {"env_steps": env_steps, "decisions": decisions, "learner_decisions": rows, "episodes": sums.count},
            {},
            next_episode=first + envs,
            left=(self._block(rows, self.episodes(numbers), counted=True),) if rows and block else (),
            sums=None if each else sums,
        )

    def _block(self, rows: int, episodes: int, *, counted: bool) -> Block:
        row, observation, action, logp, reward, ended, at = self.experience.columns
        return Block(
            row,
            observation,
            None,
            action,
            logp,
            reward,
            ended,
            ended,
            at,
            at,
            final=None,
            last=None,
            players=tuple(self.seats.learners),
            num_rows=rows,
            num_truncated=0,
            num_episodes=episodes,
            fresh=True,
            counted=counted,
        )


class TreePlay:
    """Plays the requests of one task, each of which is one episode of each environment.

    Args:
        rollouts: Of the vector.
        learner: Who learns.
        opponent: Gives the tables of those that it meets.
    """

    def __init__(self, rollouts: TreeRollouts, learner: ActingLearner, opponent: Opponent) -> None:
        self._rollouts, self._learner, self._opponent = rollouts, learner, opponent
        self._seats: dict[tuple[tuple[int, ...], bool], SeatAssignment] = {}
        self._mixture: Mixture | None = None
        self._loaded: tuple[object, ...] = ()
        self._counts: tuple[int, ...] = ()
        self._others = self._number = torch.empty(0)

    def play(self, request: RolloutRequest, *, each: bool = False) -> Rollout:
        """Play a request, as `ludus.rollout.ondevice.DevicePlay.play`."""
        rollout = self.enqueue(request, self._learner.table())
        return rollout.read(rollout.numbers.tolist(), each=each)

    def enqueue(self, request: RolloutRequest, table: Tensor) -> DeviceRollout:
        """Enqueue a request's games, and read nothing.

        Args:
            request: One episode of each environment.
            table: The learner's, as of `ActingLearner.table`.
        """
        seats = self._load(request)
        tables = Tables(seats.cumulative, seats.policies, table, self._others, self._number)
        played = self._rollouts.play(seats, request, tables, self._counts)
        return DeviceRollout(request, seats, played, self._rollouts.most_rows(request))

    def always_decides(self, request: RolloutRequest) -> bool:
        """Return whether the learner has a decision in every game of a request."""
        return all(self._rollouts.whole.always_decides(p) for p in request.seats)

    def _load(self, request: RolloutRequest) -> SeatAssignment:
        """Return who may sit where; tables of opponents are loaded when others play."""
        env = self._rollouts.env
        if request.opponents != self._mixture:
            self._seats, self._mixture = {}, request.opponents
        where = request.seats, request.together
        if where not in self._seats:
            self._seats[where] = SeatAssignment(
                request, num_envs=env.num_envs, num_players=env.spec.num_players, device=env.device
            )
        seats = self._seats[where]
        if self._loaded != (loaded := (seats.refs, seats.plays)):
            self._load_others(seats)
            self._loaded = loaded
        return seats

    def _load_others(self, seats: SeatAssignment) -> None:
        """Load the opponents' thresholds, in rooms whose sizes are powers of two."""
        whole, device = self._rollouts.whole, self._rollouts.env.device
        players = range(self._rollouts.env.spec.num_players)
        number = np.zeros((1 + room_for(len(seats.refs)), len(players)), np.int64)
        parts, counts = [], []
        for p in players:
            own = [k for k, player in seats.plays if player == p]
            number[own, p] = 1 + np.arange(len(own))
            counts.append(room_for(len(own)) if own else 0)
            if own:
                tables = np.stack([self._opponent.table(seats.refs[k - 1], p) for k in own])
                thresholds = whole.games.thresholds(p, to_device(tables, device))
                parts.append(torch.nn.functional.pad(thresholds, (0, (counts[-1] - len(own)) * whole.width(p))))
        self._counts, self._number = tuple(counts), to_device(number, device)
        self._others = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64, device=device)
