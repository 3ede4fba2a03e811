"""`ludus clone`, from a run's trajectories to a population that starts from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ludus.cli import clone as command
from ludus.cli.main import main
from ludus.core.errors import ConfigError
from ludus.core.types import AgentSpec, EnvSpec

pytest.importorskip("pyarrow")

SEEDED = """
scenario: psro
env: openspiel/kuhn_poker
algorithm: {kind: ppo, batch: 200, epochs: 1, hidden: [16], learning_rate: 1.0e-30}
meta_solver: nash
generations: 1
response: {episodes: 200}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with trajectories of an exactly solved Kuhn poker, and a scenario."""
    folder = tmp_path_factory.mktemp("clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "kuhn", "generations=3", "--name", "k"]) == 0
        assert main(["record", "k", "--trajectories", "games.parquet", "--episodes", "3000"]) == 0
    (folder / "my.yaml").write_text(SEEDED)
    (folder / "mine.safetensors").write_text("precious")
    return folder


@pytest.fixture(autouse=True)
def there(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)


@pytest.mark.slow
def test_a_population_starts_from_a_clone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a learning rate of nothing, the response is the clone itself, which plays about as well as the run's last strategies."""
    from ludus.policies.file import load_policy
    from ludus.storage.stored_run import StoredRun

    capsys.readouterr()
    line = ["clone", "games.parquet", "my.yaml", "--out", "c.safetensors", "--epochs", "10", "--learning-rate", "0.01"]
    assert main(line) == 0
    out = capsys.readouterr().out
    assert "  file " in out
    found = re.search(r"held out, -log p +([\d.]+) nats; ([\d.]+) of the recorded", out)
    assert found is not None
    assert float(found[1]) < 0.5 < float(np.log(2))
    assert found[2] == "0.0000"  # each of them is sure of itself; the clone is one for all
    assert main(["train", "my.yaml", "warm_start=[{source: file, path: c.safetensors}]", "--name", "seeded"]) == 0
    stored, cloned = StoredRun(runs / "runs/seeded"), load_policy("c.safetensors")
    for population in (0, 1):
        member = stored.members[population][1]
        trained = stored.policy(member.ref).weights()
        assert sorted(trained) == sorted(cloned.weights())
        assert all(np.allclose(trained[name], array, rtol=0, atol=1e-20) for name, array in cloned.weights().items())
    before = (runs / "c.safetensors").read_bytes()
    assert main(line) == 2
    assert "--out 'c.safetensors' is there already; --overwrite replaces it" in capsys.readouterr().err
    assert main([*line, "--overwrite"]) == 0
    assert (runs / "c.safetensors").read_bytes() == before


def test_players_policies_and_settings_can_be_chosen(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ludus.replay.parquet import read_trajectories

    recorded = read_trajectories(runs / "games.parquet")
    name = next(piece.policy for piece in recorded.trajectories if piece.policy.startswith("k@1/"))
    decisions = sum(piece.num_rows for piece in recorded.trajectories if piece.policy == name)
    line = ["clone", "games.parquet", "my.yaml", "algorithm.hidden=[8]", "--seed", "3", "--out", "d.safetensors"]
    assert main([*line, "--players", "1", "--policies", name, "--epochs", "1", "--held-out", "0"]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"learned from +{decisions:,} decisions", out)
    assert re.search(r"epoch +1, of 1\n", out)
    assert "learned, -log p" in out


def test_unseen_environment_options_make_no_difference(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Information states were recorded, so the game is compiled."""
    line = ["clone", "games.parquet", "my.yaml", "--epochs", "1", "--out"]
    assert main([*line, "one.safetensors"]) == 0
    other = [
        "env.tree=off",
        "env.num_envs=3",
        "env.wrappers=[{kind: scale_reward, factor: 0.5}]",
        "env.options.openings=2",
    ]
    assert main([*line, "other.safetensors", *other]) == 0
    assert (runs / "one.safetensors").read_bytes() == (runs / "other.safetensors").read_bytes()


@pytest.fixture
def tensors(runs: Path) -> Path:
    """Trajectories of a game that was not compiled, from a program that said nothing of its settings."""
    from ludus.apps.episodes.trajectory_export import record_trajectories
    from ludus.core.types import Mixture, PolicyRef, PolicySpec
    from ludus.envs.registry import make_env
    from ludus.policies.registry import build_policy

    anyone = build_policy(PolicySpec("random", {"actions": 2}), {})
    both = Mixture.product({player: ([PolicyRef(player, "anyone")], [1.0]) for player in (0, 1)})
    env = make_env("openspiel/kuhn_poker", num_envs=4, tree="off")
    record_trajectories(runs / "tensors.parquet", env, both, lambda ref: anyone, episodes=20)
    return runs / "tensors.parquet"


def test_tensors_of_a_game_that_the_scenario_compiles_are_cloned(
    tensors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clone", tensors.name, "my.yaml", "--epochs", "1", "--overwrite", "--out", "t.safetensors"]) == 0
    assert main(["train", "my.yaml", "warm_start=[{source: file, path: t.safetensors}]", "--name", "compiled"]) == 0
    line = [
        "train",
        "my.yaml",
        "warm_start=[{source: file, path: t.safetensors}]",
        "algorithm.hidden=[8, 16]",
        "--name",
        "no",
    ]
    capsys.readouterr()
    assert main(line) == 2
    err = capsys.readouterr().err
    assert "holds a policy of kind 'actor_critic', with another network than the algorithm trains for players 0" in err
    assert "players 0: body.hidden [16] in the file, [8, 16] here. Give the algorithm the same" in err


def test_a_clone_of_both_populations_starts_both_where_critics_are_central(tensors: Path) -> None:
    """The critic of each sees the state, and no seats beside it. Nothing was said of a state when decisions were recorded."""
    scenario = ["env.tree=off", "env.wrappers=[joint_state]", "algorithm={kind: mappo, batch: 10, hidden: [4]}"]
    scenario = [
        "my.yaml",
        *scenario,
        "response={episodes: 10}",
        "evaluation={episodes: 2, payoffs: simulate}",
        "env.num_envs=2",
    ]
    assert main(["clone", tensors.name, *scenario, "--epochs", "1", "--out", "central.safetensors", "--overwrite"]) == 0
    assert (
        main(["train", *scenario, "warm_start=[{source: file, path: central.safetensors}]", "--name", "central"]) == 0
    )


def test_the_network_is_that_of_the_population() -> None:
    """Players 0 and 1 share one, and their critic sees which of them it judges."""
    from ludus.algorithms.ppo.config import MAPPO
    from ludus.runs.scenario import PSRO

    seen, state = Box(-1, 1, (2,), np.float32), Box(-1, 1, (5,), np.float32)
    agents = tuple(AgentSpec(str(player), player, seen, Discrete(3)) for player in range(3))
    env = EnvSpec("tests/three", agents, ((-1, 1),) * 3, ((0, 1), (2,)), state=state)
    scenario = PSRO(env="openspiel/kuhn_poker", algorithm=MAPPO(), meta_solver="uniform", response={"episodes": 1})
    assigned = scenario.who_learns(scenario.population(env)).assigned(env)
    assert command._policy(assigned, (0,)).config["state"] == 7
    assert command._policy(assigned, (1, 0)).config["state"] == 7
    assert command._policy(assigned, (2,)).config["state"] == 5
    with pytest.raises(
        ConfigError, match=r"players 0, 2 are of 2 populations, whose networks differ: 0, 1 and 2\. Choose"
    ):
        command._policy(assigned, (0, 2))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["games.parquet", "my.yaml", "--out", "x.pt"], "a name that ends in .safetensors is needed"),
        (["games.parquet", "my.yaml", "--out", "no/x.safetensors"], "there is no folder 'no'"),
        (["games.parquet", "my.yaml", "--out", "mine.safetensors"], "is there already; --overwrite replaces it"),
        (["games.parquet", "my.yaml"], "--out"),
        (["my.yaml", "my.yaml", "--out", "x.safetensors"], "holds no trajectories that can be read"),
        (["games.parquet", "kuhn", "--out", "x.safetensors"], "algorithm computes its policies"),
        (["games.parquet", "leduc", "--out", "x.safetensors"], 'the scenario has "openspiel/leduc_poker"'),
        (
            [
                "games.parquet",
                "my.yaml",
                "env.wrappers=[{kind: frame_stack, k: 2}]",
                "env.tree=off",
                "--out",
                "x.safetensors",
            ],
            "with env.wrappers=[];",
        ),
        (["games.parquet", "my.yaml", "--out", "x.safetensors", "--players", "2"], "players: 2 is no player"),
        (["games.parquet", "my.yaml", "--out", "x.safetensors", "--held-out", "1"], "held_out"),
        (["games.parquet", "my.yaml", "algorithm=dqn", "--out", "x.safetensors"], "cannot be cloned into"),
        (["games.parquet", "my.yaml", "--out", "x.safetensors", "--device", "mps"], "which Ludus does not compute on"),
    ],
)
def test_mistakes(runs: Path, line: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(runs.iterdir())
    assert main(["clone", *line]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert sorted(runs.iterdir()) == before
    assert (runs / "mine.safetensors").read_text() == "precious"


def test_the_time_left_is_told_once_it_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludus.contrib.algorithms.bc.clone import Scores

    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    tell = command._Progress()
    for epoch, now in ((1, 1.0), (5, 10.0), (6, 10.5)):
        clock[0] = now
        tell(Scores(epoch, 0.7, 0.5, 0.9), 10)
    assert capsys.readouterr().err == "epoch 5 of 10, 0.5000 nats, at most 10.0s left\n"


def test_games_are_recorded_by_the_workers_of_the_run(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most as many as there are environments."""
    from ludus.envs.config import Environment

    made, make = [], Environment.make

    def counted(self: Environment, **given: Any) -> Any:
        made.append((self.workers, given["num_envs"]))
        return make(self.model_copy(update={"workers": 0}), **given)

    settings = Environment(id="openspiel/kuhn_poker", num_envs=8, workers=3)
    monkeypatch.setattr("ludus.storage.stored_run.StoredRun.env", property(lambda self: settings))
    monkeypatch.setattr(Environment, "make", counted)
    for episodes, name in ((20, "many"), (2, "few")):
        file = str(tmp_path / f"{name}.parquet")
        assert main(["record", "k", "--trajectories", file, "--episodes", str(episodes)]) == 0
    assert made == [(3, 8), (2, 2)]
