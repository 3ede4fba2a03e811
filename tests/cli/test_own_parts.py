"""What somebody types who has written a part into a file in the present directory: a policy, a network, a loss, a whole algorithm."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ludus.cli.main import main
from ludus.core.parts import module_hint
from ludus.policies.file import load_policy

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTS = ("a2c", "own_policy", "own_network", "own_loss", "own_algorithm")
SHORT = ["response={episodes: 200}", "generations=1", "--run-dir", "run"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The present directory, with the files in it and nothing else; Python looks there, as it does for the command."""
    for name in PARTS:
        shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    yield tmp_path
    for name in PARTS:
        sys.modules.pop(name, None)


def test_the_nearest_module_is_looked_for_where_the_command_is_now(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path_factory.mktemp("elsewhere"))
        module_hint("own_polcy")
    assert module_hint("own_polcy") == "; did you mean 'own_policy'?"


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        (["algorithm.kind=a2c:A2C", "algorithm.hidden=8", "algorithm.batch=50"], "torch"),
        (
            ["algorithm.kind=own_policy:TremblingA2C", "algorithm.tremble=0.2", "algorithm.batch=50"],
            "own_policy:Trembling",
        ),
        (["algorithm=ppo", "algorithm.network=own_network:Residual", "algorithm.batch=50"], "actor_critic"),
        (["algorithm={kind: dqn, min_size: 100, body: {kind: own_network:Residual, width: 8}}"], "action_values"),
        (["algorithm.kind=own_loss:PenalisedPPO", "algorithm.penalty=0.5", "algorithm.batch=50"], "actor_critic"),
        (["algorithm.kind=own_algorithm:Reinforce", "algorithm.episodes=50"], "tabular"),
    ],
    ids=["algorithm by its loss", "policy", "network", "network of dqn", "loss", "whole algorithm"],
)
def test_a_part_from_a_file_of_ones_own(here: Path, typed: list[str], kind: str) -> None:
    """It trains; what comes of it is a file that plays again."""
    assert main(["train", "kuhn", "algorithm=ppo", *typed, *SHORT]) == 0
    (file,) = (here / "run" / "policies").rglob("0-1*")
    policy = load_policy(file)
    assert policy.spec.kind == kind
    observation = np.eye(11, dtype=np.float32)
    if kind != "tabular":
        act = policy.act(observation, np.ones((11, 2), bool), None, np.full((11, policy.noise_width), 0.5, np.float32))
        assert np.isfinite(act.logp).all()
    assert main(["evaluate", "run", "--episodes", "20"]) == 0


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("algorithm.kind=a2c:A3C", "algorithm 'a2c:A3C': module 'a2c' has no 'A3C'; did you mean 'A2C'"),
        ("algorithm.kind=own_polcy:TremblingA2C", "No module named 'own_polcy'; did you mean 'own_policy'"),
        ("algorithm={kind: a2c:A2C, hiden: 8}", "unknown key 'hiden'; did you mean 'hidden'"),
        ("algorithm={kind: ppo, network: own_network:Resdual}", "has no 'Resdual'; did you mean 'Residual'"),
        (
            "algorithm={kind: ppo, network: {kind: own_network:Residual, wdith: 8}}",
            "unexpected keyword argument 'wdith'",
        ),
        ("algorithm=own_network:Residual", "own_network:Residual"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_slip_is_named_before_anything_is_made(typed: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "kuhn", typed, *SHORT]) == 2
    assert message in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.mark.slow
def test_as_a_process_of_its_own(here: Path) -> None:
    """Whatever this test's own process has on its path."""
    typed = ["train", "kuhn", "algorithm={kind: own_policy:TremblingA2C, batch: 50}", *SHORT]
    command = [sys.executable, "-c", "from ludus.cli.main import script; script()", *typed]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (here / "run" / "scenario.yaml").read_text().count("own_policy:TremblingA2C") == 1
