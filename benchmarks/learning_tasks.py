"""The tasks of `benchmarks.learning`: scenarios, budgets, bars, and what peers have published.

Settings start from those of RL Baselines3 Zoo (its hyperparams folder), in our options. What differs: where learning rate and clip range
fall there, only the rate falls here; it falls for DQN on CartPole (whose batch is twice as large) and PPO on Acrobot too, from 1e-3: with
a steady one, some seeds end in a bad moment; `target_period` counts updates here and decisions there; DQN is double here; our value loss
has a half that theirs has not, so that `value_coefficient` 1 is their 0.5; off-policy learners of boxes collect 10 decisions between
updates, not 1, and TD3 begins to learn on Pendulum after 1,000 of them, not 10,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.learning_task import LearningTask
from benchmarks.learning_teams import TEAM_TASKS

ZOO = "RL Baselines3 Zoo, benchmark.md (one run)"


def _ppo(**options: Any) -> dict[str, Any]:
    """PPO with what Stable-Baselines3 has where nothing is said."""
    common = {"activation": "tanh", "value_network": "separate", "epochs": 10, "learning_rate": 3e-4, "entropy": 0.0}
    clipped = {"clip": 0.2, "max_gradient_norm": 0.5, "value_coefficient": 1.0, "gamma": 0.99}
    return {"kind": "ppo", "batch_unit": "decisions", **common, **clipped, **options}


def _dqn(**options: Any) -> dict[str, Any]:
    return {"kind": "dqn", "rollout_unit": "decisions", "hidden": [256, 256], "gamma": 0.99, **options}


def _replay(kind: str, **options: Any) -> dict[str, Any]:
    """SAC or TD3: one update for each decision."""
    return {"kind": kind, "rollout": 10, "updates_per_decision": 1, "batch": 256, **options}


def _mujoco(env: str, kind: str) -> LearningTask:
    # As in the zoo, and in benchmarks/peers/sb3_learning.
    own: dict[str, Any] = {"learning_rate": 3e-4, "hidden": [256, 256]}
    if kind == "td3":
        own = {"learning_rate": 1e-3, "hidden": [400, 300], "noise": 0.1}
    return LearningTask(
        f"{env.partition('-')[0].lower()}-{kind}",
        {"env": {"id": f"gymnasium/{env}", "num_envs": 1}, "oracle": _replay(kind, start_decisions=10_000, **own)},
        budget=300_000,
        wanted=">= 1",
        length="L",
        peer=kind,
    )


def _leduc(kind: str, *, num_envs: int, wanted: str = "", every_seat: bool = False, **options: Any) -> LearningTask:
    """every_seat: one learner for both players, which learns from all decisions of a game."""
    env = {"id": "openspiel/leduc_poker", "num_envs": num_envs}
    keys: dict[str, Any] = {"scenario": "self_play", "env": env, "oracle": {"kind": kind, **options}}
    if every_seat:
        keys |= {"share": "always", "every_seat": True}
    return LearningTask(f"leduc-{kind}", keys, 2_400_000, wanted, unit="episodes", score="exploitability")


def _memory(name: str, wanted: str, oracle: Mapping[str, Any], *, budget: int, num_envs: int) -> LearningTask:
    keys = {"env": {"id": "benchmarks.memory_task:Cue", "num_envs": num_envs}, "oracle": oracle}
    # 1,000 episodes: of 100, 45 to 55 right would say nothing.
    return LearningTask(f"memory-{name}", keys, budget, wanted, score="right", episodes=1000)


_ACROBOT, _LANDER = {"id": "gymnasium/Acrobot-v1"}, {"id": "gymnasium/LunarLander-v3"}
_CARTPOLE, _PENDULUM = {"id": "gymnasium/CartPole-v1"}, {"id": "gymnasium/Pendulum-v1", "num_envs": 1}
_FOUR = {
    "rollout": 4,
    "updates_per_decision": 1,
    "batch": 128,
    "min_size": 128,
    "capacity": 50_000,
    "target_period": 250,
}
_DQN = _dqn(learning_rate=6.3e-4, epsilon={"start": 1.0, "end": 0.1, "over": 0.12}, **_FOUR)
_RECALL_PPO = _ppo(
    activation="relu", value_network="shared", hidden=[32], batch=1344, epochs=4, minibatches=4, gamma=1.0,
    learning_rate={"start": 3e-3, "end": 0.0}, entropy={"start": 0.01, "end": 0.0},
)  # fmt: skip
_RECALL_Q: dict[str, Any] = {"rollout": 336, "min_size": 700, "updates_per_decision": 0.1, "n_step": 10, "gamma": 0.997}
_RECALL_Q |= {"target_period": 50, "learning_rate": 5e-3, "epsilon": {"start": 1.0, "end": 0.05, "over": 0.5}}
_RECALL_Q |= {"rollout_unit": "decisions", "hidden": [16]}  # 336: an episode of each environment

_ALL = (
    LearningTask(
        "cartpole-ppo",
        {
            "env": {**_CARTPOLE, "num_envs": 8},
            "oracle": _ppo(batch=256, epochs=20, learning_rate={"start": 1e-3, "end": 0.0}, gamma=0.98, gae_lambda=0.8),
        },
        100_000,
        ">= 500",
        published=500.0,
        source=ZOO,
    ),
    LearningTask(
        "cartpole-dqn",
        {
            "env": {**_CARTPOLE, "num_envs": 1},
            "oracle": _dqn(
                rollout=256, updates_per_decision=0.5, batch=128, min_size=1000, capacity=100_000, target_period=128,
                learning_rate={"start": 1e-3, "end": 0.0}, epsilon={"start": 1.0, "end": 0.04, "over": 0.16},
            ),
        },
        50_000,
        ">= 500",
        published=500.0,
        source=ZOO,
    ),
    LearningTask(
        "acrobot-ppo",
        {
            "env": {**_ACROBOT, "num_envs": 16},
            "oracle": _ppo(
                batch=4096, epochs=4, minibatches=64, gae_lambda=0.94, normalise_observations=True, normalise_returns=True,
                learning_rate={"start": 1e-3, "end": 0.0},
            ),
        },
        1_000_000,
        ">= -73.5",
        published=-73.506,
        source=ZOO,
    ),
    LearningTask(
        "acrobot-dqn",
        {"env": {**_ACROBOT, "num_envs": 1}, "oracle": _DQN},
        100_000,
        ">= -76.6",
        published=-76.639,
        source=ZOO,
    ),
    LearningTask(
        "lunarlander-ppo",
        {
            "env": {**_LANDER, "num_envs": 16},
            "oracle": _ppo(batch=16_384, epochs=4, minibatches=256, gamma=0.999, gae_lambda=0.98, entropy=0.01),
        },
        1_000_000,
        ">= 242",
        published=242.119,
        source=f"{ZOO}, LunarLander-v2",
    ),
    LearningTask(
        "lunarlander-dqn",
        {"env": {**_LANDER, "num_envs": 1}, "oracle": _DQN},
        100_000,
        ">= 154",
        published=154.382,
        source=f"{ZOO}, LunarLander-v2",
        length="L",
    ),
    LearningTask(
        "pendulum-sac",
        {"env": _PENDULUM, "oracle": _replay("sac", learning_rate=1e-3, start_decisions=100, hidden=[256, 256])},
        20_000,
        ">= -160",
        published=-156.995,
        source=ZOO,
    ),
    LearningTask(
        "pendulum-td3",
        {
            "env": _PENDULUM,
            "oracle": _replay(
                "td3", learning_rate=1e-3, start_decisions=1000, hidden=[400, 300], gamma=0.98, capacity=200_000, noise=0.1
            ),
        },
        20_000,
        ">= -160",
        published=-151.855,
        source=ZOO,
    ),
    *(_mujoco(env, kind) for env in ("HalfCheetah-v5", "Hopper-v5") for kind in ("sac", "td3")),
    LearningTask(
        "pong-ppo",
        {
            "env": {"id": "ale/pong", "num_envs": 8, "options": {"threads": 1}},
            "mode": "explore",  # the zoo plays Atari so, too
            "oracle": _ppo(
                network="nature", value_network="shared", batch=1024, epochs=4, minibatches=4, gae_lambda=0.95,
                learning_rate={"start": 2.5e-4, "end": 0.0}, clip=0.1, entropy=0.01,
            ),
        },
        2_500_000,  # of 4 frames each
        ">= 20",
        published=20.989,
        source=f"{ZOO}, PongNoFrameskip-v4",
        length="L",
        barriers=50,  # some minutes each
    ),
    _leduc(
        "mmd",
        num_envs=1000,
        wanted="<= 0.15",
        every_seat=True,
        network="table",
        magnet="moving",
        announce="magnet",
        magnet_rate=0.002,
        alpha=0.06,
        eta={"start": 0.5, "end": 0.2},
        explore=0.05,
        gae_lambda=0.7,
        value_rate=0.05,
        bound=5,
    ),
    _leduc("rnad", num_envs=1000, every_seat=True, magnet_period=200),
    _leduc("nfsp", num_envs=500),
    _memory("ppo", ">= 0.95", {**_RECALL_PPO, "memory": "gru", "memory_size": 32}, budget=100_000, num_envs=32),
    _memory(
        "r2d2",
        ">= 0.95",
        {
            "kind": "r2d2", "memory": 16, "length": 21, "period": 21, "burn_in": 0, "batch": 32,
            **_RECALL_Q,
        },
        budget=50_000,
        num_envs=16,
    ),
    _memory("ppo-feedforward", "<= 0.55", _RECALL_PPO, budget=100_000, num_envs=32),
    _memory(
        "dqn-feedforward",
        "<= 0.55",
        {"kind": "dqn", "batch": 128, **_RECALL_Q},
        budget=50_000,
        num_envs=16,
    ),
)  # fmt: skip
TASKS = {task.name: task for task in (*_ALL, *TEAM_TASKS)}
_GENERATIONS = 24  # of a game in self-play: each adds a point to the curve


def scenario(task: LearningTask, seed: int, *, share: float = 1.0) -> dict[str, Any]:
    """The scenario of one run. share: of the budget."""
    budget = int(task.budget * share)
    common: dict[str, Any] = {"checkpoints": {"iterations": task.barriers or 1_000_000}, "seed": seed}
    if task.score == "exploitability":
        # No limit for the whole run: it would be reached before the last generation is measured.
        learners = 1 if "every_seat" in task.keys else 2
        limits = {"generations": _GENERATIONS, "response": {"episodes": budget // (learners * _GENERATIONS)}}
        return {**common, **limits, **task.keys}
    alone = {"scenario": "psro", "meta_solver": "last", "generations": 1, "response": {task.unit: budget}}
    evaluation: dict[str, Any] = {"episodes": 2, "exploitability": "off"}
    if task.points:
        every = max(1, int(task.points[0] * share) // task.keys["oracle"]["batch"])  # a version for each batch
        evaluation["beside"] = {"every": every, "episodes": task.episodes}
    return {**common, **alone, "evaluation": evaluation, **task.keys}
