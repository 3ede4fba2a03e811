"""ludus runs: the runs and experiments of ./runs: list, rename, remove."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ludus.cli.command import Command
from ludus.cli.output import table, write
from ludus.core.errors import ConfigError, LudusError, RunError, UnknownName
from ludus.storage.database import FILE, with_logs
from ludus.storage.run_dirs import (
    EXPERIMENT,
    LOCK_FILE,
    RUNS,
    STUDY,
    SWEEP,
    RunLock,
    check_run_name,
    find_experiment,
    find_run,
    is_running,
    run_dirs,
    run_name,
)
from ludus.storage.run_notes import FILE as NOTES
from ludus.storage.run_notes import read_notes

_OF_A_RUN = (
    *with_logs(FILE),
    "policies",
    "checkpoint",
    "tensorboard",
    "tracking",
    "replays",
    "scenario.yaml",
    "report.html",
    "episode.gif",
    "episode.txt",
    NOTES,
)
_OF_AN_EXPERIMENT = (EXPERIMENT, SWEEP, *with_logs(STUDY))
_OF_ANY = (LOCK_FILE, "control.json", "status.json", "report.html")
_ASIDE = re.compile(r"\.(?P<name>.+?)\.(part|[0-9a-f]{8}|\d+|\d+\.part\.\w+)")

# ---------------------------------------------------------------------------------------------- listing


def show_runs() -> None:
    """A line for each run, those of experiments below them."""
    folders = run_dirs()
    if not folders:
        write(f"There are no runs in ./{RUNS}. `ludus train leduc` makes one.")
        return
    reasons: list[str] = []
    rows = [_run_row(path, reasons) for path in folders]
    tags = [_tags(path, reasons) for path in folders]
    columns = ["run", "scenario", "generations", "NashConv", "time", "state", *(["tags"] if any(tags) else [])]
    lines = [(*row, *([own] if any(tags) else [])) for row, own in zip(rows, tags, strict=True)]
    table(columns, lines, left=(0, 1, 5, 6), spare=(4, 1))
    for reason in reasons:
        write(f"Unreadable: {reason}")
    if cut := [name for name, *_, state in rows if state == "interrupted"]:
        write(f"Interrupted: the process of the run is gone. `ludus resume {shlex.quote(cut[-1])}` resumes it.")


def _run_row(run_dir: Path, reasons: list[str]) -> tuple[str, str, str, str, str, str]:
    from ludus.apps.common.progress import duration, number
    from ludus.storage.reader import Reader

    name = run_name(run_dir)
    try:
        with Reader(run_dir, check=False) as reader:
            info, last, state = reader.info(), reader.last_generation(), reader.state()
    except LudusError as error:  # one broken run must not hide the others
        reasons.append(f"{name}: {error}")
        return name, "-", "-", "-", "-", "unreadable"
    if last is None:
        numbers = ("0", "-", "-")
    else:
        numbers = (str(last.number), number(last.nash_conv), duration(last.seconds))
    return name, info.scenario, *numbers, _state(run_dir, state)


def _tags(run_dir: Path, reasons: list[str]) -> str:
    try:
        return ", ".join(read_notes(run_dir).tags)
    except RunError as error:
        reasons.append(f"{run_name(run_dir)}: {error}")
        return ""


def _state(run_dir: Path, state: str) -> str:
    from ludus.runs.control import describe_state, read_status

    status = read_status(run_dir) if state == "running" else None
    return state if status is None else describe_state(status)


# ---------------------------------------------------------------------------------------------- changing


def _list(options: argparse.Namespace) -> None:
    if options.names:
        raise ConfigError(f"ludus runs has no use for {options.names[0]!r} alone. See `ludus runs --help`.")
    show_runs()


def _remove(options: argparse.Namespace) -> None:
    if not options.names:
        raise ConfigError("which runs are to be deleted? `ludus runs rm RUN…`; `ludus runs` shows the runs.")
    folders = [_find(name) for name in dict.fromkeys(options.names)]
    for name, folder in zip(dict.fromkeys(options.names), folders, strict=True):
        _check_removable(name, folder)
    if not options.yes:
        _ask(folders)
    for folder in folders:
        _delete(folder)
        write(f"deleted {folder}")


def _find(name: str) -> Path:
    """The folder of a run or an experiment, by a path that ends with its name. Raises RunError."""
    folder = find_experiment(name) or find_run(name, zoo=False)
    return folder.resolve() if folder.name in ("", "..") else folder


def _check_removable(name: str, folder: Path) -> None:
    """Raise RunError unless the folder holds a run or an experiment that does not go on, and nothing else."""
    if folder.is_symlink():
        raise RunError(f"{name!r} is a link, to {str(folder.resolve())!r}. Delete it by hand.")
    if (folder.parent / SWEEP).is_file():
        raise RunError(
            f"{name!r} is a trial of the sweep {run_name(folder.parent)!r}, whose study counts it: it would not be played again. "
            f"Nothing was deleted. Delete the sweep: ludus runs rm {shlex.quote(run_name(folder.parent))}"
        )
    for run in _runs_in(folder):
        if is_running(run):
            raise RunError(
                f"run {run_name(run)!r} is going on; nothing was deleted. Stop it first: ludus stop {shlex.quote(run_name(run))}"
            )
        if strange := _strange(run):
            raise RunError(f"{str(run)!r} holds {strange}; nothing was deleted. Move it away first.")


def _runs_in(folder: Path) -> list[Path]:
    """The run, or the experiment and its runs."""
    if not _is_experiment(folder):
        return [folder]
    runs = (folder / run for run in sorted(_listed(folder)))
    return [folder, *(run for run in runs if run.is_dir() and not run.is_symlink())]


def _listed(folder: Path) -> Collection[str]:
    """The runs of an experiment. Raises RunError if its list cannot be read."""
    from ludus.apps.common.experiments import read_experiment

    return read_experiment(folder).runs


def _is_experiment(folder: Path) -> bool:
    return (folder / EXPERIMENT).is_file()


def _strange(folder: Path) -> str:
    """Return something that is there and not of Ludus, and why not; "" if there is nothing."""
    from ludus.storage.database import is_ours

    if _is_experiment(folder):
        _, *runs = _runs_in(folder)
        logs = (f"{run}.log" for run in _listed(folder))
        known = {*_OF_AN_EXPERIMENT, *_OF_ANY, *logs, *(run.name for run in runs)}
    elif (folder / FILE).exists() and not is_ours(folder / FILE):
        return f"a {FILE} that is damaged, or of another program"
    else:
        known = {*_OF_A_RUN, *_OF_ANY}
    strange = [name for name in sorted(os.listdir(folder)) if name not in known and not _is_aside(name, known)]
    return f"{strange[0]}, which no run of Ludus writes" if strange else ""


def _is_aside(name: str, known: Collection[str]) -> bool:
    """Return whether a kill has left it, half written, beside the place of a known file."""
    match = _ASIDE.fullmatch(name)
    shortened = {Path(other).stem for other in known if other != NOTES}  # notes are written under their whole name
    return match is not None and match["name"] in {*known, *shortened}


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """The right to change a run, or an experiment and all its runs. Raises RunError, which says who has it."""
    from ludus.core.machine import raise_file_limit

    raise_file_limit()  # a lock for each run
    with ExitStack() as locks:
        for run in _runs_in(folder):
            locks.enter_context(RunLock(run))
        yield


def _ask(folders: Sequence[Path]) -> None:
    """Raise ConfigError unless the user says yes."""
    if not sys.stdin.isatty():
        raise ConfigError("nothing was deleted: --yes is needed where nobody can be asked.")
    for folder in folders:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
        sys.stderr.write(f"{folder}  {len(_runs_in(folder)) - _is_experiment(folder)} run(s), {size:,.0f} MB\n")
    sys.stderr.write("Delete? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was deleted.")


def _delete(folder: Path) -> None:
    """What makes it a run, or an experiment, goes last, so that what a kill leaves can be deleted too."""
    with _held(folder):
        for run in reversed(_runs_in(folder)):
            last = EXPERIMENT if _is_experiment(run) else FILE
            for path in sorted(run.iterdir(), key=lambda path: (path.name == last, path.name)):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            run.rmdir()


def _rename(options: argparse.Namespace) -> None:
    if len(options.names) != 2:
        raise ConfigError("two names were expected: ludus runs rename RUN NEW")
    name, new = options.names
    check_run_name(new, "the new name")
    folder = _find(name)
    if _is_experiment(folder.parent):
        raise RunError(f"{name!r} belongs to an experiment, whose list names it. Rename the experiment instead.")
    if os.path.lexists(folder.with_name(new)):
        raise RunError(f"{str(folder.with_name(new))!r} is there already; nothing was renamed.")
    with _held(folder):
        folder.rename(folder.with_name(new))
    write(f"{name} is now {run_name(folder.with_name(new))}")


ACTIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "list": _list,
    "rename": _rename,
    "rm": _remove,
}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", metavar="|".join(ACTIONS), nargs="?", default="list", help="what to do (default: list)"
    )
    parser.add_argument("names", metavar="RUN", nargs="*", help="runs or experiments, by name in ./runs or by path")
    parser.add_argument("--yes", action="store_true", help="rm: delete without asking")


def _execute(options: argparse.Namespace) -> int:
    if options.action not in ACTIONS:
        raise UnknownName("action of ludus runs", options.action, ACTIONS, hint="`ludus compare` compares runs")
    if options.yes and options.action != "rm":
        raise ConfigError(f"--yes is for rm; ludus runs {options.action} asks nothing.")
    ACTIONS[options.action](options)
    return 0


COMMAND = Command(
    name="runs",
    summary="List the runs in ./runs; rename or delete them.",
    examples=(
        ("ludus runs", "the runs in ./runs and their states"),
        ("ludus runs rename leduc-20261120-120000 try3", "./runs/try3"),
        ("ludus runs rm try1 try2 --yes", "delete them with all their files"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
