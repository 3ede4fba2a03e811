"""A vector whose environments live in subprocesses: for environments that are slow, crash or hang.

actions -> shared memory -> every subprocess steps its share -> rows in shared memory -> joined -> one timestep
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError
from ludus.core.types import ActionRequests, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.processes.environment_worker import EnvironmentWorker, RowCounts, WriteCounts
from ludus.envs.processes.memory import Memory, PlayerRows, SideRows, memory_file
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.python_vector import check_actions
from ludus.runtime.child_process import ChildLost, ChildProcess, ChildRaised, ChildSilent, end_all

Fault: TypeAlias = ChildLost | ChildRaised
_NAMED = 4  # environments in the message of a fault


@dataclass(frozen=True, slots=True)
class Share:
    """The environments `first` to `first + count - 1`, of subprocess `number`."""

    number: int
    first: int
    count: int

    def __str__(self) -> str:
        last = self.first + self.count - 1
        return f"environment {self.first}" if self.count == 1 else f"environments {self.first} to {last}"


def shares(num_envs: int, workers: int) -> list[Share]:
    """Return shares that are as even as possible, the larger ones first."""
    small, larger = divmod(num_envs, workers)
    starts = [w * small + min(w, larger) for w in range(workers)]
    return [Share(w, first, small + (w < larger)) for w, first in enumerate(starts)]


def as_error(what: str, share: Share, fault: Fault) -> EnvError | ConfigError:
    """Return the error that a fault becomes; what was raised in a subprocess keeps its message, with the traceback as a note."""
    if isinstance(fault, ChildLost):
        return EnvError(f"{what}: the subprocess {fault}.")
    if fault.kind is ConfigError:
        return ConfigError(str(fault))
    error = EnvError(str(fault) if fault.kind is EnvError else f"{what}: raised {fault.name}: {fault}.")
    error.add_note(f"In subprocess {share.number}, numbered from its first one ({share}):\n{fault.trace}")
    return error


# --------------------------------------------------------------------------------------------------------------------
# What the parent knows of running episodes from what was published: enough to close them when their subprocess is
# gone.


class Record:
    """Open decisions, returns and lengths of E environments. `repairs`: also keeps what each open decision was made on.

    seeds, began: what an environment's vector was last reset with, and how many episodes were finished by then: their difference to
    `episode` is the episode's number in that vector.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, *, repairs: bool) -> None:
        self.num_envs = num_envs
        self.seeds = np.zeros(num_envs, np.uint64)
        self.began = np.zeros(num_envs, np.int64)
        self.episode = np.zeros(num_envs, np.int64)  # finished since the reset
        self.length = np.zeros(num_envs, np.int32)  # timesteps with due decisions; 0: no episode is seen to run
        self._base_seeds = np.zeros(num_envs, np.uint64)
        self._quota: NDArray[np.int64] | None = None
        self._returns = np.zeros((num_envs, spec.num_players))
        self._repairs = repairs
        self._players = [_PlayerRecord(len(spec.agents_of(p)), num_envs) for p in range(spec.num_players)]
        self._state: Array | None = None

    def reset(self, seeds: NDArray[np.uint64], episodes: int | NDArray[np.int64] | None) -> None:
        """Forget everything."""
        self.seeds[:] = self._base_seeds[:] = seeds
        self._quota = None
        if episodes is not None:
            self._quota = np.zeros(self.num_envs, np.int64)
            self._quota[:] = episodes
        for array in (self.began, self.episode, self.length, self._returns):
            array.fill(0)
        for player in self._players:
            player.forget()

    def following(self, first: int, count: int) -> tuple[NDArray[np.uint64], NDArray[np.int64] | None]:
        """Return what a vector that takes over the environments `first` … is reset with: seeds by (the seed that was given, number of
        its first episode), and how many episodes are left to be played. Those that are running are over; episode 0 has the seed itself."""
        at = slice(first, first + count)
        number = self._next(at)
        seeds = [
            int(seed) if k == 0 else int(episode_seed(seed, np.uint64(k)))
            for seed, k in zip(self._base_seeds[at], number, strict=True)
        ]
        return np.array(seeds, np.uint64), None if self._quota is None else self._quota[at] - number

    def _next(self, at: slice) -> NDArray[np.int64]:
        """Return numbers of the next episodes."""
        return self.episode[at] + (self.length[at] > 0)

    def see(self, timestep: Timestep) -> None:
        """Take note of a timestep. It must stay valid until the next one is seen."""
        finished = timestep.finished.environment
        for p, player in enumerate(self._players):
            ended, due = timestep.ended[p], timestep.due[p]
            self._returns[:, p] += player.rewards_by_environment(ended.slot, ended.reward)
            player.open[ended.slot] = False
            self._returns[finished, p] = 0
            self._returns[:, p] += player.rewards_by_environment(due.slot, due.reward)
            if self._repairs:
                player.keep(due)
            player.open[due.slot] = True
        if len(finished):
            self.episode[finished] += 1
            self.length[finished] = 0
        busy = np.zeros(self.num_envs, np.bool_)
        for player, due in zip(self._players, timestep.due, strict=True):
            busy[due.slot // player.agents] = True
        self.length += busy
        if self._repairs and timestep.state is not None:
            self._state = timestep.state

    def truncate(self, side: SideRows, first: int, count: int, fresh: WriteCounts) -> WriteCounts:
        """Add to what a new subprocess wrote into `side` that the open episodes of its environments `first` … ended as truncated: nothing
        more was earned, the final observations are those that the open decisions were made on."""
        at = slice(first, first + count)
        self.seeds[at], self.began[at] = self.following(first, count)[0], self._next(at)
        rows: list[RowCounts] = []
        for player, views, (n, masked, _, _) in zip(self._players, side.players, fresh[0], strict=True):
            base = first * player.agents
            slots = base + np.flatnonzero(player.open[base : (first + count) * player.agents])
            at = slice(base, base + len(slots))
            views.end_slot[at] = slots
            views.end_reward[at] = 0
            views.end_terminated[at] = False
            rows.append((n, masked, len(slots), player.recall(slots, views.end_observation[at], views.end_mask, at)))
        over = first + np.flatnonzero(self.length[first : first + count])
        at = slice(first, first + len(over))
        side.environment[at] = over
        side.returns[at] = self._returns[over]
        side.terminated[at] = False
        side.length[at] = self.length[over]
        if side.statistics is not None:
            side.statistics[at] = np.nan
        if side.final_state is not None and self._state is not None:
            side.final_state[at] = self._state[over]
        return tuple(rows), len(over)


class _PlayerRecord:
    """One player's slots. Decisions that were due last are looked up in that timestep; older open ones are kept here."""

    def __init__(self, agents: int, num_envs: int) -> None:
        self.agents = agents
        self._num_envs = num_envs
        self.open = np.zeros(num_envs * agents, np.bool_)
        self._last: ActionRequests | None = None
        self._row = np.full(num_envs * agents, -1, np.int64)  # in the last timestep's rows
        self._observation: Array | None = None  # made when a decision is open for longer than a step
        self._mask: NDArray[np.bool_] | None = None

    def forget(self) -> None:
        self.open.fill(False)
        self._row.fill(-1)
        self._last = None

    def rewards_by_environment(self, slot: NDArray[np.int32], reward: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return float64[E]: rewards by environment."""
        return np.bincount(slot // self.agents, reward, self._num_envs).astype(np.float64, copy=False)

    def keep(self, due: ActionRequests) -> None:
        """Take over the last timestep's decisions that are still open and are not due again."""
        last = self._last
        self._last = due
        if last is not None and len(due.slot) < len(self.open):
            again = np.zeros(len(self.open), np.bool_)
            again[due.slot] = True
            still = self.open[last.slot] & ~again[last.slot]
            if still.any():
                self._store(last, still)
        self._row.fill(-1)
        self._row[due.slot] = np.arange(len(due.slot))

    def _store(self, due: ActionRequests, which: NDArray[np.bool_]) -> None:
        slots = due.slot[which]
        if self._observation is None:
            self._observation = np.zeros((len(self.open), *due.observation.shape[1:]), due.observation.dtype)
        self._observation[slots] = due.observation[which]
        if due.mask is not None:
            if self._mask is None:
                self._mask = np.ones((len(self.open), due.mask.shape[1]), np.bool_)
            self._mask[slots] = due.mask[which]

    def recall(self, slots: NDArray[np.int64], observation: Array, masks: NDArray[np.bool_] | None, at: slice) -> bool:
        """Write what the open decisions of `slots` were made on; whether that includes masks."""
        masked = False
        for i, slot in enumerate(slots.tolist()):
            row, last = self._row[slot], self._last
            if row >= 0 and last is not None:
                observation[i] = last.observation[row]
                mask = None if last.mask is None else last.mask[row]
            else:
                assert self._observation is not None
                observation[i] = self._observation[slot]
                mask = None if self._mask is None else self._mask[slot]
            if masks is not None:
                masks[at.start + i] = True if mask is None else mask
                masked |= mask is not None
        return masked


# --------------------------------------------------------------------------------------------------------------------
# One timestep of what several subprocesses wrote into their rows of a side.

_Pieces = list[slice]


class RowConcatenator:
    """Concatenates the rows of one side. Where they are adjacent they are returned as they are; otherwise they are copied into buffers
    that are made once."""

    def __init__(self, side: SideRows, shares: Sequence[Share]) -> None:
        self._side = side
        self._shares = shares
        self._buffers: list[list[Array | None]] = [[None] * 5 for _ in side.players]

    def timestep(self, written: Sequence[WriteCounts]) -> Timestep:
        """Return the timestep of a step or a reset."""
        side = self._side
        due, ended = [], []
        for p, views in enumerate(side.players):
            rows = [players[p] for players, _ in written]
            due.append(self._due(p, views, [(n, masked) for n, masked, _, _ in rows]))
            ended.append(self._ended(views, [(n, masked) for _, _, n, masked in rows]))
        over = [slice(s.first, s.first + n) for s, (_, n) in zip(self._shares, written, strict=True) if n]
        finished = FinishedEpisodes(
            _copied(side.environment, over),
            _copied(side.returns, over),
            _copied(side.terminated, over),
            _copied(side.length, over),
            None if side.statistics is None else _copied(side.statistics, over),
        )
        final_state = None if side.final_state is None else _copied(side.final_state, over)
        return Timestep(tuple(due), tuple(ended), finished, side.state, final_state)

    def _due(self, player: int, views: PlayerRows, rows: Sequence[tuple[int, bool]]) -> ActionRequests:
        pieces, mask = self._pieces(views, rows, views.mask)
        columns: list[Any] = [views.slot, views.observation, mask, views.reward, views.first]
        if all(a.stop == b.start for a, b in pairwise(pieces)):
            whole = slice(pieces[0].start, pieces[-1].stop) if pieces else slice(0, 0)
            arrays: list[Any] = [None if c is None else c[whole] for c in columns]
        else:
            buffers = self._buffers[player]
            arrays = [None if c is None else _gathered(c, pieces, buffers, i) for i, c in enumerate(columns)]
        return ActionRequests(*arrays)

    def _ended(self, views: PlayerRows, rows: Sequence[tuple[int, bool]]) -> ClosedDecisions:
        pieces, mask = self._pieces(views, rows, views.end_mask)
        return ClosedDecisions(
            _copied(views.end_slot, pieces),
            _copied(views.end_reward, pieces),
            _copied(views.end_terminated, pieces),
            _copied(views.end_observation, pieces),
            None if mask is None else _copied(mask, pieces),
        )

    def _pieces(
        self, views: PlayerRows, rows: Sequence[tuple[int, bool]], mask: NDArray[np.bool_] | None
    ) -> tuple[_Pieces, NDArray[np.bool_] | None]:
        """Return where the rows are, and the masks if a subprocess has some: everything is legal in the rows of those without."""
        pieces = []
        with_masks = mask is not None and any(masked for _, masked in rows)
        for share, (n, masked) in zip(self._shares, rows, strict=True):
            if n:
                base = share.first * views.agents
                pieces.append(slice(base, base + n))
                if with_masks and not masked and mask is not None:
                    mask[base : base + n] = True
        return pieces, mask if with_masks else None


def _copied(column: Array, pieces: _Pieces) -> Array:
    if not pieces:
        return column[:0]
    return np.concatenate([column[piece] for piece in pieces]) if len(pieces) > 1 else column[pieces[0]].copy()


def _gathered(column: Array, pieces: _Pieces, buffers: list[Array | None], at: int) -> Array:
    buffer = buffers[at]
    if buffer is None:
        buffer = buffers[at] = np.empty_like(column)
    count = sum(piece.stop - piece.start for piece in pieces)
    return np.concatenate([column[piece] for piece in pieces], out=buffer[:count])


_START = 60.0  # seconds more than the deadline for a subprocess that still imports, makes and compiles things


class SubprocessVectorEnv:
    """`VectorEnv` over subprocesses that each hold a vector of their share of the environments.

    A repaired fault ends the open episodes of that subprocess's environments as truncated, with the observations of the last decisions as
    final ones, and begins new ones in the same timestep. The returns of such episodes are the sums of the rewards that were published,
    their statistics NaN. From number k on, which follows the last truncated one, an environment's episodes are the episodes 0, 1, … of an
    undisturbed one with seed `episode_seed(seed, k)`.

    Args:
        make: `make(num_envs=n)` returns the vector of one subprocess; it is pickled.
        num_envs: Number of environments.
        workers: Number of subprocesses.
        deadline: Seconds after which a subprocess that has not answered is killed (a minute more until its first step is done); None: no
            limit.
        restarts: Number of faults (a subprocess that crashed or hung, a vector that raised) that are repaired before the next raises
            EnvError.
    """

    def __init__(
        self,
        make: Callable[..., VectorEnv],
        num_envs: int,
        *,
        workers: int,
        deadline: float | None = None,
        restarts: int = 0,
    ) -> None:
        if not 1 <= workers <= num_envs:
            raise ConfigError(
                f"workers={workers} was given for {num_envs} environments; expected 1 to {num_envs}, so that each has one at least."
            )
        self.num_envs = num_envs
        self.restarts = 0
        self.waited = 0.0
        self._make = make
        self._allowed = restarts
        self._deadline = deadline
        self._shares = shares(num_envs, workers)
        self._processes: list[ChildProcess] = []
        self._new = [True] * workers  # until their first step is done
        self._descriptors: list[int] = []
        self._end = weakref.finalize(self, _end, self._processes, self._descriptors)
        self._last: Timestep | None = None
        self._side = 0
        self._busy = False
        try:
            self.spec: EnvSpec = self._start()
        except BaseException:
            self.close()
            raise
        self._record = Record(self.spec, num_envs, repairs=restarts > 0)

    @cached_property
    def tree(self) -> Any:
        """Return the `GameTree` of a compiled game, as a vector in this process has it; None of others."""
        return None if self.spec.enumeration is None else getattr(self._probe(), "tree", None)

    @cached_property
    def openings(self) -> int:
        """Return how many random moves episodes of OpenSpiel's games begin with at most, as a vector in this process has it."""
        return getattr(self._probe(), "openings", 0)

    def _probe(self) -> VectorEnv:
        """Return a vector like those of the subprocesses, closed."""
        probe = self._make(num_envs=1)
        probe.close()
        return probe

    def seed_and_episode(self, environment: int) -> tuple[int, int]:
        """Return (seed, number): the present episode of an environment is this episode of an undisturbed one with this seed."""
        record = self._record
        return int(record.seeds[environment]), int(record.episode[environment] - record.began[environment])

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes. Raises EnvError for a fault that may not be repaired."""
        seeds = np.asarray(seeds, np.uint64)
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        with self._exchange():
            self._record.reset(seeds, episodes)
            return self._ask([self._reset_message(share) for share in self._shares])

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. Raises EnvError for an illegal action, before anything is stepped, and for a fault that
        may not be repaired."""
        last = self._last
        if last is None:
            raise EnvError("step was called before reset, or after an error; reset the environment first.")
        player_actions = [self._check_actions(p, np.asarray(actions[p])) for p in range(self.spec.num_players)]
        bounds = []
        for p, rows in enumerate(player_actions):
            self._memory.actions[p].reshape(-1)[: rows.nbytes] = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
            agents = len(self.spec.agents_of(p))
            edges = [share.first * agents for share in self._shares]
            bounds.append([*np.searchsorted(last.due[p].slot, edges).tolist(), len(rows)])
        kinds = [(rows.dtype.str, rows.shape[1:]) for rows in player_actions]
        messages = [
            (
                "step",
                self._side,
                [edges[share.number] for edges in bounds],
                [edges[share.number + 1] - edges[share.number] for edges in bounds],
                kinds,
            )
            for share in self._shares
        ]
        with self._exchange():
            return self._ask(messages)

    def snapshot(self) -> bytes | None:
        """Return None: the state of another process is not saved."""
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        """Raise EnvError: there are no snapshots."""
        raise EnvError(f"{self.spec.id} in subprocesses cannot be resumed inside an episode; give workers=0 for that.")

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """Render as `SupportsRender.render` describes. Raises EnvError if the environment cannot."""
        share = next(share for share in reversed(self._shares) if share.first <= environment)
        process = self._processes[share.number]
        last, side = self._last, self._side
        with self._exchange():
            try:
                process.send("render", environment - share.first)
                frame: NDArray[np.uint8] | str = process.receive(self._until(share.number))
            except (ChildLost, ChildRaised) as fault:
                raise self._error(share, fault) from None
            finally:
                self._last, self._side = last, side
        return frame

    def close(self) -> None:
        """End all subprocesses, those that do not listen by force."""
        self._last = None
        self._end()

    # ------------------------------------------------------------------------------------------ messages

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        """Send messages and receive all answers. Raises EnvError if that was interrupted once: answers are then due that are not waited
        for."""
        if not self._end.alive or self._busy:
            why = "was interrupted while its subprocesses were at work" if self._end.alive else "is closed"
            raise EnvError(f"{self.spec.id} {why}; make a new one.")
        self._busy = True
        self._last = None
        try:
            yield
        except (EnvError, ConfigError):
            self._busy = False
            raise
        self._busy = False

    def _ask(self, messages: Sequence[tuple[Any, ...]]) -> Timestep:
        """Send every subprocess its message, then wait for all; faults are repaired. Returns what they wrote, as one timestep."""
        faults: dict[int, Fault] = {}
        written: dict[int, WriteCounts] = {}
        for w, (process, message) in enumerate(zip(self._processes, messages, strict=True)):
            try:
                process.send(*message)
            except ChildLost as lost:
                faults[w] = lost
        since = time.perf_counter()
        for w, process in enumerate(self._processes):
            if w not in faults:
                try:
                    written[w] = process.receive(self._until(w, since))
                    self._new[w] &= messages[w][0] != "step"
                except (ChildLost, ChildRaised) as fault:
                    faults[w] = fault
        self.waited += time.perf_counter() - since
        while faults:
            faults = self._repair(faults, written)
        timestep = self._joiners[self._side].timestep([written[w] for w in range(len(self._shares))])
        self._side ^= 1
        self._record.see(timestep)
        self._last = timestep
        return timestep

    def _until(self, number: int, since: float | None = None) -> float | None:
        """Return when a subprocess that was asked at `since` counts as hung."""
        if self._deadline is None:
            return None
        start = time.perf_counter() if since is None else since
        return start + self._deadline + (_START if self._new[number] else 0.0)

    def _check_actions(self, player: int, actions: Array) -> Array:
        assert self._last is not None
        due, spec = self._last.due[player], self.spec
        if len(actions) != len(due.slot):
            raise EnvError(
                f"player {player} was given {len(actions)} actions for {len(due.slot)} due decisions; one each."
            )
        mask = due.mask if spec.enumeration is None else spec.enumeration.mask[due.observation]
        check_actions(spec.agents_of(player)[0].action, actions, mask=mask, what=f"player {player} of {spec.id}")
        return actions

    def _reset_message(self, share: Share) -> tuple[Any, ...]:
        """Begin what is left to be played: at first with the seeds that were given, later with others."""
        return "reset", self._side, *self._record.following(share.first, share.count)

    # ------------------------------------------------------------------------------------------ subprocesses

    def _start(self) -> EnvSpec:
        """Start all concurrently; the spec of the first one gives the size of the memory."""
        for _ in self._shares:
            self._processes.append(self._process())
        share = self._shares[0]
        try:
            for share, process in zip(self._shares, self._processes, strict=True):
                process.send("make", self._make, share.first, share.count, share.number == 0)
            share, since = self._shares[0], time.perf_counter()
            spec: EnvSpec = self._receive_made(share, since)
            self._descriptors.append(memory_file(spec, self.num_envs))
            self._memory = Memory(spec, self.num_envs, self._descriptors[0])
            self._joiners = [RowConcatenator(side, self._shares) for side in self._memory.sides]
            for share in self._shares:
                if share.number:
                    self._receive_made(share, since)
                self._send_memory(self._processes[share.number], spec)
                self._processes[share.number].receive(self._until(share.number))
        except (ChildLost, ChildRaised) as fault:
            raise as_error(f"{share} of {self.num_envs} cannot be made", share, fault) from None
        return spec

    def _receive_made(self, share: Share, since: float) -> Any:
        """Return the answer to "make"; a subprocess that was silent while it started is replaced, if there is a restart left."""
        while True:
            try:
                return self._processes[share.number].receive(self._until(share.number, since))
            except ChildSilent:
                if self.restarts == self._allowed:
                    raise
                self.restarts += 1
                process = self._processes[share.number] = self._process()
                process.send("make", self._make, share.first, share.count, share.number == 0)
                since = time.perf_counter()

    def _process(self) -> ChildProcess:
        patience = None if self._deadline is None else self._deadline + _START
        return ChildProcess(EnvironmentWorker, "the environment is", patience=patience)

    def _send_memory(self, process: ChildProcess, spec: EnvSpec) -> None:
        process.send("map", spec, self.num_envs, descriptor=self._descriptors[0])

    def _repair(self, faults: dict[int, Fault], written: dict[int, WriteCounts]) -> dict[int, Fault]:
        """Put new vectors in the place of faulty ones, in new subprocesses where those are gone. Returns the faults of the new ones."""
        left = self._allowed - self.restarts
        if len(faults) > left:  # before anything is repaired, so that nothing is half repaired
            w, fault = sorted(faults.items())[left]
            raise self._error(self._shares[w], fault) from None
        self.restarts += len(faults)
        for w, fault in faults.items():
            self._new[w] = True  # a new vector is made, in the same subprocess too
            if isinstance(fault, ChildLost):
                self._processes[w] = self._process()
        again: dict[int, Fault] = {}
        for w, fault in faults.items():
            try:
                self._send_start(w, started=isinstance(fault, ChildLost))
            except ChildLost as lost:
                again[w] = lost
        for w, fault in faults.items():
            if w not in again:
                try:
                    written[w] = self._receive_start(w, started=isinstance(fault, ChildLost))
                except (ChildLost, ChildRaised) as other:
                    again[w] = other
        return again

    def _send_start(self, w: int, *, started: bool) -> None:
        share, process = self._shares[w], self._processes[w]
        if started:
            process.send("make", self._make, share.first, share.count, False)
            self._send_memory(process, self.spec)
        process.send(*self._reset_message(share))

    def _receive_start(self, w: int, *, started: bool) -> WriteCounts:
        share, process = self._shares[w], self._processes[w]
        fault: ChildRaised | None = None
        for _ in range(2 if started else 0):
            try:
                process.receive(self._until(w))
            except ChildRaised as raised:  # receive the other answers too, or they are taken for later ones
                fault = raised
        try:
            fresh: WriteCounts = process.receive(self._until(w))
        except ChildRaised as raised:
            raise (fault or raised) from None
        return self._record.truncate(self._memory.sides[self._side], share.first, share.count, fresh)

    def _error(self, share: Share, fault: Fault) -> EnvError | ConfigError:
        record, at = self._record, slice(share.first, share.first + share.count)
        facts = {"seeds": record.seeds[at], "episodes": (record.episode - record.began)[at], "steps": record.length[at]}
        where = ", ".join(f"{what} {_some(values)}" for what, values in facts.items())
        after = f" (after {self.restarts} restarts)" if self.restarts else ""
        error = as_error(f"{self.spec.id}{after}, {share} of {self.num_envs}, {where}", share, fault)
        if share.count > _NAMED:
            error.add_note(
                "Of all of them: " + ", ".join(f"{what} {values.tolist()}" for what, values in facts.items())
            )
        return error


def _some(numbers: NDArray[Any]) -> str:
    return f"{numbers[:_NAMED].tolist()}" + (" …" if len(numbers) > _NAMED else "")


def _end(processes: list[ChildProcess], descriptors: list[int]) -> None:
    end_all(processes)
    while descriptors:
        os.close(descriptors.pop())
