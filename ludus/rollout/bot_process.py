"""Processes in which bots are made and asked, so that one that hangs or dies takes nothing with it.

Which bot is made or asked, and since when, stands in memory that both sides share.

    BotProcess     one process, with a job: to play a tournament's episodes, to answer a worker's questions, to make bots for the first time
    BotProcesses   what rollout workers ask: each slot's bot is in one of several processes
    read_bots      bots by their names, made for the first time
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import wait
from typing import Any, NamedTuple, Protocol

import numpy as np

from ludus.core.errors import ConfigError, LudusError, PartDied, PolicyError, join_or, one_line
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.agents import AgentGame
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy, BotSettings, BotSpec, require_fit, what_raised
from ludus.policies.registry import build_policy
from ludus.rollout.bot_players import BotPlayers, BotPool, BotRequests, BotStatusCallback, LoadedBot, unwatched
from ludus.runtime.child_process import ChildLost, ChildProcess, ChildRaised

_NUMBER, _NUMBERS = 8, 3  # bytes of each, and how many
_NOBODY = -1
_BATCHES = 256  # of questions that are held before those of episodes that have ended are dropped
_BYTES = 64 << 20  # of questions that are held for a process at most; with more it is not replaced
_STATE = 1024  # bytes that a game's state counts for
_LOOK = 0.2  # seconds between two looks at whether a bot takes too long
MAKING = 10.0
"""Seconds that a bot has to be made, however short the deadline is: it may load a network that then plays quickly."""


class BotCallStatus:
    """Which bot is made or asked, and since when, in a page of memory that two processes share: written by one, read by the other."""

    def __init__(self, file: int) -> None:
        """file: a descriptor of a file of at least three numbers."""
        self._numbers = np.frombuffer(mmap.mmap(file, _NUMBERS * _NUMBER), np.float64)

    def __call__(self, bot: int, *, making: bool = False) -> None:
        """Record that this bot is called from now on, or created if `making` (-1: none)."""
        self._numbers[2] = making
        self._numbers[1] = time.monotonic()
        self._numbers[0] = bot

    def read(self) -> tuple[int, float, bool]:
        """Return (bot or -1, seconds since it was asked, whether it is being made)."""
        while True:
            bot, since, making = self._numbers.tolist()
            seconds = time.monotonic() - since
            if self._numbers.tolist() == [bot, since, making]:
                return int(bot), seconds, bool(making)

    @property
    def since(self) -> float:
        """When the last bot was asked, by `time.monotonic`."""
        return float(self._numbers[1])


class ProcessRole(Protocol):
    """What a process is for."""

    @property
    def names(self) -> Sequence[str]:
        """Of the bots, by the numbers that `BotCallStatus` hears; others may lie between them."""
        ...

    def begin(self, status: BotStatusCallback) -> Callable[..., Any]:
        """Get ready, in the process. The returned function takes the arguments of each call of the parent's."""
        ...


class BotWorker:
    """What the process serves (`ludus.runtime.child_process.Served`)."""

    def __init__(self) -> None:
        self._play: Callable[..., Any] | None = None

    def begin(self, job: ProcessRole, descriptor: int) -> None:
        """Get ready. descriptor: of the memory that `BotCallStatus` is made of."""
        status = BotCallStatus(descriptor)
        os.close(descriptor)
        self._play = job.begin(status)

    def play(self, *arguments: Any) -> Any:
        """Return what the job is for."""
        assert self._play is not None
        return self._play(*arguments)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class BotProcess:
    """One process, seen from the parent. It ends with the parent, and is killed by `close`. longer: the option that gives bots more
    time."""

    def __init__(self, job: ProcessRole, *, longer: str = "--deadline") -> None:
        self._job, self._longer = job, longer
        self._begun = False
        with tempfile.TemporaryFile() as shared:
            shared.truncate(_NUMBERS * _NUMBER)
            self._asked = BotCallStatus(shared.fileno())
            self._asked(_NOBODY)
            self._child = ChildProcess(BotWorker, "the bots are")
            try:
                self._child.send("begin", job, descriptor=shared.fileno())
            except BaseException as error:
                self.close()
                if isinstance(error, ChildLost):
                    raise self._died(error) from None
                raise

    def fileno(self) -> int:
        """Return the descriptor for `multiprocessing.connection.wait`."""
        return self._child.fileno()

    def call(self, *arguments: Any) -> None:
        """Begin what the job is for."""
        try:
            self._child.send("play", *arguments)
        except ChildLost as lost:
            raise self._died(lost) from None

    def answered(self) -> bool:
        """Return whether there is an answer to a call; never waits. Raises what making the bots raised, and PartDied if the process is
        gone."""
        try:
            if not self._begun and self._child.answered():
                self._receive()
                self._begun = True
            return self._begun and self._child.answered()
        except ChildLost as lost:
            raise self._died(lost) from None

    def answer(self) -> Any:
        """Return the answer, after `answered`. Raises what was raised there, and PartDied if the process is gone."""
        try:
            return self._receive()
        except ChildLost as lost:
            raise self._died(lost) from None

    def check(self, deadline: float) -> None:
        """Raise PolicyError if a bot has been thinking for longer than `deadline` seconds, or is not made by then and after `MAKING`."""
        bot, seconds, making = self._asked.read()
        if bot == _NOBODY:
            return
        limit = max(deadline, MAKING) if making else deadline
        if seconds > limit:
            how = "was not made" if making else "did not answer"
            raise PolicyError(
                f"bot {self._job.names[bot]!r} {how} within {limit:g} seconds and was ended; {self._longer} gives it longer."
            )

    def wait(self, deadline: float) -> Any:
        """Return the answer. Raises as `answered`, `answer` and `check` do."""
        while not self.answered():
            self.check(deadline)
            wait([self.fileno()], timeout=_LOOK)
        return self.answer()

    @property
    def heartbeat(self) -> float:
        """Changes with every question."""
        return self._asked.since

    def close(self) -> None:
        """End it at once, with all that it started."""
        self._child.kill()

    def _receive(self) -> Any:
        try:
            return self._child.receive()
        except ChildRaised as raised:
            error: LudusError
            if raised.kind is None and "pickle" in str(raised):
                whose = join_or(map(repr, self._job.names))
                error = PolicyError(
                    f"what bot {whose} answered cannot be sent from its process ({raised.name}: {raised}); an action was expected."
                )
            elif raised.kind is None:
                error = LudusError(f"{raised.name}: {raised}")
            else:
                error = raised.kind(str(raised))
            error.add_note(f"In the process in which the bots play:\n{raised.trace}")
            raise error from None

    def _died(self, lost: ChildLost) -> PartDied:
        bot, _, making = self._asked.read()
        who = f" while {self._job.names[bot]!r} was {'made' if making else 'asked'}" if bot != _NOBODY else ""
        return PartDied(f"the process in which the bots play {lost}{who}.")


# --------------------------------------------------------------------------------------------------------------------
# What rollout workers ask.


@dataclass(slots=True)
class _Answers:
    """The job of answering workers' questions. names: of the bots so far, on the parent's side. folder: for the logs of agents."""

    names: list[str] = field(default_factory=list)
    folder: str = ""

    def begin(self, status: BotStatusCallback) -> Callable[..., Any]:
        """Return, in the process, what answers by calling methods of a pool."""
        pool = BotPool(status, folder=self.folder)
        return lambda method, *arguments: getattr(pool, method)(*arguments)


class _OpenEpisodes:
    """What the bots of one process were asked in the episodes that are open, so that those of another process can catch up."""

    def __init__(self) -> None:
        self._batches: list[BotRequests] = []
        self._begun: dict[Hashable, int] = {}  # slot of a player -> number of the batch in which its episode began
        self._first = 0  # number of the first batch that is held
        self._compact_at = _BATCHES
        self._bytes = 0
        self._lost = False  # since they were too much to hold

    def add(self, batch: BotRequests) -> None:
        """Record what was asked, and answered."""
        if self._lost:
            return
        number = self._first + len(self._batches)
        for row in np.flatnonzero(batch.seed >= 0).tolist():
            self._begun[batch.worker, batch.player, int(batch.slot[row])] = number
        self._batches.append(batch)
        self._bytes += batch.observation.nbytes + _STATE * len(batch.states)
        if len(self._batches) >= self._compact_at or self._bytes > _BYTES:
            self._batches = list(self._open())
            self._first = number + 1 - len(self._batches)
            self._begun = {key: self._first for key in self._begun}
            self._bytes = sum(held.observation.nbytes + _STATE * len(held.states) for held in self._batches)
            self._compact_at = max(_BATCHES, 2 * len(self._batches))
            if self._bytes > _BYTES // 2:
                self._lost, self._batches, self._begun = True, [], {}

    def batches(self) -> list[BotRequests] | None:
        """Return what is to be asked again, oldest first; None where that is too much to hold."""
        return None if self._lost else list(self._open())

    def _open(self) -> Iterator[BotRequests]:
        for number, batch in enumerate(self._batches, start=self._first):
            begun = [self._begun.get((batch.worker, batch.player, slot), number + 1) for slot in batch.slot.tolist()]
            rows = np.flatnonzero(np.array(begun) <= number)
            if len(rows):
                yield batch.only(rows)


class BotProcesses:
    """`BotPlayers` in `count` processes, which are started when bots are wanted; a slot's bot is in one of them, so that the bots of a
    step think side by side. A process that dies is replaced, and its bots are asked again what they were asked in the open episodes.

    Attributes:
        restarted: How many processes were replaced so far.
    """

    def __init__(self, count: int, *, deadline: float, restarts: int = 0, folder: str = "") -> None:
        """Start nothing yet.

        Args:
            count: Processes.
            deadline: Seconds that a bot may take for a move.
            restarts: How often each process is replaced.
            folder: For the logs of agents.
        """
        self._count, self._deadline = count, deadline
        self._restarts, self._spent = restarts, [0] * count
        self.restarted = 0
        self._episodes = [_OpenEpisodes() for _ in range(count)]
        self._job = _Answers(folder=folder)
        self._game: AgentGame | None = None
        self._bots: dict[str, BotSpec] = {}
        self._loaded: dict[str, LoadedBot] = {}  # in the processes that there are
        self._processes: list[BotProcess] = []

    def load(self, bots: Sequence[BotSpec], game: AgentGame | None = None) -> list[LoadedBot]:
        """See `BotPlayers.load`. Raises PolicyError if a process ends, too."""
        self._game = self._game or game
        self._bots.update({bot.text: bot for bot in bots})
        self._job.names[:] = self._bots
        if self._bots.keys() - self._loaded.keys():
            known = list(self._bots.values())  # in the same order in each process, which numbers them
            while len(self._processes) < self._count:
                self._processes.append(self._process())
            loaded, *_ = self._all([("load", known, self._game)] * self._count)
            self._loaded = dict(zip(self._bots, loaded, strict=True))
        return [self._loaded[bot.text] for bot in bots]

    def ask(self, questions: BotRequests) -> list[Any]:
        """See `BotPlayers.ask`. Raises PolicyError if a process ends, too."""
        at = questions.slot % self._count
        rows = [np.flatnonzero(at == k) for k in range(self._count)]
        parts = [questions.only(indices) if len(indices) else None for indices in rows]
        replies = self._all([None if part is None else ("ask", part) for part in parts])
        for episodes, part in zip(self._episodes, parts, strict=True):
            if self._restarts and part is not None:
                episodes.add(part)
        answers: list[Any] = [None] * len(at)
        for indices, reply in zip(rows, replies, strict=True):
            for row, answer in zip(indices.tolist(), reply, strict=True):
                answers[row] = answer
        return answers

    def heartbeat(self) -> list[float]:
        """See `BotPlayers.heartbeat`."""
        return [process.heartbeat for process in list(self._processes)]

    def close(self) -> None:
        """See `BotPlayers.close`."""
        for process in self._processes:
            process.close()
        self._processes, self._bots, self._loaded = [], {}, {}
        self._episodes = [_OpenEpisodes() for _ in range(self._count)]

    def _all(self, calls: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Return the answers of the processes to a call each, [] where there is none."""
        try:
            for k, call in enumerate(calls):
                if call is not None:
                    self._alive(k, partial(_send, call=call))
            return [[] if call is None else self._answer(k, call) for k, call in enumerate(calls)]
        except PartDied as died:
            self.close()
            raise PolicyError(str(died)) from died
        except BaseException:  # what the others answer would be taken for the answer to the next question
            self.close()
            raise

    def _process(self) -> BotProcess:
        return BotProcess(self._job, longer="runtime.bots.deadline")

    def _answer(self, k: int, call: tuple[Any, ...]) -> Any:
        """Return the answer to a call that was sent; it is sent again where the process is another one."""
        process = self._processes[k]

        def answer(now: BotProcess) -> Any:
            if now is not process:
                _send(now, call)
            return now.wait(self._deadline)

        return self._alive(k, answer)

    def _alive(self, k: int, use: Callable[[BotProcess], Any]) -> Any:
        """Return what `use` returns of process k, which is replaced where it has died. Raises PartDied once its restarts are used up."""
        while True:
            try:
                return use(self._processes[k])
            except PartDied as died:
                self._replace(k, died)

    def _replace(self, k: int, died: PartDied) -> None:
        while True:
            batches = self._episodes[k].batches()
            if self._spent[k] >= self._restarts or batches is None:
                if not self._spent[k]:
                    raise died
                raise PartDied(
                    f"{died} It was replaced {self._spent[k]} times; runtime.bots.restarts says how often that is done."
                ) from died
            self._spent[k] += 1
            self.restarted += 1
            self._processes[k].close()
            try:
                self._processes[k] = process = self._process()
                for call in (("load", list(self._bots.values()), self._game), *(("ask", batch) for batch in batches)):
                    _send(process, call)
                    process.wait(self._deadline)
                return
            except PartDied as again:
                died = again


def _send(process: BotProcess, call: tuple[Any, ...]) -> None:
    try:
        process.call(*call)
    except ConfigError as error:  # a state that cannot be pickled
        raise PolicyError(
            f"what bots are asked cannot be sent to their process ({one_line(error.__cause__ or error)}). Set runtime.bots.processes=0: "
            "then they play in the worker."
        ) from error


def bot_players(settings: BotSettings) -> BotPlayers:
    """Return what the workers of a process ask."""
    if not settings.processes:
        return BotPool(folder=settings.folder)
    return BotProcesses(
        settings.processes, deadline=settings.deadline, restarts=settings.restarts or 0, folder=settings.folder
    )


# --------------------------------------------------------------------------------------------------------------------
# Bots by name. Those of a user's own are made for the first time in a process, since making one may never end.


class NamedBot(NamedTuple):
    """policy: what stands for the bot, or an object of the user's Policy class. identity: of what it is made of, as JSON."""

    name: str
    policy: Policy
    identity: str


@dataclass(frozen=True, slots=True)
class _BotCheck:
    """These bots are to be made, and to fit a game."""

    bots: tuple[BotSpec, ...]
    spec: EnvSpec
    wrapped: bool

    @property
    def names(self) -> list[str]:
        """Of the bots."""
        return [bot.text for bot in self.bots]

    def begin(self, status: BotStatusCallback) -> Callable[[], list[tuple[PolicySpec | None, str]]]:
        """Return, in the process, what answers with the bots' identities, and the specs of those that are policies."""

        def examined(number: int, bot: BotSpec) -> tuple[PolicySpec | None, str]:
            status(number, making=True)
            spec = bot.policy_spec()
            if spec is None:
                require_fit(repr(bot.name), bot.make(), self.spec, wrapped=self.wrapped)
            result = spec, json.dumps(bot.identity(), sort_keys=True)
            status(_NOBODY)
            return result

        return lambda: [examined(number, bot) for number, bot in enumerate(self.bots)]


def read_bots(bots: Sequence[BotSpec], spec: EnvSpec, *, wrapped: bool, deadline: float) -> list[NamedBot]:
    """Return what these bots are. wrapped: as `require_fit` takes it. deadline: seconds that one may take to be made (10 at least).

    Raises what `BotSpec.make` and `require_fit` raise; PolicyError, with its name, for one that is not made in time, or a Policy that
    cannot be made of its options alone.
    """
    spaces = spec.agents if any(bot.external for bot in bots) else ()
    light = replace(spec, agents=spaces, state=None, enumeration=None)  # fitting looks at no more
    results: dict[str, tuple[PolicySpec | None, str]] = {}
    for own in (False, True):
        if not (chosen := tuple(bot for bot in bots if bot.own is own)):
            continue
        exam = _BotCheck(chosen, light, wrapped)
        answers = _in_process(exam, deadline) if own else exam.begin(unwatched)()
        results.update(zip(exam.names, answers, strict=True))
    return [_named(bot, *results[bot.text]) for bot in bots]


def _in_process(exam: _BotCheck, deadline: float) -> Any:
    process = BotProcess(exam, longer="--deadline (in a run: runtime.bots.deadline)")
    try:
        process.call()
        return process.wait(deadline)
    finally:
        process.close()


def _named(bot: BotSpec, policy: PolicySpec | None, identity: str) -> NamedBot:
    if policy is None:
        return NamedBot(bot.text, BotPolicy.of(bot), identity)
    try:
        return NamedBot(bot.text, build_policy(policy, {}), identity)
    except LudusError:
        raise
    except Exception as error:
        raise PolicyError(
            f"policy {bot.text!r} could not be made of its options alone, as {bot.kind}(spec, {{}}): {what_raised(error)}. One with "
            "weights is given as a file, FILE.safetensors."
        ) from error
