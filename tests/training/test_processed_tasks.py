"""Trajectories that are processed where they are made, in tasks and runs: who takes what, what is counted, and equal bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ludus
from ludus.algorithms.common.base import REPLAY, Algorithm
from ludus.algorithms.common.registry import check_fits
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.r2d2.config import R2D2
from ludus.algorithms.sac.config import SACDiscrete
from ludus.contrib.algorithms.maddpg.config import MADDPG
from ludus.contrib.algorithms.qmix.config import VDN
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import Mixture, PolicyRef, PolicySpec, TrainingTask
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.episode_server import EpisodeServer
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import InProcess
from ludus.training.ondevice_collector import why_not_on_device
from ludus.training.stopping import parse_stopper
from ludus.training.training import Training, TrainingParts

HINDSIGHT = {"kind": "her", "goal": [0, 1], "achieved": [1, 2], "copies": 2}
SMALL: dict[str, Any] = {"hidden": [8], "batch": 8, "min_size": 10, "rollout": 6}


def _make(*, num_envs: int) -> Any:
    return make_env("openspiel/catch", num_envs=num_envs, tree="off")


def training(algorithm: Algorithm, *, hosts: int = 1) -> Training:
    vector = _make(num_envs=4)
    rollouts = RolloutManager(InProcess(), _make, spec=vector.spec, num_envs=4, shards=2, hosts=hosts)
    uniform = build_policy(PolicySpec("random", {"actions": 3}), {})
    parts = TrainingParts(rollouts, EpisodeServer(0), lambda ref: uniform, 0)
    mixture = Mixture.product({0: ([PolicyRef(0, "uniform")], [1.0])})
    task = TrainingTask("task", 1, 0, (0,), "0-1", mixture)
    return Training(task, algorithm=algorithm, parts=parts, stop=parse_stopper({"episodes": 60}), start=None)


def test_the_same_wherever_it_is_done_and_after_a_resume() -> None:
    """Two shards in one host, in two, and resumed after the third round. Schedules and updates follow what was played, 9 decisions an
    episode; the table holds three times as many."""
    algorithm = DQN(**SMALL, updates_per_decision=0.1, processing=[HINDSIGHT, {"kind": "reward_scale", "factor": 0.5}])
    one, two, resumed = training(algorithm), training(algorithm, hosts=2), training(algorithm)
    for made in (one, two):
        for _ in range(3):
            made.step()
        made.barrier()
    resumed.load_state_dict(one.state_dict())
    for made in (one, two, resumed):
        for _ in range(2):
            made.step()
    told = one._parts.episodes.statistics("task")[REPLAY]
    assert (told["inserted"], one.progress.decisions) == (3 * 270, 270)
    assert one.progress.updates == 26  # 0.1 · (270 − 10)
    ends = [made.result().weights for made in (one, two, resumed)]
    for other in ends[1:]:
        for name, array in ends[0].items():
            np.testing.assert_array_equal(array, other[name])


def test_processing_does_not_change_reported_returns() -> None:
    """The learner's rewards are halved; the returns that are told are the game's."""
    plain, halved = training(DQN(**SMALL)), training(DQN(**SMALL, processing=["reward_clip"]))
    for made in (plain, halved):
        made.step()
    assert plain.metrics["return"] == halved.metrics["return"]


@pytest.mark.slow
def test_workers_elsewhere_give_the_same_numbers(tmp_path: Path) -> None:
    """Processed in three workers, paced by a table in one place: what is stored is what one process stores."""
    scenario = ludus.FixedOpponents(
        env={"id": "openspiel/catch", "num_envs": 6, "tree": "off"},
        algorithm=DQN(**SMALL, processing=[HINDSIGHT], samples_per_insert=2.0, error_buffer=40.0, publish_every=2),
        response={"episodes": 48},
        generations=1,
        evaluation={"payoffs": "simulate", "exploitability": "off", "episodes": 10},
    )
    found = []
    for runtime in ({"kind": "inprocess", "shards": 3}, {"kind": "processes", "shards": 3, "workers": 3}):
        result = ludus.run(scenario, runtime=runtime, run_dir=tmp_path / runtime["kind"], report=False)
        found.append(ludus.load_policy(f"{result.run_dir}@0/0-1").weights())
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])


# ---------------------------------------------------------------------------------------------- who takes what


@pytest.mark.parametrize("cls", [PPO, MMD, R2D2, VDN, MADDPG, SACDiscrete, NFSP])
def test_processing_is_an_option_of_every_family(cls: Any) -> None:
    inner = {"best_response": {"processing": ["reward_clip"]}} if cls is NFSP else {"processing": ["reward_clip"]}
    algorithm = cls(**inner)
    assert [type(each).__name__ for each in algorithm.collect().processing] == ["RewardClip"]
    assert cls(**algorithm.model_dump(mode="json")) == algorithm


def test_added_decisions_are_for_who_can_learn_from_them() -> None:
    spec = make_env("openspiel/catch", num_envs=1, tree="off").spec
    check_fits(DQN(processing=[HINDSIGHT]), spec)
    check_fits(SACDiscrete(processing=[HINDSIGHT], rollout_unit="episodes"), spec)
    for algorithm in (PPO(processing=[HINDSIGHT]), R2D2(processing=[HINDSIGHT])):
        name = type(algorithm).__name__
        with pytest.raises(
            ScenarioError, match=f"HER adds decisions that no policy took, and {name} learns from real ones only"
        ):
            check_fits(algorithm, spec)
    with pytest.raises(ScenarioError, match="HER processes whole episodes, and SACDiscrete collects decisions"):
        check_fits(SACDiscrete(processing=[HINDSIGHT]), spec)
    with pytest.raises(ScenarioError, match="in openspiel/kuhn_poker player_0 sees ids of states"):
        check_fits(DQN(processing=[HINDSIGHT]), make_env("openspiel/kuhn_poker", num_envs=1).spec)


def test_who_plays_on_a_device_cannot_have_it() -> None:
    env = make_env("openspiel/kuhn_poker", num_envs=1)
    why = why_not_on_device(env, PPO(processing=["reward_clip"]).collect(), asynchronous=False)
    assert why == "its algorithm processes what it did (algorithm.processing)"


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(ConfigError, match="low 1 must be below high 0"):
        DQN(processing=[{"kind": "reward_clip", "low": 1, "high": 0}])


# ---------------------------------------------------------------------------------------------- hindsight learns

BITS = 8


@pytest.mark.slow
def test_hindsight_reaches_goals_that_plain_learning_never_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 bits, 1600 episodes (Andrychowicz et al. 2017, figure 1): DQN alone flips at random to the end."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    import bit_flip

    solved = {}
    for name, chain in (("plain", []), ("her", [{"kind": "her", "goal": [BITS, 2 * BITS], "achieved": [0, BITS]}])):
        scenario = ludus.FixedOpponents(
            env={"id": "bit_flip:BitFlip", "num_envs": 16, "options": {"bits": BITS}},
            algorithm=DQN(
                hidden=(128,), gamma=0.98, rollout=16, batch=128, min_size=500, updates_per_decision=0.25, target_period=40,
                learning_rate=1e-3, epsilon={"start": 0.3, "end": 0.02}, processing=chain,
            ),
            response={"episodes": 1600},
            generations=1,
            seed=1,
        )  # fmt: skip
        policy = ludus.load_policy(ludus.run(scenario, run_dir=tmp_path / name, report=False).run_dir)
        solved[name] = np.mean([reaches(bit_flip.BitFlip(BITS), policy, seed) for seed in range(200)])
    assert solved["plain"] < 0.2
    assert solved["her"] > 0.9


def reaches(env: gym.Env[Any, Any], policy: Any, seed: int) -> bool:
    seen, _ = env.reset(seed=seed)
    over = ended = False
    while not (over or ended):
        seen, _, over, ended, _ = env.step(int(policy.predict(seen, deterministic=True)[0]))
    return over
