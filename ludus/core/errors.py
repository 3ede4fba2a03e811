"""Every error that Ludus raises.

LudusError
├── ConfigError          a key, name or value in a scenario; a preset or file that is not there
│   └── UnknownName      a name that nothing is registered under; says the nearest
├── ScenarioError        parts that are fine alone and do not fit together
├── EnvError             an environment that broke its contract or raised
├── PolicyError          a policy that broke its contract; weights that do not fit their spec
├── SolverError          a meta-solver that was given what it cannot solve
├── DataError
│   ├── TableClosed      the table's task has ended
│   └── Deadlock         a rate limiter setting that could never make progress
├── TrainingError        NaN loss or weights; a device whose memory is not enough for a task
├── CallbackError        a callback that raised
├── TrustError           a stored file that names code, made elsewhere or changed
├── PlayError            a move, or another wish, that a table does not grant
│   ├── WrongTurnError   one that comes too late, too early, or from another's seat
│   └── TooManySessionsError   one more than there may be
└── RunError             a run directory that is missing, half-written, changed or of another version; a runtime that cannot go on
    ├── PartDied         the process of a part ended before it had answered
    ├── ResourceError    the machine is short of memory, processes, files or room on a disk
    └── RunIsOver        a run that is to be extended, and would stop at once

Each message says what was given, what was expected and what to do. Beside the errors there is one warning, `RunWarning`: of a run
that went on, and whose results may not be what they seem.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "CallbackError",
    "ConfigError",
    "DataError",
    "Deadlock",
    "EnvError",
    "LudusError",
    "PartDied",
    "PlayError",
    "PolicyError",
    "ResourceError",
    "RunError",
    "RunIsOver",
    "RunWarning",
    "ScenarioError",
    "SolverError",
    "TableClosed",
    "TooManySessionsError",
    "TrainingError",
    "TrustError",
    "UnknownName",
    "WrongTurnError",
    "article",
    "join_or",
    "nearest",
    "one_line",
    "reading_state",
]


_SHOWN = 12
LONGEST = 4000
"""Characters of an error's message: what a file holds may be long, and the rest of a sentence is not."""
_END = 500
_BREAKS = ("\t", "\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")


class LudusError(Exception):
    """Base of all errors of Ludus; the commands print its message and exit with status 2.

    A message is one line without control characters, of some `LONGEST` characters at most, whatever text of a file it quotes.
    """

    def __str__(self) -> str:
        """Return the message."""
        text = super().__str__()
        if any(mark in text for mark in _BREAKS):
            text = " ".join(text.split())
        if not text.isprintable():
            text = escape_controls(text)
        return text if len(text) <= LONGEST else f"{text[: LONGEST - _END]} … {text[-_END:]}"


class ConfigError(LudusError):
    """A key, name or value of a scenario is wrong."""


class UnknownName(ConfigError):
    """A name that is not registered. `name` is the unknown one."""

    def __init__(self, what: str, name: str, known: Iterable[str], hint: str = "") -> None:
        options = sorted(known)
        super().__init__(f"unknown {what} {name!r}{nearest(name, options)}{f' {hint}.' if hint else ''}")
        self.name = name


class ScenarioError(LudusError):
    """Parts of a scenario do not fit together."""


class EnvError(LudusError):
    """An environment broke its contract, raised, or cannot be built."""


class PolicyError(LudusError):
    """A policy broke its contract, or weights do not fit it."""


class SolverError(LudusError):
    """A meta-solver cannot solve the game that it was called with."""


class DataError(LudusError):
    """A table, sampler or server was used wrongly."""


class TableClosed(DataError):
    """The table closed before or during a call."""


class Deadlock(DataError):
    """A rate limiter setting with which neither inserts nor samples could ever continue."""


class TrainingError(LudusError):
    """A loss or weight became NaN or infinite, or a task needs more memory than its device has: the task fails, and the run continues."""


class CallbackError(LudusError):
    """A user's callback raised; the run has ended and can be resumed."""


class TrustError(LudusError):
    """A stored file names code and has no mark of this user, who does not trust it either: nothing was imported. The commands exit with
    status 6."""


class PlayError(LudusError):
    """A move or another request of a player is refused; nothing has changed."""


class WrongTurnError(PlayError):
    """The request comes too late, too early, or from another seat."""


class TooManySessionsError(PlayError):
    """The largest number of game sessions is reached."""


class RunError(LudusError):
    """A run directory is missing, incomplete, changed, locked or of another version; or a runtime cannot do what was requested."""


class PartDied(RunError):
    """The process of a part ended before it had answered, or its answer was lost with its node."""


class RuntimeDied(RunError):
    """What holds all processes of a run, Ray, has died, and the run with it; the commands exit with status 7."""


class ResourceError(RunError):
    """The machine is short of memory, threads or processes, open files, or room on a disk; the commands exit with status 5."""


class RunIsOver(RunError):
    """A run that is to be extended would stop at once: its `stop` is already reached."""


class RunWarning(UserWarning):
    """A run may not be what it seems, or may not be able to continue: no episode ended, a value loss diverges, few updates …

    `ludus.run` and `ludus.resume` issue them once the run is over, and `Result.warnings` lists them.
    """


@contextmanager
def reading_state(name: str = "") -> Iterator[None]:
    """Raise RunError where what uses a checkpoint's state raises: the state was changed, with its hash, or by another program.

    Args:
        name: Id of the checkpoint; "": it is the run's last one.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        which = f"checkpoint {name}" if name else "the run's checkpoint"
        detail = f"{type(error).__name__}: {one_line(error)}"
        raise RunError(f"{which} holds no state that a run writes: {detail}. Restore it from a copy.") from error


def article(noun: str) -> str:
    """Return the noun with "a" or "an"."""
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"


def join_or(names: Iterable[str]) -> str:
    """Return `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
_CONTROLS |= {code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)}  # half of a pair: no encoding has it


def escape_controls(text: str) -> str:
    """Return the text with control characters as they are written in Python: a terminal would obey those of an error of the user's code."""
    return text.translate(_CONTROLS)


def one_line(error: BaseException) -> str:
    """Return another library's error as text that can stand within a sentence."""
    return escape_controls(" ".join(str(error).split()).rstrip("."))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for a near miss or initials, otherwise the known names (of many, the most similar)."""
    options, low = sorted(known), word.lower()
    folded = {option.lower(): option for option in reversed(options)}
    close = [option for option in options if option.lower().partition("/")[2] == low]  # but for its family
    close += [folded[name] for name in difflib.get_close_matches(low, folded, n=3, cutoff=0.6)]
    close = list(dict.fromkeys(close))[:3]
    if not close and len(word) >= 3:
        initials = {option: "".join(part[:1] for part in option.lower().split("_")) for option in options}
        close = [option for option in options if low in option.lower() or low == initials[option]][:3]
    if close:
        return "; did you mean " + " or ".join(repr(name) for name in close) + "?"
    names = sorted(difflib.get_close_matches(word, options, n=_SHOWN, cutoff=0.0))
    more = f", and {len(options) - _SHOWN} more" if len(options) > _SHOWN else ""
    return f" (known: {', '.join(names)}{more})." if options else "."
