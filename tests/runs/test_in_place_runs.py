"""Whole runs whose games are played where their learners compute."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path

import pytest
import run_tools as tools
import torch

from ludus.algorithms.common.base import LearnerContext
from ludus.backend import device
from ludus.core.errors import ConfigError
from ludus.envs.adapters import openspiel
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.runs import assembly, scenario_check
from ludus.runs.runner import resume, run
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.reader import Reader
from ludus.testing.device_env import CopiedEnv

THERE = ("runtime.environments=device", "runtime.device=cpu")
BY_PLAY = "evaluation.payoffs=simulate | evaluation.exploitability=off"
SELF_PLAY = """
scenario: self_play
share: always
every_seat: true
env: {id: openspiel/kuhn_poker, num_envs: 64}
algorithm: {kind: mmd, hidden: [16], batch: 300, batch_unit: decisions, epochs: 8, learning_rate: 0.01, alpha: 0.05, eta: 1}
response: {decisions: 6000}
generations: 2
checkpoints: {iterations: 3}
"""


class There(OpenSpielVectorEnv):
    """As if it could live on a device."""

    def on_device(self, device: torch.device, *, num_envs: int) -> CopiedEnv:
        return CopiedEnv(make_env(self.spec.id, num_envs=num_envs, tree="off"), device)


@pytest.mark.slow
def test_a_population_and_self_play_learn_there(tmp_path: Path) -> None:
    psro = run(
        tools.scenario("ppo", *THERE, "response.episodes=400", "algorithm.epochs=10"),
        run_dir=tmp_path / "psro",
        report=False,
    )
    assert psro.summary.counters["episodes"] == psro.summary.episodes == 2 * 2 * 400
    assert psro.nash_conv[-1] < 0.6 < 0.91  # which uniform play has
    assert psro.summary.places["ppo of player 0"] == "cpu (torch): as asked for; games are played there, too"
    alone = run(parse_scenario(SELF_PLAY, list(THERE)), run_dir=tmp_path / "alone", report=False)
    assert alone.nash_conv[-1] < 0.4


@pytest.mark.parametrize("name", [pytest.param("ppo", marks=pytest.mark.slow), "alone"])
def test_stopped_and_resumed_there_is_the_same_run(name: str, tmp_path: Path) -> None:
    """Against a population, and where one network plays all seats with itself."""
    scenario = (
        parse_scenario(SELF_PLAY, [*THERE, "response.decisions=1200"])
        if name == "alone"
        else tools.scenario(name, *THERE)
    )
    run(scenario, run_dir=tmp_path / "whole", report=False)
    observer = tools.Impatient(5)
    run(scenario, run_dir=tmp_path / "cut", observer=observer, stop=observer.stop, report=False)
    resume(tmp_path / "cut", report=False)
    tools.assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_opponents_are_asked_for_their_own_seats_alone(tmp_path: Path) -> None:
    """Of three players, whose policies know no other player's states."""
    three = ("env.id=openspiel/kuhn_poker(players=3)", "meta_solver=uniform", "response.episodes=80")
    done = run(tools.scenario("ppo", *THERE, *three), run_dir=tmp_path / "run", report=False)
    assert done.summary.complete
    assert done.summary.counters["episodes"] == 2 * 3 * 80
    with Reader(tmp_path / "run") as reader:
        names = {name for name, _ in reader.metric_names()}
    assert {"seconds/device", "seconds/learning"} <= names
    assert not {"seconds/environment", "seconds/inference"} & names  # nothing is played in memory


def test_a_population_of_networks_without_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opponents act by copies of their networks."""
    monkeypatch.setattr(openspiel, "OpenSpielVectorEnv", There)
    done = run(tools.scenario("simulate", *THERE), run_dir=tmp_path / "run", report=False)
    assert done.summary.complete
    assert done.summary.counters["episodes"] == 3 * 2 * 60


EPISODES = (
    "algorithm={kind: ppo, batch: 40, batch_unit: episodes, hidden: [8]} | runtime.kind=processes | runtime.workers=2"
)


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        (f"{EPISODES} | runtime.environments=device | runtime.device=cpu", True),
        (f"{EPISODES} | runtime.environments=device | runtime.device=cpu | evaluation.payoffs=simulate", False),
        (
            f"{EPISODES} | runtime.environments=device | runtime.device=cpu | runtime.kind=inprocess | runtime.workers=1",
            False,
        ),
        (f"{EPISODES} | runtime.environments=host | runtime.device=cpu", False),
        (f"{EPISODES} | runtime.device=cpu", False),
        (f"{EPISODES} | runtime.device=cpu | runtime.environments=device | algorithm.batch_unit=decisions", False),
    ],
)
def test_workers_without_anything_to_play_are_refused(
    changes: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is played; there are learners on the GPU in name only, and these compute on the CPU."""
    monkeypatch.setattr(scenario_check, "gpu_count", lambda: 1)
    scenario = tools.scenario("ppo", *changes.split(" | "))
    with pytest.raises(ConfigError, match="workers would have nothing to play") if refused else nullcontext():
        env, _, _ = assembly.validated_env(scenario.with_shards())
        env.close()


@pytest.mark.parametrize(
    ("scenario", "changes", "told"),
    [
        (
            SELF_PLAY,
            "env.tree=off | env.num_envs=8",
            "cpu: 1.8e+03 multiplications for all answers of a step are too few",
        ),
        (SELF_PLAY, "env.tree=off | env.num_envs=8 | runtime.acting=device", "cuda:0: as asked for"),
        (SELF_PLAY, "env.tree=off | runtime.acting=cpu", "cpu: as asked for"),
        (SELF_PLAY, "env.num_envs=64", "cpu: it plays from a table"),
        (SELF_PLAY, "runtime.kind=ray", "cpu: its workers have no GPU"),
        (SELF_PLAY, "runtime.kind=ray | runtime.gpus=0.1 | env.tree=off", "GPUs of its workers"),
        (SELF_PLAY, "runtime.kind=ray | runtime.inference=server", "inference servers"),
    ],
)
def test_it_is_said_where_policies_act(scenario: str, changes: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a GPU in name only, in its rows of one shard."""
    monkeypatch.setattr(device, "gpu_count", lambda: 1)
    monkeypatch.setattr(assembly, "gpu_count", lambda: 1)
    found = parse_scenario(scenario, ["runtime.device=cuda", *changes.split(" | ")])
    env, _ = assembly.build_first_shard(found)
    with closing(env):
        learner = found.algorithm.learner(LearnerContext(env.spec, (0,), 0))
        tell = assembly.where_acts(found, env.spec)
        assert tell is not None
        assert tell(build_policy(learner.spec, learner.weights())).startswith(told)
        on_cpu = parse_scenario(scenario, ["runtime.device=cpu"])
        assert assembly.where_acts(on_cpu, env.spec) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("env.tree=off", "openspiel/kuhn_poker is stepped in memory only"),
        ("algorithm={kind: dqn, rollout: 40}", "its learner learns from rows in memory only"),
        (f"algorithm={{kind: ppo, memory: gru}} | {BY_PLAY}", "its network remembers"),
        ("algorithm={kind: mmd, batch: 40, network: table}", "its learner learns from rows in memory only"),
        ("runtime.mode=async", r"workers play each for itself \(runtime.mode=async\)"),
    ],
)
def test_asked_for_and_not_possible_is_refused(change: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"runtime.environments=device was given, and .* cannot do that: {why}"):
        run(tools.scenario("ppo", *THERE, *change.split(" | ")), run_dir=tmp_path, report=False)
    assert not any(tmp_path.iterdir())  # said before anything is computed or written
