"""The `ludus` command. Heavy modules are imported by the commands that need them, when they need them."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from types import FrameType
from typing import NoReturn

from ludus import __version__
from ludus.cli import (
    check_env,
    clone,
    compare,
    config,
    copy,
    debug,
    doctor,
    evaluate,
    export,
    list_command,
    live_control,
    new,
    play,
    record,
    report,
    resume,
    runs,
    schema,
    status,
    sweep,
    tournament,
    track,
    train,
    ui,
    verify,
    zoo,
)
from ludus.cli.command import Command
from ludus.cli.completion import command as completion
from ludus.cli.output import aligned, separate, stream
from ludus.cli.trust import trusted_as
from ludus.core.errors import (
    LudusError,
    ResourceError,
    RuntimeDied,
    RunWarning,
    TrustError,
    UnknownName,
    escape_controls,
)
from ludus.core.machine import open_standard_files, reserve_stack
from ludus.core.shortages import shortage

# New objects until Python looks for garbage among them. Its 700 would make a run's imports and compilation a second longer.
_GARBAGE = 10_000
SHORTAGE = 5
"""Exit code where the machine has not enough memory, processes, files or room on a disk."""
UNTRUSTED = 6
"""Exit code where a stored file names code that this user has neither made nor trusts."""

RUNTIME_DIED = 7
"""Exit code where Ray, which held the processes of a run, has died."""

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        train.COMMAND,
        sweep.COMMAND,
        resume.COMMAND,
        status.COMMAND,
        live_control.PAUSE,
        live_control.UNPAUSE,
        live_control.THROTTLE,
        live_control.CHECKPOINT,
        live_control.STOP,
        evaluate.COMMAND,
        tournament.COMMAND,
        play.COMMAND,
        record.COMMAND,
        export.COMMAND,
        debug.COMMAND,
        clone.COMMAND,
        zoo.PUSH,
        zoo.PULL,
        track.COMMAND,
        report.COMMAND,
        compare.COMMAND,
        ui.COMMAND,
        runs.COMMAND,
        copy.COMMAND,
        verify.COMMAND,
        list_command.COMMAND,
        new.COMMAND,
        config.COMMAND,
        schema.COMMAND,
        check_env.COMMAND,
        doctor.COMMAND,
        completion.COMMAND,
    )
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 2 refused (one line says why), 5 the machine is short of
    something, 6 code of a stored file is not trusted, 7 Ray has died, 1 a fault of Ludus itself.

    LUDUS_DEBUG=1 shows tracebacks.
    """
    _check_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if os.environ.get("LUDUS_DEBUG", "") not in ("", "0"):
        return _run(arguments)
    try:
        code = _run(arguments)
        stream().flush()
        return code
    except LudusError as error:
        return _fail(str(error), _code(error), own=error)
    except KeyboardInterrupt:
        return _fail("stopped by Ctrl-C", 130, prefix="")
    except BrokenPipeError:
        _give_up_output()  # its reader went away, as in `ludus list envs | head`
        return 0
    except Exception as error:  # noqa: BLE001  a fault of ours still ends in one line
        if (short := shortage(error)) is not None:
            return _fail(f"{short}.", SHORTAGE, own=error)
        if isinstance(error, OSError):  # the machine refuses
            return _fail(_refusal(error), 2, own=error)
        from ludus.core.user_code import describe_user_error

        if (what := describe_user_error(error)) is not None:
            return _fail(f"{what}. LUDUS_DEBUG=1 shows the whole traceback.", 1, own=error)
        return _fail(f"{type(error).__name__}: {error} (a fault of Ludus; LUDUS_DEBUG=1 shows where)", 1)


@reserve_stack
def script() -> None:
    """The console entry point. A `module:Class` of the user's own is found in the working directory too; that comes last, so that a
    yaml.py there is not taken for the library."""
    sys.path.append("")
    open_standard_files()
    gc.set_threshold(_GARBAGE)
    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # who ignores it, as some who start commands do, is not told how a child ended
    for number in _ENDINGS:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one
            signal.signal(number, _stop)
    separate()
    warnings.formatwarning = _warning_line
    try:
        code = main()
    except _Stopped as stopped:
        code = _fail(f"stopped by {stopped.signal.name}", 128 + stopped.signal, prefix="")
    _end(code)


def _warning_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    if issubclass(category, RunWarning):  # of a run, whatever line of the code it comes from
        return escape_controls(f"warning: {' '.join(str(message).split())}") + "\n"
    return _format_warning(message, category, filename, lineno, line)


_format_warning = warnings.formatwarning


class _Stopped(BaseException):
    """A signal came by which a process ends: raised, so that nothing half-written is left behind."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)


def _stop(number: int, _: FrameType | None) -> None:
    for other in _ENDINGS:
        if signal.getsignal(other) is _stop:
            signal.signal(other, signal.SIG_DFL)  # a second one is not waited for
    raise _Stopped(number)


_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
"""Those of a kill and a closed terminal. Runs have their own handlers, which end them at a place that they can go on from."""


def _end(code: int) -> NoReturn:
    """As `sys.exit`, but the interpreter, and with it torch, is not taken apart object by object: most of a second of every command."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for output in (stream(), sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads any more
            output.flush()
    os._exit(code)


def _check_streams() -> None:
    """What an encoding lacks (± in ASCII, say) is written as ?; a stream that the process was started without leads nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  for the rest of the process
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _code(error: LudusError) -> int:
    """Return the exit code of what was refused."""
    if isinstance(error, RuntimeDied):
        return RUNTIME_DIED
    if isinstance(error, ResourceError) or shortage(error) is not None:
        return SHORTAGE
    return UNTRUSTED if isinstance(error, TrustError) else 2


def _refusal(error: OSError) -> str:
    where = "" if error.filename is None else f" {error.filename!r}"
    return f"{error.strerror or error}:{where}" if where else f"{error.strerror or error}."


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and arguments[1:]:  # `ludus help train`
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        stream().write(_overview())
        return 0
    if arguments[0] == "--version":
        stream().write(f"ludus {__version__}\n")
        return 0
    command = COMMANDS.get(arguments[0])
    if command is None:
        raise UnknownName("command", arguments[0], COMMANDS)
    try:
        with redirect_stdout(stream()):  # of `--help`
            options = command.parse(arguments[1:])
    except SystemExit as done:  # argparse printed its help
        return int(done.code or 0)
    with trusted_as(options):
        return command.execute(options)


def _overview() -> str:
    first = [
        f"  {line}" for line in ("ludus train leduc", "ludus train kuhn generations=5 --seed 1", "ludus list presets")
    ]
    return "\n".join(
        [
            "Train populations of policies against each other.",
            "",
            "usage: ludus COMMAND [...]",
            "",
            "commands:",
            *aligned(((command.name, command.summary) for command in COMMANDS.values()), gap=3),
            "",
            "`ludus COMMAND --help` describes a command.",
            "",
            "examples:",
            *first,
            "",
        ]
    )


def _give_up_output() -> None:
    """What is still to be written goes nowhere, so that Python does not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream().fileno())


def _lines(error: BaseException | None) -> Iterator[str]:
    if error is None:
        return
    if isinstance(error, LudusError) and error.__cause__ is None and not getattr(error, "__notes__", ()):
        return
    from ludus.core.user_code import lines, user_frames

    yield from map(escape_controls, lines(user_frames(error)))


def _fail(message: str, code: int, *, prefix: str = "error: ", own: BaseException | None = None) -> int:
    """own: an error that may have arisen in the user's code, whose last lines are then shown."""
    try:
        stream().flush()
    except OSError:
        _give_up_output()
    with suppress(OSError):  # the terminal was closed
        sys.stderr.write("\n".join([escape_controls(f"{prefix}{' '.join(message.split())}"), *_lines(own), ""]))
    return code
