"""What the tests of whole runs share: small scenarios, forked runs that die by SIGKILL, and what a run left on disk."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sqlite3
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ludus.core.errors import RunError
from ludus.core.types import Metrics, Task
from ludus.envs.registry import make_env
from ludus.policies.file import save_policy
from ludus.policies.specs import tabular_spec
from ludus.runs.control import StopRequest
from ludus.runs.runner import resume, run
from ludus.runs.scenario import PSRO
from ludus.runs.scenario_files import parse_scenario
from ludus.storage import checkpoint
from ludus.storage.base import NullObserver
from ludus.storage.store import Store

SCENARIOS = {
    "exact": """
env: openspiel/kuhn_poker
algorithm: exact
generations: 3
""",
    "ppo": """
env: {id: openspiel/kuhn_poker, num_envs: 16}
algorithm: {kind: ppo, batch: 40, epochs: 2, minibatches: 2, hidden: [8]}
response: {episodes: 160}
warm_start: {source: last}
generations: 2
checkpoints: {iterations: 2}
""",
    "dqn": """
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: dqn, rollout: 30, rollout_unit: decisions, min_size: 40, capacity: 100, batch: 16, hidden: [8],
  updates_per_decision: 0.1, target_period: 3}
response: {decisions: 150}
generations: 2
checkpoints: {iterations: 1}
""",
    "tabular_q": """
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: tabular_q, batch: 30, batch_unit: decisions}
response: {decisions: 150}
meta_solver: fictitious_play
generations: 2
checkpoints: {iterations: 3, generations: 2}
""",
    "by_player": """
env: {id: openspiel/kuhn_poker, num_envs: 8}
algorithm: {kind: tabular_q, batch: 30, batch_unit: decisions}
algorithms: {0: exact}
response: {decisions: 150}
meta_solver: fictitious_play
generations: 2
checkpoints: {iterations: 3}
""",
    "simulate": """
env: {id: openspiel/kuhn_poker, num_envs: 8, tree: "off"}
algorithm: {kind: ppo, batch: 20, epochs: 1, hidden: [8]}
response: {episodes: 60}
evaluation: {payoffs: simulate, episodes: 50}
mode: explore
generations: 3
checkpoints: {iterations: 1}
""",
    "adaptive": """
env: {id: openspiel/kuhn_poker, num_envs: 8, tree: "off"}
algorithm: {kind: ppo, batch: 20, epochs: 1, hidden: [8]}
response: {episodes: 60}
evaluation: {adaptive: {budget: 100, portion: 10, batch: 30, start: 2}}
mode: explore
generations: 3
checkpoints: {iterations: 4}
""",
    "ranking": """
env: {id: "openspiel/blotto(coins=4,fields=2)", num_envs: 16}
algorithm: {kind: ppo, batch: 32, epochs: 1, hidden: [8]}
response: {episodes: 128}
evaluation: {payoffs: simulate, adaptive: {goal: ranking, budget: 60, portion: 5, batch: 20, start: 1}}
meta_solver: nash
mode: explore
generations: 3
checkpoints: {iterations: 3}
""",
    "shared": """
env: {id: "openspiel/blotto(coins=4,fields=2)", num_envs: 16}
algorithm: {kind: ppo, batch: 32, epochs: 1, hidden: [8]}
response: {episodes: 128}
evaluation: {payoffs: simulate, episodes: 40}
meta_solver: projected_replicator_dynamics
warm_start: {source: best, first: 2}
mode: explore
generations: 3
checkpoints: {iterations: 3}
""",
    "general": """
env: {id: "openspiel/goofspiel(imp_info=True,num_cards=3,points_order=descending)", num_envs: 32, tree: "off"}
algorithm: {kind: ppo, batch: 64, epochs: 1, hidden: [16], batch_unit: decisions}
response: {decisions: 256}
evaluation: {episodes: 40}
mode: explore
meta_solver: uniform
generations: 3
checkpoints: {iterations: 2, generations: 2, keep: 1}
""",
    "self_play": """
scenario: self_play
env: {id: openspiel/kuhn_poker, num_envs: 16}
algorithm: {kind: ppo, batch: 40, epochs: 2, minibatches: 2, hidden: [8]}
response: {episodes: 160}
latest: 0.75
past: quality
generations: 3
checkpoints: {iterations: 3}
""",
    "own_past": """
scenario: pfsp
env: {id: "openspiel/blotto(coins=4,fields=2)", num_envs: 8, tree: "off"}
algorithm: {kind: dqn, rollout: 30, rollout_unit: decisions, min_size: 40, capacity: 100, batch: 16, hidden: [8],
  updates_per_decision: 0.1, target_period: 3}
response: {decisions: 150}
evaluation: {payoffs: simulate, episodes: 40}
latest: 0.5
generations: 3
checkpoints: {iterations: 2}
""",
}
"""Small enough for a second each; together they pass every kind of barrier."""

CLOCKS = {
    "created",
    "time",
    "seconds",
    "solver_seconds",
    "barrier",  # counts commits: a run that was extended has passed one more
}


def scenario(name: str, *overrides: str, seed: int = 0) -> PSRO:
    return parse_scenario(SCENARIOS[name], list(overrides), seed)


# ---------------------------------------------------------------------------------------------- what a run left behind


def files_of(run_dir: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file (and "" of every folder) below a directory."""
    return {
        str(path.relative_to(run_dir)): "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run_dir.rglob("*"))
    }


def policies_of(run_dir: Path) -> dict[str, str]:
    return {name: sha for name, sha in files_of(run_dir).items() if name.startswith("policies") and sha}


def rows_of(run_dir: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table that checkpoints cover, without clocks (which the hashes of `batches` are of, too)."""
    out: dict[str, list[dict[str, Any]]] = {}
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection:
        connection.row_factory = sqlite3.Row
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in sorted(set(names) - {"checkpoints", "run", "sessions", "batches"}):
            rows = [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
            rows = [row for row in rows if not str(row.get("name", "")).startswith("seconds/")]
            rows = [row for row in rows if row.get("counter") != "barriers"]  # where the time went between two of them
            out[table] = [{k: v for k, v in row.items() if k not in CLOCKS} for row in rows]
    return out


def barriers_of(run_dir: Path) -> int:
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM checkpoints").fetchone()[0])


def state_of(run_dir: Path) -> dict[str, Any]:
    """The newest checkpoint that the database names, without its clocks; arrays as (dtype, shape, bytes)."""
    with closing(sqlite3.connect(run_dir / "ludus.db")) as connection:
        (name,) = connection.execute("SELECT id FROM checkpoints ORDER BY barrier DESC LIMIT 1").fetchone()
    plain = _plain(checkpoint.load(run_dir / "checkpoint", name))
    assert isinstance(plain, dict)
    plain["history"].pop("checkpoints")  # one more where a run was extended
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k != "seconds"}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return "NaN" if isinstance(value, float) and value != value else value


def assert_same_run(one: Path, other: Path) -> None:
    """Equal to the bit but for clocks: policies, database, checkpoint, and nothing left over."""
    assert policies_of(one) == policies_of(other)
    ours, theirs = rows_of(one), rows_of(other)
    for table in ours:
        assert ours[table] == theirs[table], table
    assert state_of(one) == state_of(other)
    for run_dir in (one, other):
        held = {path.name for path in run_dir.iterdir()}
        assert held <= {
            "agents",
            "checkpoint",
            "driver.lock",
            "ludus.db",
            "policies",
            "report.html",
            "scenario.yaml",
            "trust.json",
        }
        assert not [path for path in run_dir.rglob(".*")]
        assert len(list((run_dir / "checkpoint").iterdir())) <= 2


# ---------------------------------------------------------------------------------------------- dying


def train(name: str, run_dir: Path, *overrides: str) -> None:
    run(scenario(name, *overrides), run_dir=run_dir, report=False)


def dies(body: Callable[[], object], run_dir: Path, *, at: int) -> int | None:
    """Run `body` in a fork of this process that kills itself (SIGKILL) just before its `at`-th change to `run_dir`.

    None: it was killed. Otherwise it came to its end, after that many changes.
    """
    made = _forked(body, run_dir, at=at)
    return None if made is None else len(made)


def _forked(body: Callable[[], object], run_dir: Path, *, at: int) -> list[str] | None:
    """See `dies`. What each change was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads; ours only wait
        read, write = os.pipe()
        child = os.fork()
    if not child:
        os.close(read)
        _child(body, run_dir, at=at, answer=write)
    os.close(write)
    with os.fdopen(read) as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert os.WEXITSTATUS(status) == 0, answer
    return answer.splitlines()


def _child(body: Callable[[], object], run_dir: Path, *, at: int, answer: int) -> None:
    made, root = list[str](), str(run_dir)

    def change(what: str) -> None:
        made.append(what)
        if len(made) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link") or (
            event == "open" and _writes(arguments)
        )
        if not changes or "status.json" in (path := str(arguments[0])):  # it follows a clock
            return
        if path.startswith(root):
            change(f"{event} {kind_of(arguments[0], run_dir)}")

    commit = Store.commit

    def committing(self: Store, checkpoint_id: str) -> None:
        change("commit")
        commit(self, checkpoint_id)
        change("committed")

    Store.commit = committing  # type: ignore[method-assign]
    sys.addaudithook(hook)
    code = 1
    try:
        body()
        os.write(answer, "\n".join(made).encode())
        code = 0
    except BaseException as error:  # noqa: BLE001  the parent reports it
        os.write(answer, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


def kind_of(path: str | Path, run_dir: Path) -> str:
    """What is at a path in a run's directory: # stands for numbers and hashes."""
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "#", os.path.relpath(path, run_dir))


def ways(names: Sequence[str]) -> list[int]:
    """Places, counted from 1, at which something is first or last met right after what it comes after there. Elsewhere the same follows the
    same, between these two."""
    first, last = dict[tuple[str, str], int](), dict[tuple[str, str], int]()
    for at, way in enumerate(pairwise(["", *names]), 1):
        first.setdefault(way, at)
        last[way] = at
    return sorted({*first.values(), *last.values()})


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) or any(c in (mode or "") for c in "wax+")


def goes_on(run_dir: Path, name: str, *overrides: str) -> None:
    """What a user does after a kill: resume, or train again if the run had not begun."""
    try:
        resume(run_dir, report=False)
    except RunError as error:
        if not any(why in str(error) for why in ("there is no run", "is not a run", "died before it began")):
            raise
        train(name, run_dir, *overrides)


class Whole(dict[str, Path]):
    """Uninterrupted runs by name, made when they are first wanted, with these overrides."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        super().__init__()
        self.folder, self.overrides = folder, overrides
        self._changes = dict[str, list[str]]()

    def __missing__(self, name: str) -> Path:
        self[name] = self.folder / name
        changes = _forked(lambda: train(name, self[name], *self.overrides), self[name], at=-1)
        assert changes is not None
        self._changes[name] = changes
        return self[name]

    def changes(self, name: str) -> int:
        """How often it changes its directory, in every process alike."""
        assert self[name]
        return len(self._changes[name])

    def ways(self, name: str) -> list[int]:
        """`ways` of its changes."""
        assert self[name]
        return ways(self._changes[name])

    def check_a_kill(self, name: str, at: int, folder: Path) -> None:
        """A run that is killed at a change, and goes on, ends as the whole one."""
        whole, run_dir = self[name], folder / str(at)
        assert dies(lambda: train(name, run_dir, *self.overrides), run_dir, at=at) is None
        goes_on(run_dir, name, *self.overrides)
        assert_same_run(whole, run_dir)

    def check_kills(self, name: str, folder: Path, *, kills: int = 2) -> None:
        """As many, at even distances."""
        for kill in range(1, kills + 1):
            self.check_a_kill(name, kill * self.changes(name) // (kills + 1), folder)


class Impatient(NullObserver):
    """Asks for a stop at the n-th call."""

    def __init__(self, calls: int) -> None:
        self.stop, self._left = StopRequest(), calls

    def _called(self) -> None:
        self._left -= 1
        if not self._left:
            self.stop.request("stopped by Ctrl-C")

    def task_started(self, task: Task) -> None:
        self._called()

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        self._called()


def always(action: int, file: Path, game: str = "openspiel/kuhn_poker") -> Path:
    """The file of a policy that takes one action in every information state of every player."""
    enumeration = make_env(game, num_envs=1).spec.enumeration
    assert enumeration is not None
    spec = tabular_spec(enumeration, range(len(enumeration.offset) - 1))
    probs = np.zeros(enumeration.mask.shape)
    probs[:, action] = 1.0
    save_policy(file, spec, {"probs": probs})
    return file
