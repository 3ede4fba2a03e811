"""Agents behind a command: JSON lines on its standard input and output (`ludus.contrib.agents.protocol`).

A command that has died raises PartDied: the bots' process is replaced (`runtime.bots.restarts`), and the new command hears again what the
open episodes were asked.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import select
import shlex
import shutil
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ludus.contrib.agents import protocol
from ludus.contrib.agents.answers import Episodes, Judge, NoAnswer, Rule, append_line, log_name, require_positive
from ludus.core.errors import ConfigError, PartDied, PolicyError
from ludus.policies.agents import AgentContext, AgentGame, AgentRequests

_LOOK = 0.5  # seconds between two heartbeats
_CHUNK = 1 << 16  # bytes
_LONGEST = 1 << 26  # bytes of a line
_MANY = 32  # programs of one agent, from which on a line says so
_GRACE = 1.0  # seconds that a command has to end by itself
_TAIL = 300  # characters of its log in a message


@dataclass
class CommandAgent:
    """What a command answers.

    Attributes:
        what: The command, in words as a POSIX shell splits them; no shell runs it.
        timeout: Seconds for a move. Where an answer is late, `illegal` says what is played; it is dropped when it comes. Two late
            answers in a row count as the command's death.
        start: Seconds for the answer to `hello`.
        illegal: What is done where an answer is illegal, late or malformed: random, a legal action is played, and counted; error, the
            evaluation or run ends.
        faults: How many such answers one process of the agent may give before it is an error all the same; None: any number.
        programs: How many programs are started at most, of one that serves one episode at a time.
        cwd: Folder in which it runs; default: the present one.
        env: Variables of its environment besides those of Ludus, as words NAME=VALUE.
        text: Send what the player knows as text, too: of OpenSpiel's games, and of environments whose objects have a method text(player).
    """

    what: str
    timeout: float = 10.0
    start: float = 60.0
    illegal: Rule = "random"
    faults: int | None = None
    programs: int = 256
    cwd: str = ""
    env: str = ""
    text: bool = False
    scheme: ClassVar[str] = "command"
    _judge: Any = field(default=None, init=False, repr=False)
    _episodes: Any = field(default_factory=Episodes, init=False, repr=False)
    _programs: Any = field(default_factory=dict, init=False, repr=False)  # by slot, of type _Program
    _spare: Any = field(default=None, init=False, repr=False)
    _serves: str = field(default="one", init=False, repr=False)
    _told: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        require_positive(timeout=self.timeout, start=self.start)
        self._arguments = self.arguments()
        if not self._arguments:
            raise ConfigError("command: a program was expected after it, as in command:./agent.py.")
        self._variables()

    def arguments(self) -> list[str]:
        """Return the words of the command."""
        try:
            return shlex.split(self.what)
        except ValueError as error:
            raise ConfigError(f"command:{self.what}: {error}; words were expected as a shell splits them.") from error

    def _variables(self) -> dict[str, str]:
        pairs = [word.partition("=") for word in shlex.split(self.env)]
        if wrong := [name for name, equals, _ in pairs if not equals or not name]:
            raise ConfigError(f"env: {wrong[0]!r} was given; words NAME=VALUE were expected.")
        return {name: value for name, _, value in pairs}

    @property
    def wants_states(self) -> bool:
        """See `ExternalAgent`."""
        return self.text

    def check(self, game: Any) -> None:
        """Allow all games: of a state it only tells what its player knows."""

    def begin(self, game: AgentGame, context: AgentContext) -> None:
        """See `ExternalAgent`. Starts the command, and greets it."""
        self._game, self._context = game, context
        self._judge = Judge(game, context, rule=self.illegal, most=self.faults)
        self._writer = protocol.MessageWriter(game, text=self.text)
        self._spare = self._started()
        try:
            self._serves = self._served(self._spare.answer(self.start, starting=True))
        except PartDied as died:
            raise PolicyError(f"{died} It was expected to answer the message hello.") from died

    def _served(self, answer: Any) -> str:
        """Return what it serves, by its answer to hello."""
        return protocol.served(self._context.name, answer)

    def _started(self) -> Any:
        program = _Program(self._arguments, self._context, cwd=self.cwd, env=self._variables())
        program.send(protocol.hello(self._game))
        return program

    def act(self, requests: AgentRequests) -> list[Any]:
        """See `ExternalAgent`."""
        assert self._judge is not None
        episodes = self._episodes.of(requests)
        ask = {"one": self._each_alone, "many": self._one_by_one, "batch": self._together}[self._serves]
        answers = ask(requests)
        strays = 0
        for program in self._programs.values():
            strays, program.strays = strays + program.strays, 0
        played: list[Any] = self._judge.actions(requests, episodes, answers, strays=strays)
        return played

    def _each_alone(self, requests: AgentRequests) -> list[Any]:
        """Ask one program per slot; as many at a time as there are cores."""
        messages, slots = self._writer.rows(requests), self._writer.slots(requests)
        answers: list[Any] = []
        parallel = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        for first in range(0, len(slots), parallel):
            rows = range(first, min(first + parallel, len(slots)))
            fresh = [slots[k] for k in rows if slots[k] not in self._programs]
            self._require_room(len(self._programs) + len(fresh))
            for slot in fresh:
                self._programs[slot], self._spare = self._spare or self._started(), None
            for slot in fresh:
                program = self._programs[slot]
                if program.greeted:
                    continue
                self._served(program.answer(self.start, starting=True))
            for k in rows:
                for message in messages[k]:
                    self._programs[slots[k]].send(message)
            answers += [self._taken(self._programs[slots[k]], self.timeout) for k in rows]
        return [answer if isinstance(answer, NoAnswer) else protocol.action(answer) for answer in answers]

    def _require_room(self, programs: int) -> None:
        """Raise PolicyError for more programs than the option allows, and tell of many."""
        if programs > self.programs:
            raise PolicyError(
                f"agent {self._context.name!r} serves one episode at a time, and {programs} are open: it would need as many programs, and "
                f"programs={self.programs} allows fewer. Let it serve many or batch, or lower env.num_envs (of a tournament --num-envs)."
            )
        if programs > _MANY and not self._told:
            self._told = True
            text = f"agent {self._context.name}: more than {_MANY} programs are started, one for each open episode; serve many or batch.\n"
            sys.stderr.write(text)

    def _one_by_one(self, requests: AgentRequests) -> list[Any]:
        """Ask one program for all, with a message for each."""
        program = self._only()
        for messages in self._writer.rows(requests):
            for message in messages:
                program.send(message)
        answers = [self._taken(program, self.timeout) for _ in requests.slot]
        return [answer if isinstance(answer, NoAnswer) else protocol.action(answer) for answer in answers]

    def _together(self, requests: AgentRequests) -> list[Any]:
        """Ask one program for all, with one message."""
        program, n = self._only(), len(requests.slot)
        program.send(self._writer.batch(requests))
        answer = self._taken(program, self.timeout * n)
        return [answer] * n if isinstance(answer, NoAnswer) else protocol.actions(answer, n)

    def _only(self) -> Any:
        if 0 not in self._programs:
            self._programs[0], self._spare = self._spare or self._started(), None
            if not self._programs[0].greeted:
                self._served(self._programs[0].answer(self.start, starting=True))
        return self._programs[0]

    def _taken(self, program: Any, seconds: float) -> Any:
        try:
            return program.answer(seconds)
        except TimeoutError:
            return NoAnswer("late", f"nothing within {seconds:g} seconds.")

    def identity(self) -> Mapping[str, Any]:
        """See `ExternalAgent`: the digests of the files among the command's words."""
        folder = Path(self.cwd or ".")
        program = shutil.which(self._arguments[0])
        files = [folder / word for word in self._arguments if (folder / word).is_file()]
        digests = {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        return {"files": digests, "program": "" if program is None else Path(program).name}

    def close(self) -> None:
        """See `ExternalAgent`. Commands are asked to end, and killed if they do not."""
        programs = [*self._programs.values(), *([self._spare] if self._spare is not None else [])]
        self._programs, self._spare = {}, None
        self._episodes.forget()
        until = time.monotonic() + _GRACE
        for program in programs:
            program.ask_to_end()
        for program in programs:
            program.end(until)

    def __deepcopy__(self, memo: Any) -> CommandAgent:
        raise TypeError("an agent plays all slots itself")


class _Program:
    """A running command, and the pipes to it. greeted: whether it has answered."""

    def __init__(self, arguments: Sequence[str], context: AgentContext, *, cwd: str, env: Mapping[str, str]) -> None:
        self._context, self.greeted = context, False
        self._waiting, self._lines, self._begun = bytearray(), list[bytes](), bytearray()
        self._owed = 0  # late answers that are still to come, and are dropped
        self._due = 0  # answers that are waited for
        self.strays = 0  # answers that came unasked, and were dropped
        self._log = Path(context.folder) / log_name(context.name) if context.folder else None
        errors = _errors() if self._log is None else _opened(self._log)
        try:
            self._popen = subprocess.Popen(
                _runnable(arguments, cwd),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=cwd or None,
                env={**os.environ, **env},
            )
        except OSError as error:
            where = f", {error.filename!r}" if error.filename else ""
            wanted = f"A program that can be executed was expected, in {cwd or os.getcwd()!r}."
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
                wanted = "Too many run at a time: serve many or batch, or lower env.num_envs."
            raise PolicyError(
                f"agent {context.name!r} could not be started: {error.strerror or error}{where}. {wanted}"
            ) from error
        finally:
            if self._log is not None and errors is not None:
                os.close(errors)
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._in, self._out = self._popen.stdin.fileno(), self._popen.stdout.fileno()
        for descriptor in (self._in, self._out):
            os.set_blocking(descriptor, False)
        self._end = weakref.finalize(self, _ended, self._popen)  # also where nothing closes the agent

    def send(self, message: Mapping[str, Any]) -> None:
        """Say it, now or while an answer is waited for."""
        if message["type"] in ("hello", "act"):
            if message["type"] == "act" and not self._due:
                self._drop_strays()
            self._due += 1
        self._waiting += protocol.encoded(message)
        self._write()

    def answer(self, seconds: float, *, starting: bool = False) -> Any:
        """Return the next answer. Raises TimeoutError where it does not come in time, and PartDied where none can come, or the last one
        is late, too."""
        until = time.monotonic() + seconds
        while True:
            while self._lines:
                if (value := self._read(self._lines.pop(0))) is None:
                    continue
                if self._owed:
                    self._owed -= 1
                    continue
                self.greeted = True
                self._due -= 1
                return value[0]
            self._context.heartbeat()
            left = until - time.monotonic()
            if left <= 0:
                self._late(seconds, starting)
            self._exchange(min(left, _LOOK))

    def _late(self, seconds: float, starting: bool) -> None:
        if starting or self._owed:
            self._kill()
            what = "to hello" if starting else "for two moves in a row"
            raise PartDied(
                f"agent {self._context.name!r} did not answer {what} within {seconds:g} seconds.{self._said()}"
            )
        self._owed += 1
        self._due -= 1
        raise TimeoutError

    def _drop_strays(self) -> None:
        """Drop what has come although nothing was asked; else it would be taken for the answer to what is asked next."""
        with suppress(PartDied):  # which is seen when an answer is waited for
            self._exchange(0)
        while self._lines:
            if self._read(self._lines.pop(0)) is None:
                continue
            if self._owed:
                self._owed -= 1
            else:
                self.strays += 1

    def _read(self, line: bytes) -> tuple[Any] | None:
        """Return what a line says; None for what is no JSON, which a program may print by the way: the log has it."""
        try:
            return (json.loads(line),)
        except ValueError:
            text = line.decode(errors="replace").rstrip("\n")
            if text.strip() and self._log is not None:
                append_line(self._log, f"(standard output) {text}")
            return None

    def _exchange(self, seconds: float) -> None:
        """Write what waits, and read what has come; wait for one of both."""
        poller = select.poll()  # select takes no descriptor beyond 1023
        poller.register(self._out, select.POLLIN)
        if self._waiting:
            poller.register(self._in, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poller.poll(math.ceil(max(seconds, 0) * 1000))}
        if self._in in ready:
            self._write()
        if self._out not in ready:
            return
        with suppress(BlockingIOError):
            data = os.read(self._out, _CHUNK)
            if not data:
                self._lost()
            *whole, rest = (bytes(self._begun) + data).split(b"\n")
            self._lines += whole
            self._begun = bytearray(rest)
            if len(rest) > _LONGEST:
                self._kill()
                raise PartDied(f"agent {self._context.name!r} wrote {len(rest)} bytes without an end of line.")

    def _write(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._in, self._waiting[:_CHUNK])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._waiting.clear()  # its end is seen when an answer is waited for

    def _lost(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(_GRACE)
        code = self._popen.poll()
        self._kill()
        how = (
            "closed its output"
            if code is None
            else f"ended with exit code {code}"
            if code >= 0
            else f"was killed by signal {-code}"
        )
        raise PartDied(f"agent {self._context.name!r} {how}.{self._said()}")

    def _said(self) -> str:
        """Return the end of what it wrote to its log."""
        if self._log is None:
            return ""
        with suppress(OSError):
            text = self._log.read_text(encoding="utf-8", errors="replace").strip()
            last = " | ".join(text.splitlines()[-3:])[-_TAIL:]
            return f" Its log, {str(self._log)!r}, {f'ends with: {last}' if last else 'is empty.'}"
        return ""

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            self._popen.kill()

    def ask_to_end(self) -> None:
        """Say `close`, and that no more comes."""
        with suppress(OSError):
            self.send({"type": "close"})
        assert self._popen.stdin is not None
        with suppress(OSError):
            self._popen.stdin.close()

    def end(self, until: float) -> None:
        """Wait for its end, and kill it if there is none."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(max(0.0, until - time.monotonic()))
        self._end()


def _ended(popen: subprocess.Popen[bytes]) -> None:
    """End a program at once."""
    for pipe in (popen.stdin, popen.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()
    if popen.poll() is None:
        popen.kill()
        popen.wait()


def _opened(log: Path) -> int:
    log.parent.mkdir(parents=True, exist_ok=True)
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def _errors() -> int | None:
    """Return this process's standard error, where it has a file."""
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _runnable(arguments: Sequence[str], cwd: str) -> list[str]:
    """Return the words with which a command is started: a file of Python that cannot be executed is run by this interpreter."""
    program = Path(cwd or ".") / arguments[0]
    if program.suffix == ".py" and program.is_file() and not os.access(program, os.X_OK):
        return [sys.executable, str(program), *arguments[1:]]
    if program.is_file() and os.sep in arguments[0]:
        return [str(program.absolute()), *arguments[1:]]
    if program.is_file() and shutil.which(arguments[0]) is None and os.access(program, os.X_OK):
        return [str(program.absolute()), *arguments[1:]]
    return list(arguments)
