"""Opens a run directory in order to go on with it: everything is looked at, and nothing is changed.

The database is the truth; `scenario.yaml` is its copy for people. On a change of limits the new copy waits aside until the database has
them, so a kill in between leaves one of the two that agrees with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.core import trust
from ludus.core.config import as_stored
from ludus.core.errors import LudusError, RunError, ScenarioError, TrustError, reading_state
from ludus.core.machine import atomic_replace, replace_file, temporary_path, write_file
from ludus.core.types import PolicyRef, State
from ludus.runs.control import read_status
from ludus.runs.lost_commits import lost_commits
from ludus.runs.scenario import Scenario
from ludus.runs.scenario_defaults import changed, names_players, numbered, numbered_overrides
from ludus.runs.scenario_files import parse_scenario, with_files
from ludus.storage import checkpoint
from ludus.storage.base import RunInfo, RunSummary
from ludus.storage.checkpoint import PolicyFiles
from ludus.storage.database import FILE, HASHED
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import RunLock, is_running
from ludus.storage.store import Store
from ludus.storage.stored_run import StoredRun

SCENARIO = "scenario.yaml"
_FIXED = (
    "kind",
    "env.id",
    "env.tree",
    "env.node_limit",
    "env.options",
    "env.wrappers",
    "runtime.shards",
    "runtime.table_shards",
    "share",
    "seed",
    "order",
    "opponents",
)

_CONTINUED = ("run", "checkpoints", "policies", "generations", "joints", "matches", "payoffs", "ratings")
"""Tables that a resumed run needs; the others are for people."""


@dataclass(frozen=True, slots=True, eq=False)
class ResumableRun:
    """A run that can be gone on with. scenario: with the user's changes. named: ids of the committed checkpoints, oldest first; state: of
    the last one, None if there is none. abandoned: ids of training tasks that were in progress and do not go on from where they were.
    lost: ids of newer checkpoints that are damaged or missing, and why. damages: of rows that the run does not need. summary: how
    the last session ended, None if it was killed; then process: which one that was, and what it was doing, as far as it has said."""

    folder: Path
    info: RunInfo
    scenario: Scenario
    changed: bool
    files: PolicyFiles
    named: tuple[str, ...]
    state: State | None
    abandoned: tuple[str, ...]
    lost: Mapping[str, str]
    damages: tuple[str, ...]
    summary: RunSummary | None
    process: str = ""

    @property
    def finished(self) -> bool:
        return self.summary is not None and self.summary.complete

    @property
    def warnings(self) -> list[str]:
        """What to tell the user before the run goes on."""
        return [*self.damages, *(f"{why} {self._back}" for why in self.lost.values())]

    @property
    def cut_off(self) -> str | None:
        """That the last session did not come to its end; None if it did."""
        if self.summary is not None:
            return None
        back = "" if self.lost else self._back or "The run begins anew."  # lost checkpoints say it themselves
        return f"the last session was cut off: its process{self.process} is gone. {back}".rstrip()

    @property
    def _back(self) -> str:
        return f"The run goes on from {self.named[-1]}, and what came after that is done again." if self.named else ""

    def restore_scenario(self) -> None:
        """Make `scenario.yaml` agree with the database again, where a kill came between the two."""
        path = self.folder / SCENARIO
        aside = temporary_path(path)
        if _text(path) != self.info.text and (not path.exists() or _text(aside) == self.info.text):
            replace_file(path, self.info.text.encode())
        aside.unlink(missing_ok=True)

    def change_scenario(self, store: Store, info: RunInfo) -> None:
        """Change it durably, in the database and in `scenario.yaml`."""
        path = self.folder / SCENARIO
        write_file(temporary_path(path), info.text.encode())
        store.set_info(info, abandoned=self.abandoned)
        atomic_replace(path)

    def tidy(self) -> None:
        """Remove what a kill in its last moments has left: a log beside the database, a report that was not done.
        Where the folder cannot be written, it stays."""
        for path in self.folder.glob(".report.html.*"):
            with suppress(OSError):
                path.unlink()
        if (self.folder / f"{FILE}-wal").exists():
            with suppress(RunError):
                Store.open(self.folder, check=False).close()

    def still_last(self) -> None:
        """Raise RunError if another process went on with the run since it was read."""
        with Reader(self.folder, check=False) as reader:
            named = tuple(c.id for c in reader.checkpoints())
        if named != (*self.named, *self.lost):
            raise RunError(f"another process went on with run {str(self.folder)!r} in this moment. Try again.")


def read_run(folder: Path, overrides: Sequence[str] = ()) -> ResumableRun:
    """Raises RunError if the run is in use, damaged, changed or of another version; ConfigError or ScenarioError if `overrides` are
    wrong or change what a run cannot change."""
    if is_running(folder):
        RunLock(folder).close()  # raises, and says which process has it
    lost_rows = lost_commits(folder)
    with Reader(folder) as reader:
        if damage := reader.damage(HASHED, of=_CONTINUED):
            raise RunError(f"{damage} Nothing was changed. Restore the database from a copy.")
        damages = tuple(text for text in (lost_rows, reader.damage(HASHED)) if text)
        reader.require_readable()  # damage must be found before anything is changed
    run = StoredRun(folder, check=False)
    run.require_trust()
    if lost_rows and not any((folder / "checkpoint" / record.id).is_dir() for record in run.checkpoints):
        raise RunError(f"{lost_rows} Nothing was changed.")
    with as_stored():
        stored = _scenario(folder, run.info, begun=bool(run.checkpoints))
        scenario = _changed(stored, overrides, run) if overrides else stored
    _check_changes(stored, scenario)
    named, state, lost = _newest(folder / "checkpoint", [c.id for c in run.checkpoints])
    refs = list(run.records)
    with reading_state(named[-1] if named else ""):
        trust.require_trust(folder, [checkpoint.state_document(state or {})], folder=folder)
        if lost:  # what came after the checkpoint is made again, policies too
            known = _members(state)
            refs = [ref for ref in refs if [ref.population, ref.policy] in known]
        files = run.files(refs)
        files.check()
        _check_policies(folder, refs, state)
        fitting = None if state is None else _fitting(state, stored, scenario)
        abandoned = (
            () if state is None or fitting is None else tuple(state["trainings"].keys() - fitting["trainings"].keys())
        )
    return ResumableRun(
        folder=folder,
        info=run.info,
        scenario=scenario,
        changed=scenario != stored,
        files=files,
        named=named,
        state=fitting,
        abandoned=abandoned,
        lost=lost,
        damages=damages,
        summary=run.summary,
        process=_last_process(folder),
    )


def _changed(stored: Scenario, overrides: Sequence[str], run: StoredRun) -> Scenario:
    """Return the scenario with a user's changes, in which players may have names."""
    texts = numbered_overrides(overrides, stored, lambda: run.player_names)
    scenario = parse_scenario(stored.to_yaml(), texts)
    if names_players(scenario):
        scenario = changed(scenario, numbered(scenario, run.player_names, run.population))
    return with_files(scenario)


def _last_process(folder: Path) -> str:
    status = read_status(folder)
    if status is None:
        return ""
    return f" {status.pid} on {status.host} (generation {status.generation}, {status.doing})"


def _scenario(folder: Path, info: RunInfo, *, begun: bool) -> Scenario:
    path = folder / SCENARIO
    if info.text in (_text(path), _text(temporary_path(path))) or not (begun or path.exists()):
        return parse_scenario(info.text)
    try:
        text = path.read_text(encoding="utf-8")
        trust.require_trust(path, [trust.scenario_document(text)], folder=folder)
        edited, stored = parse_scenario(text), parse_scenario(info.text)
    except TrustError:
        raise
    except (OSError, UnicodeDecodeError, LudusError) as error:
        raise RunError(
            f"{str(path)!r} cannot be used: {str(error).rstrip('.')}. Restore it; `ludus resume` takes changes as key=value."
        ) from error
    if edited != stored:
        edited_values, stored_values = edited.model_dump(mode="json"), stored.model_dump(mode="json")
        where = ", ".join(sorted(key for key in stored_values if edited_values[key] != stored_values[key]))
        raise RunError(
            f"{str(path)!r} was changed since the run began ({where}). Restore it; `ludus resume` takes changes as key=value."
        )
    return stored


def _text(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return None


def _newest(folder: Path, ids: Sequence[str]) -> tuple[tuple[str, ...], State | None, dict[str, str]]:
    """Return the committed checkpoints up to the newest one that is whole, its state, and newer ones with what is wrong with them, oldest
    first. Raises RunError, of the newest, if none is whole."""
    flaws: dict[str, RunError] = {}
    for number in range(len(ids), 0, -1):
        name = ids[number - 1]
        try:
            state = checkpoint.load(folder, name)
        except RunError as error:
            # What may be whole is not passed over: going on from an earlier one removes it. What is not there, or another, is lost.
            if isinstance(why := error.__cause__, OSError) and not isinstance(
                why, FileNotFoundError | NotADirectoryError
            ):
                raise RunError(
                    f"{error} Nothing was changed. Try again once its files can be read, or remove {str(folder / name)!r} to go on "
                    "from the checkpoint before it."
                ) from error
            flaws[name] = error
        else:
            return tuple(ids[:number]), state, {name: str(flaws[name]) for name in reversed(flaws)}
    if flaws:
        raise RunError(
            f"{flaws[ids[-1]]} The run cannot go on, since none of its checkpoints is whole. Give it a copy of its folder 'checkpoint', "
            f"or start it anew with `ludus train {folder.parent / SCENARIO}`; "
            "what it has can still be read (`ludus report`, `ludus evaluate`)."
        ) from flaws[ids[-1]]
    return (), None, {}


def _members(state: State | None) -> list[list[object]]:
    """Return [population, policy] of every policy, in order."""
    return [] if state is None else [m["ref"][:2] for population in state["manager"]["members"] for m in population]


def _check_policies(folder: Path, refs: Sequence[PolicyRef], state: State | None) -> None:
    """Each commit covers rows and names the checkpoint that has the same policies, so a difference is damage."""
    members = _members(state)
    if members != [[ref.population, ref.policy] for ref in refs]:
        raise RunError(
            f"the database of {str(folder)!r} has {len(refs)} policies, and its last checkpoint {len(members)} or others. Rows were "
            "removed or added by hand; restore the database from a copy."
        )


def _check_changes(stored: Scenario, scenario: Scenario) -> None:
    for key in _FIXED:
        before: Any = stored
        after: Any = scenario
        for part in key.split("."):
            before, after = getattr(before, part, None), getattr(after, part, None)
        if before != after:
            raise ScenarioError(
                f"{key}={after!r} was given; the run has {before!r}, which a run cannot change. Start a new run with `ludus train`."
            )


def _fitting(state: State, stored: Scenario, scenario: Scenario) -> State:
    """Without what belongs to a part that was replaced: a response in progress starts anew under another algorithm, another meta-solver
    starts cold, and what is played in order to solve the present meta-game is decided anew."""
    if (version := state.get("format", 1)) != checkpoint.FORMAT:
        raise RunError(
            f"the checkpoint was written by another version of Ludus (its format is {version}, this one's is {checkpoint.FORMAT}). Resume "
            "the run with that version; nothing was changed, and `ludus report` and `ludus evaluate` work with this one."
        )
    same = (scenario.algorithm, scenario.algorithms) == (stored.algorithm, stored.algorithms)
    if not same and state["kept"]:
        raise ScenarioError(
            f"another algorithm was given, and in this {stored.kind} run learners go on from task to task, which only the same "
            "algorithm can do. Start a new run with `ludus train`."
        )
    if not same:
        state = {**state, "trainings": {}}
    solves = getattr(scenario, "meta_solver", None) == getattr(stored, "meta_solver", None)
    if not solves:
        state = {**state, "scheduler": {**state["scheduler"], "warm": None}}
    if not solves or scenario.evaluation != stored.evaluation:
        state = {**state, "scheduler": {**state["scheduler"], "selection": None}}
    return state
