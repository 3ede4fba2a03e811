"""A vector whose environments live in subprocesses: for environments that are slow, crash or hang.

actions -> shared memory -> every subprocess steps its share -> rows in shared memory -> joined -> one timestep
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.base import VectorEnv
from ludus.envs.python_loop import check_actions
from ludus.envs.subprocess_join import Joiner
from ludus.envs.subprocess_memory import Memory, anonymous_file, layout
from ludus.envs.subprocess_process import Fault, Lost, Process, Raised, Share, as_error, end_all, shares
from ludus.envs.subprocess_record import Record
from ludus.envs.subprocess_worker import Written
from ludus.errors import ConfigError, EnvError
from ludus.types import Array, EnvSpec, Timestep

_START = 60.0  # seconds more than the deadline for a subprocess that still imports, makes and compiles things


class SubprocessVectorEnv:
    """`VectorEnv` over `workers` subprocesses that each hold a vector of their share of the environments.

    make: `make(num_envs=n)` gives the vector of one subprocess; it is pickled. deadline: seconds after which a subprocess that has not
    answered is killed (a minute more until its first step is done); None: never. restarts: how many faults (a subprocess that crashed or
    hung, a vector that raised) are repaired before the next raises EnvError. A repaired fault ends the open episodes of that subprocess's
    environments as truncated, with the observations of the last decisions as final ones, and begins new ones in the same timestep. The
    returns of such episodes are the sums of the rewards that were published. From number k on, which follows the last truncated one, an
    environment's episodes are the episodes 0, 1, … of an undisturbed one with seed `episode_seed(seed, k)`.
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
        self._processes: list[Process] = []
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

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`. Raises EnvError for a fault that may not be repaired."""
        seeds = np.asarray(seeds, np.uint64)
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        with self._exchange():
            self._record.reset(seeds, episodes)
            return self._ask([self._reset_message(share) for share in self._shares])

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError for an illegal action, before anything is stepped, and for a fault that may not be
        repaired."""
        last = self._last
        if last is None:
            raise EnvError("step was called before reset, or after an error; reset the environment first.")
        given = [self._checked(p, np.asarray(actions[p])) for p in range(self.spec.num_players)]
        bounds = []
        for p, rows in enumerate(given):
            self._memory.actions[p].reshape(-1)[: rows.nbytes] = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
            agents = len(self.spec.agents_of(p))
            edges = [share.first * agents for share in self._shares]
            bounds.append([*np.searchsorted(last.due[p].slot, edges).tolist(), len(rows)])
        kinds = [(rows.dtype.str, rows.shape[1:]) for rows in given]
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
        """None: what goes on in another process is not saved."""
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        """Raises EnvError: there are no snapshots."""
        raise EnvError(f"{self.spec.id} in subprocesses cannot be resumed inside an episode; give workers=0 for that.")

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """See `Renders.render`. Raises EnvError if the environment cannot."""
        share = next(share for share in reversed(self._shares) if share.first <= environment)
        process = self._processes[share.number]
        last, side = self._last, self._side
        with self._exchange():
            try:
                process.send("render", environment - share.first)
                shown: NDArray[np.uint8] | str = process.receive(self._until(share.number))
            except (Lost, Raised) as fault:
                raise self._error(share, fault) from None
            finally:
                self._last, self._side = last, side
        return shown

    def close(self) -> None:
        """End all subprocesses, those that do not listen by force."""
        self._last = None
        self._end()

    # ------------------------------------------------------------------------------------------ messages

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        """Messages are sent and all of their answers received. Raises EnvError if that was once interrupted: answers are then due that
        nobody waits for."""
        if not self._end.alive or self._busy:
            why = "was interrupted while its subprocesses were at work" if self._end.alive else "is closed"
            raise EnvError(f"{self.spec.id} {why}; make it anew.")
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
        written: dict[int, Written] = {}
        for process, message in zip(self._processes, messages, strict=True):
            try:
                process.send(*message)
            except Lost as lost:
                faults[process.share.number] = lost
        since = time.perf_counter()
        for w, process in enumerate(self._processes):
            if w not in faults:
                try:
                    written[w] = process.receive(self._until(w, since))
                    self._new[w] &= messages[w][0] != "step"
                except (Lost, Raised) as fault:
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
        """When a subprocess that was asked at `since` is taken for hung."""
        if self._deadline is None:
            return None
        start = time.perf_counter() if since is None else since
        return start + self._deadline + (_START if self._new[number] else 0.0)

    def _checked(self, player: int, given: Array) -> Array:
        assert self._last is not None
        due, spec = self._last.due[player], self.spec
        if len(given) != len(due.slot):
            raise EnvError(
                f"player {player} was given {len(given)} actions for {len(due.slot)} due decisions; one each."
            )
        mask = due.mask if spec.enumeration is None else spec.enumeration.mask[due.observation]
        check_actions(spec.agents_of(player)[0].action, given, mask=mask, what=f"player {player} of {spec.id}")
        return given

    def _reset_message(self, share: Share) -> tuple[Any, ...]:
        """Begin what is left to be played: at first with the seeds that were given, later with others."""
        return "reset", self._side, *self._record.following(share.first, share.count)

    # ------------------------------------------------------------------------------------------ subprocesses

    def _start(self) -> EnvSpec:
        """Start all at once; what the first one plays says how large the memory is."""
        for share in self._shares:
            self._processes.append(self._process(share))
        share = self._shares[0]
        try:
            for share, process in zip(self._shares, self._processes, strict=True):
                process.send("make", self._make, share.first, share.count, share.number == 0)
            share, since = self._shares[0], time.perf_counter()
            spec: EnvSpec = self._processes[0].receive(self._until(0))
            self._layout = layout(spec, self.num_envs)
            self._descriptors.append(anonymous_file(self._layout.nbytes))
            self._memory = Memory(self._layout, self._descriptors[0])
            self._joiners = [Joiner(side, self._shares) for side in self._memory.sides]
            for share, process in zip(self._shares, self._processes, strict=True):
                if share.number:
                    process.receive(self._until(share.number, since))
                process.send_memory(self._layout, self._descriptors[0])
                process.receive(self._until(share.number))
        except (Lost, Raised) as fault:
            raise as_error(f"{share} of {self.num_envs} cannot be made", share, fault) from None
        return spec

    def _process(self, share: Share) -> Process:
        return Process(share, patience=None if self._deadline is None else self._deadline + _START)

    def _repair(self, faults: dict[int, Fault], written: dict[int, Written]) -> dict[int, Fault]:
        """Put new vectors in the place of faulty ones, in new subprocesses where those are gone. Returns the faults of the new ones."""
        left = self._allowed - self.restarts
        if len(faults) > left:  # before anything is repaired, so that nothing is half repaired
            w, fault = sorted(faults.items())[left]
            raise self._error(self._shares[w], fault) from None
        self.restarts += len(faults)
        for w, fault in faults.items():
            self._new[w] = True  # a vector is made anew, in the same subprocess too
            if isinstance(fault, Lost):
                self._processes[w] = self._process(self._shares[w])
        again: dict[int, Fault] = {}
        for w, fault in faults.items():
            try:
                self._send_start(w, started=isinstance(fault, Lost))
            except Lost as lost:
                again[w] = lost
        for w, fault in faults.items():
            if w not in again:
                try:
                    written[w] = self._receive_start(w, started=isinstance(fault, Lost))
                except (Lost, Raised) as other:
                    again[w] = other
        return again

    def _send_start(self, w: int, *, started: bool) -> None:
        share, process = self._shares[w], self._processes[w]
        if started:
            process.send("make", self._make, share.first, share.count, False)
            process.send_memory(self._layout, self._descriptors[0])
        process.send(*self._reset_message(share))

    def _receive_start(self, w: int, *, started: bool) -> Written:
        share, process = self._shares[w], self._processes[w]
        fault: Raised | None = None
        for _ in range(2 if started else 0):
            try:
                process.receive(self._until(w))
            except Raised as raised:  # receive the other answers too, or they are taken for later ones
                fault = raised
        try:
            fresh: Written = process.receive(self._until(w))
        except Raised as raised:
            raise (fault or raised) from None
        return self._record.truncate(self._memory.sides[self._side], share.first, share.count, fresh)

    def _error(self, share: Share, fault: Fault) -> EnvError | ConfigError:
        record, at = self._record, slice(share.first, share.first + share.count)
        episodes = (record.episode - record.began)[at].tolist()
        where = f"{share} of {self.num_envs}, seeds {record.seeds[at].tolist()}, episodes {episodes}, steps {record.length[at].tolist()}"
        after = f" (after {self.restarts} restarts)" if self.restarts else ""
        return as_error(f"{self.spec.id}{after}, {where}", share, fault)


def _end(processes: list[Process], descriptors: list[int]) -> None:
    end_all(processes)
    while descriptors:
        os.close(descriptors.pop())
