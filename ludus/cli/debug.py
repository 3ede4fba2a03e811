"""ludus debug"""

from __future__ import annotations

import argparse
import math
import shlex
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ludus.cli.command import Command, positive_number, run_and_policies, whole_number, without_window
from ludus.cli.output import aligned, stream, table, write
from ludus.core.errors import ConfigError, LudusError, UnknownName
from ludus.core.machine import replace_file, signals_handled

if TYPE_CHECKING:
    from ludus.apps.episodes.debugger import Decision, EpisodeDebugger, Step

_WIDTH = 80
_ROWS = 12  # decisions that a step is told in
_SHOWN = 4  # decisions that `see` shows where nobody is named
_NUMBERS = 32  # of an observation that are shown without being asked for
_BAR = 16
_NAME = 24  # of an action, in the table of probabilities
_AROUND = 10  # steps before and after, in `list`


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN[@WHAT]|FILE.jsonl",
        help="name of a run in ./runs, or its directory (works while the run is still running). @WHAT: the policies that play (default: "
        "@meta, the last meta-strategy). Or an episode that `save` wrote",
    )
    parser.add_argument(
        "--policies",
        metavar="NAME",
        nargs="+",
        default=[],
        help="after RUN: the policies that play, one for all or one per player, as in `ludus record`",
    )
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of the episodes (default: 0)")
    parser.add_argument(
        "--episode", type=positive_number, default=1, help="number of the episode, as in `ludus record` (default: 1)"
    )
    parser.add_argument(
        "--steps", type=positive_number, help="maximum length of the episode; a longer one is cut (default: 100000)"
    )
    parser.add_argument("--overwrite", action="store_true", help="let `save` and `picture` overwrite files")
    parser.add_argument(
        "--script",
        metavar="COMMANDS",
        help='commands, separated by semicolons, such as "break prob < 0.1; continue; see"; default: from standard input',
    )


def _execute(options: argparse.Namespace) -> int:
    without_window()
    with _opened(options) as debugger:
        session = Session(debugger, overwrite=options.overwrite)
        if options.script is not None:
            script = list(_split(options.script.splitlines()))
            for text in script:
                session.parsed(text)  # what is no command is refused before anything is done
            session.follow(script)
        elif sys.stdin is not None and sys.stdin.isatty():
            session.talk()
        else:
            session.follow(_split(sys.stdin or ()))
    return 0


def _split(lines: Iterable[str]) -> Iterator[str]:
    """Return commands, without comments."""
    texts = (part.strip() for line in lines for part in line.split(";"))
    return (text for text in texts if text and not text.startswith("#"))


def _opened(options: argparse.Namespace) -> EpisodeDebugger:
    from ludus.apps.episodes.debugger import LINES, RecordedEpisode
    from ludus.apps.episodes.played_episode import MOST_STEPS, debug_run

    if options.run.endswith(LINES):
        if options.policies or options.seed or options.episode > 1 or options.steps:
            raise ConfigError(
                f"{options.run!r} is an episode that was played; --policies, --seed, --episode and --steps are of no use."
            )
        return RecordedEpisode(Path(options.run))
    run_dir, policies = run_and_policies(options.run, options.policies)
    return debug_run(
        run_dir,
        policies=policies,
        episode=options.episode - 1,
        seed=options.seed,
        steps=options.steps or MOST_STEPS,
    )


# --------------------------------------------------------------------------------------------------------------------
# A session: commands, one after the other.


@dataclass(frozen=True, slots=True)
class _SessionCommand:
    """A command of a session. arguments: as they are shown. most: how many there may be; -1: what follows is one text."""

    name: str
    short: str
    arguments: str
    summary: str
    least: int
    most: int
    run: Callable[..., None]


class _QuitSession(Exception):
    """The session is over."""


class Session:
    """Interactive session: commands and their output."""

    def __init__(self, debugger: EpisodeDebugger, *, overwrite: bool = False) -> None:
        """overwrite: whether files that are there may be replaced."""
        self._debugger, self._overwrite = debugger, overwrite
        words = (
            _SessionCommand("next", "n", "[K]", "K steps forwards (1)", 0, 1, self._next),
            _SessionCommand("back", "b", "[K]", "K steps back (1)", 0, 1, self._back),
            _SessionCommand("go", "g", "STEP", "to a step; `go end`: behind the last one", 1, 1, self._go),
            _SessionCommand(
                "continue", "c", "", "forwards to the next breakpoint, or to the end", 0, 0, self._continue
            ),
            _SessionCommand("break", "", "CONDITION", "stop where it holds, e.g. reward[0] > 0", 1, -1, self._break),
            _SessionCommand("breaks", "", "", "the breakpoints", 0, 0, self._breaks),
            _SessionCommand("clear", "", "[NUMBER]", "forget a breakpoint, or all", 0, 1, self._clear),
            _SessionCommand("where", "w", "", "which episode and step this is, and who plays", 0, 0, self._where),
            _SessionCommand("see", "s", "[PLAYER [AGENT [all]]]", "what was seen, answered, paid", 0, 3, self._see),
            _SessionCommand(
                "probs", "p", "[PLAYER [AGENT]]", "the probability of each legal action", 0, 2, self._probs
            ),
            _SessionCommand("list", "l", "[FROM [TO]]", "a table of steps", 0, 2, self._list),
            _SessionCommand("state", "", "", "the central state, where there is one", 0, 0, self._state),
            _SessionCommand(
                "picture", "", "[FILE.png]", "the state before the step: text, or an image", 0, 1, self._picture
            ),
            _SessionCommand("save", "", "FILE", "the whole episode: .gif, .mp4, .txt or .jsonl", 1, 1, self._save),
            _SessionCommand("restart", "", "[SEED]", "from the start again, or another episode", 0, 1, self._restart),
            _SessionCommand("help", "h", "", "this", 0, 0, self._help),
            _SessionCommand("quit", "q", "", "leave", 0, 0, self._quit),
        )
        self._words = {word.name: word for word in words}
        self._short = {word.short: word for word in words if word.short}

    def follow(self, texts: Iterable[str]) -> None:
        """Do what the commands say; each is shown first. Raises ConfigError for the first one that cannot be done."""
        self._tell()
        for text in texts:
            write(f"\n> {text}")
            try:
                self.do(text)
            except _QuitSession:
                return

    def talk(self) -> None:
        """Ask for commands until somebody leaves."""
        with suppress(ImportError):
            import readline  # noqa: F401  what was typed before can be had again

        self._tell()
        write("`help` shows the commands.")
        while True:
            try:
                stream().flush()
                for text in _split([input(f"\n({self._debugger.position}) ")]):
                    self.do(text)
            except LudusError as error:
                write(_wrapped(f"error: {error}"))
            except KeyboardInterrupt:
                write("\n`quit` leaves.")
            except (_QuitSession, EOFError):
                return

    def do(self, text: str) -> None:
        """One command. Raises ConfigError as `parsed`, and whatever the command raises."""
        word, arguments = self.parsed(text)
        word.run(*arguments)

    def parsed(self, text: str) -> tuple[_SessionCommand, list[str]]:
        """Return a command and its arguments. Raises ConfigError for what is no command, or has too many of them or too few."""
        name, _, rest = text.partition(" ")
        word = self._words.get(name) or self._short.get(name)
        if word is None:
            raise UnknownName("command", name, self._words)
        try:
            arguments = [rest.strip()] if word.most < 0 else shlex.split(rest)
        except ValueError as error:
            raise ConfigError(f"{text!r} cannot be read: {error}.") from error
        arguments = [one for one in arguments if one]
        if not word.least <= len(arguments) <= abs(word.most):
            raise ConfigError(f"{text!r} was given; the command is `{' '.join((word.name, word.arguments)).strip()}`.")
        return word, arguments

    # ------------------------------------------------------------------------------------------ going

    def _next(self, count: str = "1") -> None:
        self._debugger.go(self._debugger.position + _whole(count, "steps"))
        self._tell()

    def _back(self, count: str = "1") -> None:
        self._debugger.go(max(0, self._debugger.position - _whole(count, "steps")))
        self._tell()

    def _go(self, step: str) -> None:
        with _interruptible() as stopped:
            debugger, steps = self._debugger, self._debugger.episode.steps
            wanted = None if step == "end" else _whole(step, "a step")
            while not debugger.over and (wanted is None or len(steps) <= wanted) and not stopped():
                debugger.reach(len(steps))
            last = len(steps) if debugger.over else len(steps) - 1
            debugger.go(last if wanted is None else min(wanted, last))
        self._tell()

    def _continue(self) -> None:
        with _interruptible() as stopped:
            condition = self._debugger.resume(stopped)
        if condition is not None:
            write(f"{condition.text}")
        self._tell()

    def _break(self, condition: str) -> None:
        self._debugger.stop_at(condition)
        self._breaks()

    def _breaks(self) -> None:
        points = self._debugger.breakpoints
        write("\n".join(f"  {k}  {one.text}" for k, one in enumerate(points, 1)) or "no breakpoints")

    def _clear(self, number: str = "") -> None:
        points = self._debugger.breakpoints
        if not number:
            points.clear()
        elif (k := _whole(number, "a breakpoint")) not in range(1, len(points) + 1):
            raise ConfigError(f"breakpoint {k} was given; there are {len(points)}, counted from 1.")
        else:
            del points[k - 1]
        self._breaks()

    def _restart(self, seed: str = "") -> None:
        self._debugger.restart(_whole(seed, "a seed") if seed else None)
        self._tell()

    def _quit(self) -> None:
        raise _QuitSession

    # ------------------------------------------------------------------------------------------ showing

    def _help(self) -> None:
        from ludus.apps.episodes.breakpoints import NAMES

        rows = [(f"{w.name}{f', {w.short}' if w.short else ''} {w.arguments}", w.summary) for w in self._words.values()]
        write("\n".join(aligned(rows)))
        write(
            _wrapped(
                f"Conditions have numbers, comparisons, and, or, not, + - * / // %, abs, min, max and the names {', '.join(NAMES)}."
            )
        )

    def _tell(self) -> None:
        """The step in short."""
        debugger, step = self._debugger, self._debugger.step
        if step is None:
            self._tell_end()
            return
        write(f"step {step.number}{self._ending(step)}")
        decisions = debugger.decisions(step.number)
        rows = [
            (_who(d), f"{d.action_name}{_prob(d)}", f"paid {_number(d.reward)}" if not math.isnan(d.reward) else "")
            for d in decisions[:_ROWS]
        ]
        for line in aligned(rows):
            write(_cut(line))
        if len(decisions) > _ROWS:
            write(f"  and {len(decisions) - _ROWS} more: `see PLAYER AGENT`")

    def _ending(self, step: Step) -> str:
        paid = "" if not step.paid.any() else f", paid {_numbers(step.paid)}"
        return f"{paid}{f', {step.over}' if step.over else ''}"

    def _tell_end(self) -> None:
        episode, cut = self._debugger.episode, self._debugger.cut
        last = episode.steps[-1]
        write(
            _wrapped(f"the end, after {len(episode.steps)} steps: {cut or last.over}, returns {_numbers(last.returns)}")
        )
        for p, row in enumerate(() if last.statistics is None else last.statistics):
            counted = ", ".join(f"{name} {x:.4g}" for name, x in zip(episode.spec.statistics, row, strict=True))
            write(textwrap.fill(f"player {p}: {counted}", _WIDTH, initial_indent="  ", subsequent_indent="    "))

    def _where(self) -> None:
        debugger, episode = self._debugger, self._debugger.episode
        known = f"{len(episode.steps)} in all" if debugger.over else f"{len(episode.steps)} played so far"
        write(f"{episode.spec.id}, seed {episode.seed}, episode {episode.number + 1}")
        step = debugger.step
        at = "the end" if step is None else f"step {step.number}"
        write(f"  {at}, of {known}{f' ({debugger.cut})' if debugger.cut else ''}")
        returns = episode.steps[-1].returns if step is None else step.returns
        for p, (policy, mode) in enumerate(zip(episode.policy, episode.mode, strict=True)):
            count = len(episode.spec.agents_of(p))
            agents = f", {count} agents" if count > 1 else ""
            write(_cut(f"  player {p}{agents}: {policy}, {mode}; returns {_number(float(returns[p]))} so far"))

    def _chosen(self, player: str, agent: str) -> list[Decision]:
        """Return decisions of the present step. Raises ConfigError for players and agents that are not there."""
        debugger, step, spec = self._debugger, self._debugger.step, self._debugger.episode.spec
        if step is None:
            self._tell_end()
            return []
        who = _whole(player, "a player") if player else None
        if who is not None and who >= spec.num_players:
            raise ConfigError(f"player {who} was given; {spec.id} has the players 0 to {spec.num_players - 1}.")
        decisions = debugger.decisions(step.number, who)
        if agent:
            index, count = _whole(agent, "an agent"), len(spec.agents_of(who or 0))
            if index >= count:
                raise ConfigError(f"agent {index} was given; player {who} has the agents 0 to {count - 1}.")
            decisions = [decision for decision in decisions if decision.agent == index]
        if not decisions:
            write(f"player {who}{f' agent {agent}' if agent else ''} has no decision in step {step.number}")
        return decisions

    def _see(self, player: str = "", agent: str = "", every: str = "") -> None:
        if every not in ("", "all"):
            raise ConfigError(f"{every!r} was given; `see {player} {agent} all` shows every number.")
        decisions = self._chosen(player, agent)
        listing = decisions if player else decisions[:_SHOWN]
        for decision in listing:
            self._see_one(decision, whole=bool(every))
        if len(decisions) > len(listing):
            write(f"and {len(decisions) - len(listing)} more: `see PLAYER AGENT`")

    def _see_one(self, d: Decision, *, whole: bool) -> None:
        write(_cut(f"{_who(d)} ({d.name}), by {d.policy}, {d.mode}"))
        _fact("saw", _observation_text(d, whole=whole))
        if d.legal is not None:
            _fact("legal", ", ".join(_named(a, d) for a in d.legal))
        logp = "" if math.isnan(d.logp) else f"{_prob(d)}, log {d.logp:.4g}"
        chosen = d.action_name if d.action.ndim else _named(int(d.action), d)
        _fact("answered", f"{chosen}{logp}{'' if math.isnan(d.value) else f', value {d.value:.4g}'}")
        _fact(
            "paid",
            "not known yet" if math.isnan(d.reward) else f"{_number(d.reward)}, until its next decision or the end",
        )

    def _probs(self, player: str = "", agent: str = "") -> None:
        for d in self._chosen(player, agent):
            write(_cut(f"{_who(d)}, {d.policy}, {d.mode}"))
            if d.probs is None or d.legal is None:
                why = "a bot's cannot be seen" if math.isnan(d.logp) else "of vectors there is no table"
                write(f"  no probabilities: {why}; it answered {d.action_name}")
                continue
            names = {a: _named(a, d) for a in d.legal}
            width = min(max(map(len, names.values())), _NAME)
            for a in d.legal:
                prob = float(d.probs[a])
                bar = "" if math.isnan(prob) else "#" * round(prob * _BAR)
                mark = "*" if d.action.ndim == 0 and a == int(d.action) else " "
                explore = "" if d.explored is None else f"  explore {_share(d.explored[a])}"
                worth = "" if d.action_values is None else f"  value {d.action_values[a]:>8.4g}"
                write(f"  {mark} {names[a][:width]:<{width}}  {_share(prob)}{explore}{worth}  {bar}".rstrip())

    def _list(self, first: str = "", last: str = "") -> None:
        debugger = self._debugger
        at = debugger.position
        begin = _whole(first, "a step") if first else max(0, at - _AROUND)
        end = _whole(last, "a step") if last else max(begin, at) + _AROUND if first else at + _AROUND
        debugger.reach(end) if last else None
        steps = debugger.episode.steps[begin : end + 1]
        if not steps:
            raise ConfigError(
                f"steps {begin} to {end} were asked for; {len(debugger.episode.steps)} were played, from 0."
            )
        rows = []
        for step in steps:
            decisions = debugger.decisions(step.number)
            did = ", ".join(f"{_short_who(d)}:{d.action_name}" for d in decisions)
            mark = ">" if step.number == at else " "
            rows.append(
                (f"{mark}{step.number}", _cut(did, _WIDTH - 38), _numbers(step.paid), _numbers(step.returns), step.over)
            )
        table(("step", "did", "paid", "returns", ""), rows, left=(0, 1, 4))

    def _state(self) -> None:
        step = self._debugger.step
        if step is None or step.state is None:
            write(
                _wrapped(
                    "there is no central state; environments that have one are asked for it (env.options.state=true)"
                )
            )
            return
        write(_wrapped(_array(step.state, whole=True)))

    def _picture(self, file: str = "") -> None:
        position = self._debugger.position
        picture = self._debugger.picture(position)
        if isinstance(picture, str):
            if file:
                raise ConfigError(f"{file!r} was given for text, which this environment shows itself as; leave it out.")
            write(picture.rstrip())
            return
        path = Path(file or f"step-{position}.png")
        if path.suffix.lower() != ".png" or not path.parent.is_dir():
            raise ConfigError(
                f"{str(path)!r} was given; a name that ends in .png, in a folder that there is, is needed."
            )
        self._check_new(path)
        from ludus.apps.episodes.recording import png

        with _writing(path):
            replace_file(path, png(picture))
        write(f"{path}, {picture.shape[1]} × {picture.shape[0]}")

    def _check_new(self, path: Path) -> None:
        if path.exists() and not self._overwrite:
            raise ConfigError(f"{str(path)!r} is there already; name another file, or start with --overwrite.")

    def _save(self, file: str) -> None:
        path = Path(file)
        self._check_new(path)
        with _writing(path):
            self._debugger.save(path)
        write(f"{path}, {len(self._debugger.episode.steps)} steps")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raises ConfigError where the disk, or a right, is wanting: a session goes on after that."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be written: {error.strerror or error}. Name a file in another folder, or make room in this one."
        ) from error


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """While it goes on, Ctrl-C asks to stop between two steps; a second one stops at once."""
    requests = list[bool]()

    def ask(*_: object) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(True)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    with signals_handled(ask, [signal.SIGINT]):
        yield lambda: bool(requests)


# --------------------------------------------------------------------------------------------------------------------
# How things are written, in 80 columns.


def _whole(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise ConfigError(f"{text!r} was given for {what}; a whole number from 0 on was expected.")
    return int(text)


def _who(d: Decision) -> str:
    return f"player {d.player} agent {d.agent}" if d.several else f"player {d.player}"


def _short_who(d: Decision) -> str:
    return f"{d.player}.{d.agent}" if d.several else f"{d.player}"


def _named(action: int, d: Decision) -> str:
    return f"{d.names[action]} ({action})" if action in d.names else str(action)


def _prob(d: Decision) -> str:
    """Nothing of a bot's move, and of vectors, whose density says little."""
    return "" if math.isnan(d.logp) or d.legal is None else f", prob {math.exp(d.logp):.3g}"


def _share(prob: float) -> str:
    """NaN: too rare to be seen."""
    return "  rare" if math.isnan(prob) else f"{prob:.4f}"


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:+.4g}"


def _numbers(values: Sequence[float] | np.ndarray) -> str:
    return " ".join(_number(float(value)) for value in values)


def _fact(name: str, text: str) -> None:
    lines = [piece for line in text.splitlines() or [""] for piece in textwrap.wrap(line, _WIDTH - 12) or [""]]
    for k, line in enumerate(lines):
        write(f"  {name if k == 0 else '':<8}  {line}".rstrip())


def _observation_text(d: Decision, *, whole: bool) -> str:
    """Return the observation: as the game writes it, by columns, or as numbers."""
    parts = [d.information] if d.information else []
    if d.columns:
        named = [*zip(d.columns, d.observation.reshape(-1).tolist(), strict=True)]
        columns = named if whole or len(named) <= _NUMBERS else [(name, x) for name, x in named if x != 0]
        parts.append(", ".join(f"{name}={x + 0.0:.4g}" for name, x in columns))
        if len(columns) < len(named):
            parts.append(f"{len(named) - len(columns)} others are 0")
    elif not parts or whole:
        parts.append(_array(d.observation, whole=whole))
    return "\n".join(parts)


def _array(array: np.ndarray, *, whole: bool) -> str:
    flat = array.reshape(-1)
    header = f"{array.dtype}{list(array.shape)}"
    if whole or len(flat) <= _NUMBERS:
        return f"{header}: {' '.join(f'{float(x) + 0.0:.4g}' for x in flat)}"
    wide = flat.astype(np.float64)
    return (
        f"{header}: least {wide.min():.4g}, mean {wide.mean():.4g}, greatest {wide.max():.4g}, {np.count_nonzero(flat)} not 0 "
        "(`see PLAYER AGENT all` shows them)"
    )


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH))


def _cut(text: str, width: int = _WIDTH) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


COMMAND = Command(
    name="debug",
    summary="Step through an episode of a run's policies, forwards and back: observations, actions and rewards of each player.",
    examples=(
        ("ludus debug try1", "the meta-strategies, with a prompt"),
        ("ludus debug try1 --policies @best bot:random --seed 4", "another episode, somebody else"),
        ('ludus debug try1 --script "break prob < 0.1; continue; see"', "without a prompt"),
        ("ludus debug episode.jsonl", "an episode that its `save` wrote"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
