"""Opens a run directory in order to go on with it: everything is looked at, and nothing is changed.

The database is the truth; `scenario.yaml` is its copy for people. On a change of limits the new copy waits aside until the database has
them, so a kill in between leaves one of the two that agrees with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ludus.errors import LudusError, RunError, ScenarioError
from ludus.execution import checkpoint
from ludus.files import aside_of, put_in_place, replace_file, write_file
from ludus.observe.base import RunInfo, RunSummary
from ludus.observe.lock import RunLock, is_running
from ludus.observe.policy_files import PolicyFiles
from ludus.observe.reader import Reader
from ludus.observe.store import Store
from ludus.scenario import Scenario, parse_scenario
from ludus.types import PolicyRef, State

SCENARIO = "scenario.yaml"
_FIXED = ("env.id", "env.tree", "env.options", "runtime.shards", "share", "seed")


@dataclass(frozen=True, slots=True, eq=False)
class StoredRun:
    """A run that can be gone on with. scenario: with the user's changes. named: ids of the committed checkpoints, oldest first; state: of
    the last one, None if there is none. summary: how the last session ended, None if it was killed."""

    folder: Path
    info: RunInfo
    scenario: Scenario
    changed: bool
    files: PolicyFiles
    named: tuple[str, ...]
    state: State | None
    summary: RunSummary | None

    @property
    def finished(self) -> bool:
        return self.summary is not None and self.summary.complete

    def restore_scenario(self) -> None:
        """Make `scenario.yaml` agree with the database again, where a kill came between the two."""
        path = self.folder / SCENARIO
        aside = aside_of(path)
        if _text(path) != self.info.text and (not path.exists() or _text(aside) == self.info.text):
            replace_file(path, self.info.text.encode())
        aside.unlink(missing_ok=True)

    def change_scenario(self, store: Store, info: RunInfo) -> None:
        """Durably, in the database and in `scenario.yaml`."""
        path = self.folder / SCENARIO
        write_file(aside_of(path), info.text.encode())
        store.set_info(info)
        put_in_place(path)

    def still_last(self) -> None:
        """Raises RunError if another process went on with the run since it was read."""
        with Reader(self.folder, check=False) as reader:
            named = tuple(c.id for c in reader.checkpoints())
        if named != self.named:
            raise RunError(f"another process went on with run {str(self.folder)!r} in this moment. Try again.")


def read_run(folder: Path, overrides: Sequence[str] = ()) -> StoredRun:
    """Raises RunError if the run is in use, damaged, changed or of another version; ConfigError or ScenarioError if `overrides` are
    wrong or change what a run cannot change."""
    if is_running(folder):
        RunLock(folder).close()  # raises, and says which process has it
    with Reader(folder) as reader:
        info, checkpoints, policies, summary = (
            reader.info(),
            reader.checkpoints(),
            reader.policies(),
            reader.summary(),
        )
        for read in (reader.generations, reader.payoffs, reader.ratings):
            read()  # damage must be found before anything is changed
    stored = _scenario(folder, info, begun=bool(checkpoints))
    scenario = parse_scenario(stored.to_yaml(), list(overrides)) if overrides else stored
    _check_changes(stored, scenario)
    files = PolicyFiles(folder, {p.record.ref: p.sha256 for p in policies})
    files.check()
    named = tuple(c.id for c in checkpoints)
    state = checkpoint.load(folder / "checkpoint", named[-1]) if named else None
    _check_policies(folder, [p.record.ref for p in policies], state)
    return StoredRun(
        folder=folder,
        info=info,
        scenario=scenario,
        changed=scenario != stored,
        files=files,
        named=named,
        state=None if state is None else _fitting(state, stored, scenario),
        summary=summary,
    )


def _scenario(folder: Path, info: RunInfo, *, begun: bool) -> Scenario:
    path = folder / SCENARIO
    if info.text in (_text(path), _text(aside_of(path))) or not (begun or path.exists()):
        return parse_scenario(info.text)
    try:
        text = path.read_text(encoding="utf-8")
        found, stored = parse_scenario(text), parse_scenario(info.text)
    except (OSError, UnicodeDecodeError, LudusError) as error:
        raise RunError(
            f"{str(path)!r} cannot be used: {str(error).rstrip('.')}. Restore it; `ludus resume` takes changes as key=value."
        ) from error
    if found != stored:
        ours, theirs = found.model_dump(mode="json"), stored.model_dump(mode="json")
        where = ", ".join(sorted(key for key in theirs if ours[key] != theirs[key]))
        raise RunError(
            f"{str(path)!r} was changed since the run began ({where}). Restore it; `ludus resume` takes changes as key=value."
        )
    return stored


def _text(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return None


def _check_policies(folder: Path, refs: Sequence[PolicyRef], state: State | None) -> None:
    """Each commit covers rows and names the checkpoint that has the same policies, so a difference is damage."""
    members = [] if state is None else [m["ref"][:2] for some in state["manager"]["members"] for m in some]
    if members != [[ref.population, ref.policy] for ref in refs]:
        raise RunError(
            f"the database of {str(folder)!r} has {len(refs)} policies, and its last checkpoint {len(members)} or others. Rows were "
            "removed or added by hand; restore the database from a copy."
        )


def _check_changes(stored: Scenario, scenario: Scenario) -> None:
    for key in _FIXED:
        before, after = stored, scenario
        for part in key.split("."):
            before, after = getattr(before, part), getattr(after, part)
        if before != after:
            raise ScenarioError(
                f"{key}={after!r} was given; the run has {before!r}, which a run cannot change. Start a new run with `ludus train`."
            )


def _fitting(state: State, stored: Scenario, scenario: Scenario) -> State:
    """Without what belongs to a part that was replaced: a response in progress starts anew under another oracle, and another
    meta-solver starts cold."""
    if "trainings" not in state:
        raise RunError("the checkpoint was written by another version of Ludus. Resume the run with that one.")
    if scenario.oracle != stored.oracle:
        state = {**state, "trainings": {}}
    if scenario.meta_solver != stored.meta_solver:
        state = {**state, "scheduler": {**state["scheduler"], "warm": None}}
    return state
