"""Copies of runs and experiments, also while they run, and what is damaged in one.

copy_run      the database by SQLite's backup, then the files that it names, by their hashes
verify_run    what is damaged, and what each damage costs
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ludus.core import trust
from ludus.core.config import from_yaml
from ludus.core.errors import LudusError, RunError, TrustError, one_line
from ludus.core.machine import replace_file
from ludus.runs.lost_commits import lost_commits
from ludus.runs.resumable_run import SCENARIO
from ludus.runs.scenario_files import parse_scenario
from ludus.storage import checkpoint, run_notes
from ludus.storage.database import FILE, HASHED
from ludus.storage.reader import Reader, translated
from ludus.storage.run_dirs import EXPERIMENT, STUDY, SWEEP, require_empty
from ludus.storage.store import sha256_of
from ludus.storage.stored_run import StoredRun

_ATTEMPTS = 8
_PAUSE = 0.5  # seconds between two of them: a run publishes a policy shortly before the database names it
_BESIDE = (SCENARIO, trust.FILE, run_notes.FILE, "report.html", "episode.gif", "episode.txt")
_FOLDERS = ("tensorboard", "replays")


def copy_run(run_dir: Path, folder: Path, *, message: Callable[[str], object] = str) -> list[str]:
    """Copy a run, or an experiment with all its runs, also while it runs.

    Args:
        run_dir: Directory of the run or experiment.
        folder: Directory of the copy, which is new or empty.
        message: Is called with a line for each run of an experiment.

    Returns:
        What the copy lacks, a line each: files that the original lacks or has damaged.

    Raises:
        RunError: If the folder is not empty, or the run changes faster than it can be copied; then nothing is left there.
    """
    require_empty(folder)
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        missing = (
            _copy_experiment(run_dir, aside, message) if (run_dir / EXPERIMENT).is_file() else _copy(run_dir, aside)
        )
        if folder.is_dir():
            folder.rmdir()
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return missing


def _copy_experiment(source: Path, target: Path, message: Callable[[str], object]) -> list[str]:
    for name in (EXPERIMENT, SWEEP, trust.FILE, "report.html"):
        if (source / name).is_file():
            shutil.copy2(source / name, target / name)
    if (source / STUDY).is_file():
        _backup(source / STUDY, target / STUDY)
    for log in source.glob("*.log"):
        shutil.copy2(log, target / log.name)
    missing = []
    for database in sorted(source.glob(f"*/{FILE}")):
        name = database.parent.name
        (target / name).mkdir()
        missing += [f"{name}: {line}" for line in _copy(database.parent, target / name)]
        message(f"{name} is copied")
    return missing


def _copy(source: Path, target: Path) -> list[str]:
    """Copy a run into an empty directory. What does not fit the database is looked at again: the run may have gone on meanwhile."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        (target / FILE).unlink(missing_ok=True)
        _backup(source / FILE, target / FILE)
        missing = [*_copy_policies(source, target), *_copy_checkpoints(source, target)]
        if not missing:
            break
    for name in _BESIDE:
        if (source / name).is_file():
            shutil.copy2(source / name, target / name)
    with Reader(target) as reader:  # whatever `scenario.yaml` was at that moment
        missing += [f"{FILE}: {damage}" for damage in reader.damages(HASHED, newest=None)]
        replace_file(target / SCENARIO, reader.info().text.encode())
    for name in _FOLDERS:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
    return missing


def _backup(source: Path, target: Path) -> None:
    uri = f"{source.resolve().as_uri()}?mode=ro"
    with (
        translated(source),
        closing(sqlite3.connect(uri, uri=True, timeout=10.0)) as reading,
        closing(sqlite3.connect(target)) as writing,
    ):
        reading.backup(writing)


def _copy_policies(source: Path, target: Path) -> Iterator[str]:
    with Reader(target) as reader:
        stored = reader.policies()
    for policy in stored:
        path = target / policy.file
        if policy.sha256 and sha256_of(path) != policy.sha256:
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                shutil.copy2(source / policy.file, path)
            if (digest := sha256_of(path)) != policy.sha256:
                yield f"{policy.file} {'is not what the database names' if digest else 'is missing'}"


def _copy_checkpoints(source: Path, target: Path) -> Iterator[str]:
    """Copy those that there are; the newest one is needed."""
    with Reader(target) as reader:
        named = [record.id for record in reader.checkpoints()]
    for name in named:
        try:
            checkpoint.load(source / "checkpoint", name)
            shutil.copytree(source / "checkpoint" / name, target / "checkpoint" / name, dirs_exist_ok=True)
            checkpoint.load(target / "checkpoint", name)
        except (LudusError, OSError) as error:
            shutil.rmtree(target / "checkpoint" / name, ignore_errors=True)
            if name == named[-1]:
                yield str(error).rstrip(".")


# --------------------------------------------------------------------------------------------------------------------
# What is damaged.


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong in a run's directory, and what it costs."""

    place: str
    what: str
    cost: str


def verify_run(run_dir: Path) -> list[Damage]:
    """Check a run's hashes, references, database and checkpoints; nothing is changed.

    Args:
        run_dir: Directory of the run.

    Returns:
        Damages; of a database that cannot be read, that one alone.
    """
    if not (run_dir / FILE).is_file():
        return [Damage(FILE, "is missing", "the run cannot be read, resumed or evaluated")]
    try:
        lost = lost_commits(run_dir)
        with Reader(run_dir) as reader:
            damages = [*_wrong_rows(reader), *_wrong_indexes(reader)]
            if damages or not reader.has_hashes:  # whose rows are what was committed needs no more
                damages += _unreadable(reader)
                with suppress(LudusError):  # of a table that is among them
                    damages += _dangling(reader)
            if lost:
                damages.append(Damage(FILE, lost, "what came after that checkpoint"))
            stored, named, text = reader.policies(), [record.id for record in reader.checkpoints()], reader.info().text
    except LudusError as error:
        return [Damage(FILE, str(error), "the run cannot be read, resumed or evaluated")]
    for policy in stored:
        digest = sha256_of(run_dir / policy.file)
        if policy.sha256 and digest != policy.sha256:
            what = "was changed or damaged" if digest else "is missing"
            damages.append(Damage(policy.file, what, "the run is not resumed, and this policy cannot be played"))
    return [*damages, *_bad_checkpoints(run_dir, named), *_bad_scenario(run_dir, text)]


_COST = {
    "run": "what the run is: its scenario, its game, how it ended; it is not resumed",
    "sessions": "how a process of the run ended",
    "checkpoints": "from where the run continues; it is not resumed",
    "policies": "which policies there are and where their files lie; the run is not resumed",
    "generations": "meta-strategies, exploitability and returns of the generation; the run is not resumed",
    "joints": "the joint meta-strategy of the generation; the run is not resumed",
    "tasks": "what status and report say of tasks",
    "opponents": "whom a task met, in the report",
    "matches": "payoffs, ratings and what is solved from them; the run is not resumed",
    "statistics": "what episodes counted, in report and status",
    "payoffs": "payoffs, and what is solved from them; the run is not resumed",
    "ratings": "ratings after the generation; the run is not resumed",
    "metrics": "a curve of the report",
    "curves": "a learning curve of the report",
    "events": "a line of the log",
}


def _wrong_rows(reader: Reader) -> Iterator[Damage]:
    for damage in reader.damages(HASHED, newest=None):
        yield Damage(f"{FILE}, table {damage.table}", str(damage), _COST[damage.table])


def _wrong_indexes(reader: Reader) -> Iterator[Damage]:
    for line in reader.wrong_indexes():
        yield Damage(f"{FILE}, index", line, "rows are not found by their names: the run is not resumed right")


def _unreadable(reader: Reader) -> Iterator[Damage]:
    """Read every table as commands do."""
    tables: dict[str, Callable[[], object]] = {
        "generations": reader.generations,
        "matches": reader.matches,
        "payoffs": reader.payoffs,
        "tasks": reader.tasks,
        "opponents": reader.opponents,
        "ratings": reader.ratings,
        "curves": reader.curves,
        "events": reader.events,
        "sessions": reader.sessions,
    }
    for name, read in tables.items():
        try:
            read()
        except LudusError as error:
            yield Damage(
                f"{FILE}, table {name}", str(error), "what is read from it is refused: status, report or resume"
            )


def _dangling(reader: Reader) -> Iterator[Damage]:
    """Find rows that name what is not there."""
    known = {(policy.record.ref.population, policy.record.ref.policy) for policy in reader.policies()}
    for stored in reader.matches():
        for seat in stored.match.seats:
            if (seat.population, seat.policy) not in known:
                place = f"{FILE}, match {stored.match.id}"
                yield Damage(
                    place,
                    f"names policy {seat.population}/{seat.policy}, which is not there",
                    "it counts for no policy",
                )
    counts = reader.policy_counts()
    population = reader.info().population
    for record in reader.generations():
        for player, probs in enumerate(record.marginals):
            if len(probs) > counts.get(population[player], 0):
                place = f"{FILE}, generation {record.number}"
                yield Damage(
                    place, f"has {len(probs)} probabilities for player {player}", "its mixture cannot be played"
                )


def _bad_checkpoints(run_dir: Path, named: list[str]) -> Iterator[Damage]:
    whole = []
    for name in named:
        if name == named[-1] or (run_dir / "checkpoint" / name).exists():
            try:
                checkpoint.load(run_dir / "checkpoint", name)
                whole.append(name)
            except (LudusError, ValueError) as error:
                back = f"`ludus resume` continues from {whole[-1]}" if whole else "the run cannot be resumed"
                yield Damage(
                    f"checkpoint/{name}",
                    str(error),
                    back if name == named[-1] else "nothing while a newer one is whole",
                )


def _bad_scenario(run_dir: Path, text: str) -> Iterator[Damage]:
    cost = "`ludus resume` refuses the run; a copy by `ludus copy` has the scenario that the database has"
    read = _reading(run_dir)
    try:
        scenario = read(text)
    except LudusError as error:
        yield Damage(FILE, f"its scenario is refused: {error}", "the run is not resumed")
        return
    try:
        if read((run_dir / SCENARIO).read_text(encoding="utf-8")) != scenario:
            yield Damage(SCENARIO, "is not what the database has", cost)
    except (OSError, UnicodeError, LudusError) as error:
        yield Damage(SCENARIO, f"cannot be used ({one_line(error)})", cost)


def _reading(run_dir: Path) -> Callable[[str], object]:
    """Return what reads a scenario's text: as data, where the run names code that is not trusted."""
    path = run_dir / SCENARIO
    try:
        with trust.asking(None):  # what is damaged can be said without
            StoredRun(run_dir, check=False).require_trust()
            if path.is_file():
                document = trust.scenario_document(path.read_text(encoding="utf-8", errors="replace"))
                trust.require_trust(path, [document], folder=run_dir)
    except TrustError:
        return lambda text: from_yaml(text, what="the scenario")
    return parse_scenario


def without_hashes(folder: Path) -> bool:
    """Return whether the rows of a run have no hashes: a Ludus that wrote none made it, and it was never resumed since."""
    try:
        with Reader(folder, check=False) as reader:
            return not reader.has_hashes
    except LudusError:  # which is among its damages
        return False


def verify(folder: Path) -> dict[str, list[Damage]]:
    """Return the damages of a run, or of each run of an experiment, by name; "" for one run."""
    if not (folder / EXPERIMENT).is_file():
        return {"": verify_run(folder)}
    runs = sorted(path.parent for path in folder.glob(f"*/{FILE}"))
    if not runs:
        raise RunError(f"{str(folder)!r} is an experiment without runs: nothing can be verified.")
    return {run.name: verify_run(run) for run in runs}
