"""What somebody else made is opened, and imports nothing until this user trusts it: each loader, with a module that says when it was
imported."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from safetensors.numpy import save

import ludus
from ludus.apps.common.experiments import Experiment
from ludus.apps.experiments.sweep import Sweep, SweptOption, save_sweep
from ludus.apps.play.run_game import RunGame
from ludus.cli.main import UNTRUSTED, main
from ludus.cli.trust import place_of
from ludus.core import trust
from ludus.core.errors import TrustError
from ludus.core.types import PolicySpec
from ludus.policies.file import load_policy, save_policy
from ludus.runs.resumable_run import read_run
from ludus.runs.runner import resume, run
from ludus.storage.checkpoint import PolicyFiles
from ludus.storage.stored_run import StoredRun, open_run

PROBE = '''
import pathlib
import gymnasium
import numpy as np
from ludus.policies.random import RandomPolicy
from ludus.policies.specs import random_spec

pathlib.Path(__file__).with_name("imported").touch()


class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), float(action), self.t == 5, False, {}


class Plays(RandomPolicy):
    def __init__(self, spec, weights):
        super().__init__(random_spec(gymnasium.spaces.Discrete(2)), {})
        self.spec = spec


class Reinforce:
    """Nothing that learns."""
'''
SETTINGS = ["generations=1", "response={episodes: 20}", "env.num_envs=4", "algorithm.batch=50", "algorithm.hidden=[4]"]


def forget(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    """As another process of another user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    monkeypatch.setattr(trust, "_trusted", set())


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a stranger has made: a run, an entry of a zoo, an experiment, a sweep, a policy's file; and the module that they name."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "probe.py").write_text(PROBE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        forget(patch, folder / "config")
        result = run("probe:Env", [*SETTINGS, "seed=1"], run_dir=folder / "runs" / "one", report=False)
        ludus.push(str(result.run_dir), folder / "zoo", name="entry")
        common = {"env": "probe:Env", "scenario": "fixed_opponents"}
        for name, runs in (("many", {"seed-1": ("seed=1",)}), ("swept", {})):
            (folder / "runs" / name).mkdir()
            Experiment(folder / "runs" / name, common, runs).save()
        option = SweptOption(choices=["probe:Reinforce", "ppo"])
        sweep = Sweep(scenario="one.yaml", options={"algorithm": option}, metric="return")
        save_sweep(folder / "runs" / "swept", sweep)
    header = json.dumps({"format": 2, "kind": "probe:Policy", "config": {}})
    (folder / "own.safetensors").write_bytes(save({}, metadata={"ludus": header}))
    sys.modules.pop("probe", None)
    (folder / "imported").unlink()
    return folder


@pytest.fixture
def here(stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of it in this user's folder, where Python finds the module."""
    folder = shutil.copytree(stranger, tmp_path / "here")
    shutil.rmtree(folder / "config")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    forget(monkeypatch, tmp_path / "config")
    yield folder
    sys.modules.pop("probe", None)


def imported(folder: Path) -> bool:
    return (folder / "imported").exists() or "probe" in sys.modules


COMMANDS = [
    "evaluate one",
    "evaluate one --policies @best",
    "resume one",
    "resume one generations=2",
    "play one",
    "record one@best",
    "debug one",
    "list policies one",
    "tournament one@best random",
    "tournament runs/one/policies/0/0-1.safetensors random",
    "push one zoo --name other",
    "train gymnasium/CartPole-v1 opponents=one@best",
    "train gymnasium/CartPole-v1 start=one@best",
    "train gymnasium/CartPole-v1 start=own.safetensors",
    "evaluate zoo/entry",
    "tournament zoo/entry random",
    "pull zoo/entry",
    "tournament own.safetensors random --env gymnasium/CartPole-v1",
    "push own.safetensors zoo --env gymnasium/CartPole-v1",
    "resume many",
    "resume many generations=2",
    "resume swept",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_imports_nothing_that_a_stranger_names(
    line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(line.split())
    error = capsys.readouterr().err.splitlines()[-1]
    assert not imported(here), error
    assert code == UNTRUSTED == 6, error
    assert error.startswith("error: ")
    assert "probe:" in error
    assert "--trust" in error


@pytest.mark.parametrize("line", ["report one", "status one", "runs", "compare one", "copy one two", "verify one"])
def test_what_only_reads_a_run_needs_no_trust(line: str, here: Path) -> None:
    assert main(line.split()) == 0
    assert not imported(here)


def test_from_python_nothing_is_imported_either(here: Path) -> None:
    file = Path("runs/one/policies/0/0-1.safetensors")
    loaders = {
        "load_policy": lambda: ludus.load_policy("one@best"),
        "load_policy of a file": lambda: ludus.load_policy("own.safetensors"),
        "the file alone": lambda: load_policy("own.safetensors"),
        "evaluate_run": lambda: ludus.evaluate_run("one", episodes=1),
        "rate_run": lambda: ludus.rate_run("one", ["elo"]),
        "exploit_run": lambda: ludus.exploit_run("one", budget=1),
        "resume": lambda: resume("one", ["generations=2"]),
        "open_run": lambda: open_run("one"),
        "read_run": lambda: read_run(Path("runs/one")),
        "the game of a page": lambda: RunGame(Path("runs/one")),
        "pull": lambda: ludus.pull("zoo/entry"),
        "learner": lambda: ludus.learner("ppo", "gymnasium/CartPole-v1", start="own.safetensors"),
    }
    for name, load in loaders.items():
        with pytest.raises(TrustError, match="probe:"):
            load()
        assert not imported(here), name
    assert ludus.load_policy(file, trust=True) is not None
    assert not imported(here)  # it names none itself; its run does
    assert ludus.evaluate_run("one", episodes=2) is not None
    assert imported(here)


def test_trust_is_given_once_and_kept_in_the_run(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "one", "--episodes", "2"]) == UNTRUSTED
    assert main(["evaluate", "one", "--episodes", "2", "--trust"]) == 0
    for line in ("evaluate one --episodes 2", "copy one two", "evaluate two --episodes 2", "resume two generations=2"):
        forget(monkeypatch, tmp_path / "config")
        assert main(line.split()) == 0, capsys.readouterr().err
    forget(monkeypatch, tmp_path / "config")
    assert main(["evaluate", "two", "--episodes", "2"]) == 0  # whose scenario was changed by this user
    forget(monkeypatch, tmp_path / "another")
    assert main(["evaluate", "two", "--episodes", "2"]) == UNTRUSTED


def test_verify_trusts_without_running_anything(here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert main(["verify", "one", "--trust"]) == 0
    forget(monkeypatch, tmp_path / "config")
    StoredRun(Path("runs/one")).require_trust()


def test_a_strangers_edit_of_a_trusted_run_is_noticed(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with trust.trusting():
        StoredRun(Path("runs/one")).require_trust()
    forget(monkeypatch, tmp_path / "config")
    with closing(sqlite3.connect("runs/one/ludus.db")) as database:
        database.execute("UPDATE policies SET config = json_set(config, '$.network', 'probe:Other')")
        database.commit()
    with pytest.raises(TrustError, match="probe:Other"):
        open_run("one")
    assert not imported(here)


def test_code_beside_a_run_that_names_none_is_noticed(here: Path, tmp_path: Path) -> None:
    result = run("gymnasium/CartPole-v1", [*SETTINGS, "seed=1"], run_dir=tmp_path / "plain", report=False)
    assert not (result.run_dir / trust.FILE).exists()
    StoredRun(result.run_dir).require_trust()
    (result.run_dir / "scenario.yaml").write_text("env: probe:Env\n")
    with pytest.raises(TrustError, match="probe:Env"):
        read_run(result.run_dir)
    assert not imported(here)


def test_a_policys_file_may_name_more_than_the_database(here: Path, tmp_path: Path) -> None:
    """A stranger who writes both gives the file's own digest."""
    files = PolicyFiles(Path("runs/one"))
    ref = next(iter(StoredRun(Path("runs/one")).records))
    shutil.copy("own.safetensors", files.run_dir / files.file(ref))
    with pytest.raises(TrustError, match="probe:Policy"):
        files.get(ref)
    assert not imported(here)


def test_a_policys_file_of_ones_own_has_a_mark(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PolicySpec("probe:Plays", {})
    with trust.trusting():
        save_policy("mine.safetensors", spec, {})
    for config, known in (("config", True), ("other", False)):
        forget(monkeypatch, tmp_path / config)
        with contextlib.nullcontext() if known else pytest.raises(TrustError, match="probe:Plays"):
            assert load_policy("mine.safetensors").spec == spec


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "yes"), [("", False), ("\n", False), ("n\n", False), ("yes please\n", False), ("y\n", True)]
)
def test_at_a_terminal_it_is_asked_and_the_default_is_no(
    answer: str, yes: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = _Terminal()
    monkeypatch.setattr(sys, "stdin", _Terminal(answer))
    monkeypatch.setattr(sys, "stderr", question)
    code = main(["evaluate", "one", "--episodes", "2"])
    text = question.getvalue()
    assert code == (0 if yes else UNTRUSTED), text
    assert imported(here) is yes
    assert f"probe:Env  from {here / 'probe.py'}" in text
    assert "Import and run it? [y/N]" in text


def test_where_a_module_lies_is_found_without_importing_its_packages(here: Path) -> None:
    (here / "package").mkdir()
    shutil.copy("probe.py", here / "package" / "__init__.py")
    shutil.copy("probe.py", here / "package" / "inner.py")
    assert place_of("package.inner:Env") == f"from {here / 'package' / 'inner.py'}"
    assert place_of("import: package") == f"from {here / 'package' / '__init__.py'}"
    assert place_of("package.other:Env") == place_of("nowhere:Env") == "(not found on Python's path)"
    assert place_of(".probe:Env") == "(no module)"
    assert not (here / "package" / "imported").exists()
    assert "package" not in sys.modules


def test_a_file_that_is_named_on_the_command_line_is_the_users_word(here: Path) -> None:
    Path("mine.yaml").write_text("scenario: fixed_opponents\nenv: probe:Env\n")
    assert main(["train", "mine.yaml", *SETTINGS, "--run-dir", "mine"]) == 0
    assert imported(here)
    assert main(["evaluate", "./mine", "--episodes", "2"]) == 0
