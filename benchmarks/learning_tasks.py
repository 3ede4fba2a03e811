"""The tasks of `benchmarks.learning`: presets, budgets, bars, and what peers have published.

The presets' settings start from those of RL Baselines3 Zoo (its hyperparams folder), in our options. What differs: where learning rate
and clip range fall there, only the rate falls here; it falls for DQN on CartPole and PPO on Acrobot too, from 1e-3: with a steady one,
some seeds end in a bad moment; DQN on CartPole has a batch twice as large, targets over 5 steps, rounds of updates twice as often, target
networks that stay for twice as many updates, and ends with 10% of random actions, not 4%; `target_period` counts updates here and
decisions there; DQN is double here; our value loss has a half that theirs has not, so that `value_coefficient` 1 is their 0.5; on
Pendulum off-policy learners collect 10 decisions between updates, not 1, and TD3 begins to learn after 1,000 of them, not 10,000; Pong,
with a quarter of their frames, begins with a rate of 4e-4, not 2.5e-4, and 16 environments, not 8.

M-IQN and Rainbow-IQN have the settings of DQN on CartPole, with 8 levels, one step and a shorter target period (M-IQN) and a smaller batch
(Rainbow-IQN); they were chosen on seed 10. Rainbow, QR-DQN, IQN, Munchausen-DQN and discrete SAC have DQN's too, but for what is their
own, and DDPG has TD3's. A2C and IMPALA have 500,000 decisions, as the zoo's A2C, REINFORCE 3,000 episodes.

Cooperating agents (MPE2's) are one player, whose return is the sum of its agents', as EPyMARL reports it. Budgets in decisions count what
all of them do: a step of the environment is a decision of each. simple_spread has the same network, replay and exploration for QMIX, VDN
and independent Q-learning, targets over 5 steps and a discount of 0.95: with one step, or 0.99, QMIX's values grow without end. The first
two learn from the team's rewards, standardised; independent learners each from its own, scaled by 0.05, so that values are as large.

MuJoCo is played with Tianshou's settings as well. The curves of its ten seeds, 2021, are `test_rew_10seeds.csv` in its repository until
November 2025 (commit 39acf209); their mean after 300,000 steps is what we have beside ours. Its SAC keeps a temperature of 0.2.

The key-and-door grid is played by PPO with random network distillation, with the intrinsic curiosity module, and without either, alike in
all else. CartPole is imitated from 1, 10 and 100 episodes of the preset's PPO (`benchmarks.learning_imitation`): by behaviour cloning, GAIL
and AIRL; the last two take 100,000 steps, whose rewards they do not see.
"""

from __future__ import annotations

from importlib import resources
from typing import Any, Literal

from benchmarks.learning_task import EXPERT_FILE, LearningTask, Peer
from ludus.core.config import from_yaml

_ZOO = "RL Baselines3 Zoo, benchmark.md (one run)"
_TIANSHOU = "Tianshou, examples/mujoco/benchmark (ten seeds, v3)"
_EPYMARL = "Papoudakis et al. 2021 (EPyMARL), table 3, after 20M steps"
_WRITTEN_OUT = (
    ("network", "mlp"),
    ("body", "mlp"),
    ("normalise_observations", False),
    ("normalise_returns", False),
)
"""What presets write out, and learners of other kinds that take their settings lack or call otherwise; it is the default of all."""
_KEYS = ("scenario", "share", "every_seat", "env", "mode", "algorithm")


def keys_of(preset: str) -> dict[str, Any]:
    """What a task has of a preset: the environment and the learner, not for how long."""
    text = (resources.files("ludus.runs") / "presets" / f"{preset}.yaml").read_text(encoding="utf-8")
    data = from_yaml(text, what=preset)
    algorithm = {key: value for key, value in data["algorithm"].items() if (key, value) not in _WRITTEN_OUT}
    return {key: data[key] for key in _KEYS if key in data and data[key] != "psro"} | {"algorithm": algorithm}


def _changed(preset: str, **changes: Any) -> dict[str, Any]:
    """`keys_of` it, but for these options of the learner. None: without it."""
    keys = keys_of(preset)
    options = {**keys["algorithm"], **changes}
    return {**keys, "algorithm": {key: value for key, value in options.items() if value is not None}}


def _task(name: str, preset: str, budget: int, wanted: str = "", **options: Any) -> LearningTask:
    return LearningTask(name, keys_of(preset), budget, wanted, **options)


_AS_GOOD = ">= 1"
"""As the peer."""


def _leduc(kind: str, wanted: str = "") -> LearningTask:
    name, episodes = f"leduc-{kind}", 2_400_000
    peer = Peer.openspiel(kind, episodes=episodes) if wanted == _AS_GOOD else None
    length = "L" if peer else "S"  # it takes half an hour
    return _task(name, name, episodes, wanted, unit="episodes", score="exploitability", peer=peer, length=length)


def _tic_tac_toe(kind: str, budget: int) -> LearningTask:
    """Against all that can be played: exact, on the game's tree. It is 0 if a policy never loses, and else at least a half, as it plays
    what it thinks best. AlphaZero's is its network alone; MuZero's searches, in what it imagines."""
    keys, name = keys_of(f"tic-tac-toe-{kind}"), f"tictactoe-{kind}"
    if kind == "muzero":  # it trains from random openings, and a tree begins at its root
        return LearningTask(name, keys, budget, "<= 0", unit="episodes", score="exploitability", at_end=True)
    exact = {**keys, "env": {**keys["env"], "tree": "on", "options": {}}, "mode": "greedy"}
    return LearningTask(name, exact, budget, "<= 0", unit="episodes", score="exploitability")


def _mujoco(name: str, kind: str) -> LearningTask:
    preset, steps = _mujoco_preset(name, kind), 300_000
    return _task(f"{name}-{kind}", preset, steps, _AS_GOOD, length="L", peer=Peer.sb3(kind, decisions=steps))


def _mujoco_preset(name: str, kind: str) -> str:
    return {"halfcheetah": "half-cheetah"}.get(name, name) + ("" if kind == "sac" else f"-{kind}")


_TIANSHOUS = {
    "sac": {"learning_rate": 1e-3, "learn_temperature": False, "temperature": 0.2},
    "td3": {"learning_rate": 3e-4, "hidden": [256, 256], "start_decisions": 25_000},
}
"""Its settings where they differ from the presets', which are those of the zoo."""


def _as_tianshou(name: str, kind: str, published: float) -> LearningTask:
    """MuJoCo with Tianshou's settings, beside the ten curves that it published. Wanted is 0.9 of their mean."""
    keys = _changed(_mujoco_preset(name, kind), **_TIANSHOUS[kind])
    wanted = f">= {0.9 * published:.0f}"
    return LearningTask(
        f"{name}-{kind}-tianshou", keys, 300_000, wanted, length="L", published=published, source=_TIANSHOU
    )


_EPYMARLS = ("qmix", "vdn", "iql", "coma", "mappo", "ippo")
"""What it has of these."""


def _epymarl(kind: str, steps: int) -> Peer | None:
    return Peer.epymarl(kind, steps=steps) if kind in _EPYMARLS else None


def _spread(kind: str) -> LearningTask:
    """1M steps in episodes of 25 steps."""
    preset, steps = "simple-spread" + ("" if kind == "qmix" else f"-{kind}"), 1_000_000
    return _task(f"spread-{kind}", preset, steps // 25, unit="episodes", length="L", peer=_epymarl(kind, steps))


def _speaker_listener_qmix() -> LearningTask:
    """1M steps, with QMIX's settings on simple_spread."""
    keys = keys_of("simple-spread")
    env = {**keys["env"], "id": keys_of("speaker-listener")["env"]["id"]}
    peer = _epymarl("qmix", 1_000_000)
    return LearningTask("speaker-listener-qmix", {**keys, "env": env}, 40_000, unit="episodes", length="L", peer=peer)


def _spread_by_turns(kind: str) -> LearningTask:
    """1M steps of three agents."""
    return _task(f"spread-{kind}", f"simple-spread-{kind}", 3_000_000, peer=_epymarl(kind, 1_000_000))


def _spread_ippo() -> LearningTask:
    """As MAPPO, but for what values see."""
    own = {
        "value_network": "separate",
        "team_rewards": True,
        "batch_unit": "decisions",
        "epochs": 10,
        "entropy": 0.01,
        "clip": 0.2,
        "max_gradient_norm": 10.0,
        "normalise_returns": True,
    }
    keys = _changed("simple-spread-mappo", kind="ppo", **own)
    return LearningTask("spread-ippo", keys, 3_000_000, length="L", peer=_epymarl("ippo", 1_000_000))


_TURNS = ("mappo", "happo", "hatrpo", "a2po", "coppo")


def _team(
    name: str, preset: str, budget: int, kind: str, length: Literal["S", "L"] = "S", **changes: Any
) -> LearningTask:
    """A team by one of MAPPO's family, with the settings of a preset that trains it by MAPPO. changes: to the learner, by kind; None:
    without this option."""
    return LearningTask(f"{name}-{kind}", _changed(preset, kind=kind, **changes.get(kind, {})), budget, length=length)


_ONE_STEP = {"cds_qmix": {"n_step": 1, "target_period": 2000}}  # its intrinsic reward is of one


def _lbf(kind: str) -> LearningTask:
    """EPyMARL's first task of level-based foraging, at most 2M steps: two foods, each of which wants both. All food is worth 1."""
    keys = _changed("lbf-qmix" if kind != "coma" else "lbf-coma", kind=kind, **_ONE_STEP.get(kind, {}))
    name, peer = f"lbf-{kind.replace('_', '-')}", _epymarl(kind, 2_000_000)
    return LearningTask(name, keys, 40_000, unit="episodes", length="L", peer=peer)


def _smax(kind: str) -> LearningTask:
    """60,000 episodes of three marines against three: about 1M steps, as of the others."""
    keys = _changed("smax-3m-qmix", kind=kind, **_ONE_STEP.get(kind, {}))
    return LearningTask(f"smax-3m-{kind.replace('_', '-')}", keys, 60_000, unit="episodes", length="L")


def _memory(name: str, preset: str, wanted: str, budget: int, **changes: Any) -> LearningTask:
    """changes: to the learner; None: without this option."""
    # 1,000 episodes: of 100, 45 to 55 right would say nothing.
    return LearningTask(f"memory-{name}", _changed(preset, **changes), budget, wanted, score="right", episodes=1000)


_FALLING = {"start": 1e-3, "end": 0.0}
_GRADIENTS: dict[str, dict[str, Any]] = {
    "reinforce": {"batch": 8, "value_network": "separate", "gamma": 0.99, "learning_rate": 1e-3},
    "a2c": {"batch": 40, "entropy": 0.0, "learning_rate": _FALLING},
    "impala": {
        "batch": 128,
        "entropy": 0.0,
        "activation": "tanh",
        "value_network": "separate",
        "learning_rate": {"start": 3e-3, "end": 0.0},
    },
}
_VALUES: dict[str, dict[str, Any]] = {
    "rainbow": {"v_min": 0.0, "v_max": 100.0, "target_period": 64},  # the most that rewards of 1 come to at 0.99
    "qr_dqn": {"target_period": 64},
    "iqn": {"atoms": 8, "target_period": 64},
    "munchausen_dqn": {"n_step": None, "target_period": 64},
    "sac_discrete": {"target_period": None, "epsilon": None, "min_size": None},
}


def _cartpole_gradient(kind: str) -> LearningTask:
    """CartPole by a policy gradient."""
    keys = {**keys_of("cartpole"), "algorithm": {"kind": kind, **_GRADIENTS[kind]}}
    name = f"cartpole-{kind}"
    options: dict[str, Any] = {"published": 500.0, "source": f"{_ZOO}, of A2C"}
    if kind == "reinforce":  # from whole episodes
        return LearningTask(name, keys, 3000, ">= 500", unit="episodes", **options)
    return LearningTask(name, keys, 500_000, ">= 500", **options)


def _cartpole_values(kind: str) -> LearningTask:
    """CartPole by one of DQN's kin."""
    name, source = f"cartpole-{kind.replace('_', '-')}", f"{_ZOO}, of {'QR-DQN' if kind == 'qr_dqn' else 'DQN'}"
    keys = _changed("cartpole-dqn", kind=kind, **_VALUES[kind])
    return LearningTask(name, keys, 50_000, ">= 500", published=500.0, source=source)


def _lunar_lander_by_vmpo() -> LearningTask:
    """With PPO's discounts there; the rest was chosen on seeds 10 and 11."""
    algorithm = {
        "kind": "vmpo",
        "value_network": "separate",
        "gamma": 0.999,
        "gae_lambda": 0.98,
        "batch": 4096,
        "minibatches": 32,
        "epochs": 4,
        "learning_rate": 0.0005,
        "epsilon": 0.01,
        "epsilon_policy": 0.02,
        "alpha_policy": 1.0,
    }
    keys = {**keys_of("lunar-lander"), "algorithm": algorithm}
    source = f"{_ZOO}, of PPO, LunarLander-v2"
    return LearningTask("lunarlander-vmpo", keys, 1_000_000, ">= 242", published=242.119, source=source)


_EPISODES = (1, 10, 100)
"""Of an expert, that are imitated."""


def _imitation(kind: str, episodes: int) -> LearningTask:
    """kind: "bc", or that of the learned reward."""
    keys = keys_of("cartpole" if kind == "bc" else f"cartpole-{kind}")
    if kind != "bc":
        learned = {**keys["algorithm"]["learned_reward"], "demonstrations": EXPERT_FILE}
        keys = {**keys, "algorithm": {**keys["algorithm"], "learned_reward": learned}}
    name = f"cartpole-{episodes}-{kind}"
    return LearningTask(name, keys, 100_000, expert="cartpole", demonstrations=episodes, cloned=kind == "bc")


def _without_curiosity() -> LearningTask:
    keys = keys_of("key-and-door")
    keys = {**keys, "algorithm": {**keys["algorithm"], "learned_reward": None}}
    return LearningTask("key-and-door-ppo", keys, 200_000, "<= 0.1")


def _values_behind_the_door(name: str, wanted: str, *, curious: bool) -> LearningTask:
    """DQN there, which explores by ε, and with two streams of RND's rewards too."""
    algorithm = {
        "kind": "dqn",
        "gamma": 0.99,
        "hidden": [64, 64],
        "batch": 128,
        "n_step": 3,
        "rollout_unit": "decisions",
        "rollout": 20_480,
        "min_size": 1000,
        "updates_per_decision": 0.25,
        "target_period": 500,
        "learning_rate": 0.001,
        "epsilon": {"start": 0.5, "end": 0.02, "over": 0.3},
    }
    if curious:
        algorithm["learned_reward"] = {"kind": "rnd", "extrinsic": 10.0}
    return LearningTask(name, {**keys_of("key-and-door"), "algorithm": algorithm}, 500_000, wanted)


def _mat(name: str, preset: str, budget: int, kind: str = "mat") -> LearningTask:
    """A team by MAT, with the settings of a preset that trains it by MAPPO, but for the network. Observations are normalised over time, not
    each by itself."""
    keys = keys_of(preset)
    options = {key: value for key, value in keys["algorithm"].items() if key != "hidden"}
    return LearningTask(
        name, {**keys, "algorithm": {"clip": 0.2, "layer_norm": False, **options, "kind": kind}}, budget, length="L"
    )


_ALL = (
    _task("cartpole-ppo", "cartpole", 100_000, ">= 500", published=500.0, source=_ZOO),
    _task(
        "cartpole-dqn", "cartpole-dqn", 50_000, _AS_GOOD, published=500.0, source=_ZOO,
        peer=Peer.sb3("dqn", decisions=50_000),
    ),
    _task("acrobot-ppo", "acrobot", 1_000_000, ">= -73.5", published=-73.506, source=_ZOO),
    _task("acrobot-dqn", "acrobot-dqn", 100_000, ">= -76.6", published=-76.639, source=_ZOO),
    _task(
        "lunarlander-ppo", "lunar-lander", 1_000_000, ">= 242", published=242.119, source=f"{_ZOO}, LunarLander-v2"
    ),
    _task(
        "lunarlander-dqn", "lunar-lander-dqn", 100_000, ">= 154", published=154.382, source=f"{_ZOO}, LunarLander-v2",
        length="L",
    ),
    _task("pendulum-sac", "pendulum", 20_000, ">= -160", published=-156.995, source=_ZOO),
    _task("pendulum-td3", "pendulum-td3", 20_000, ">= -160", published=-151.855, source=_ZOO),
    *(_mujoco(name, kind) for name in ("halfcheetah", "hopper") for kind in ("sac", "td3")),
    _as_tianshou("halfcheetah", "sac", 9059.3),
    _as_tianshou("halfcheetah", "td3", 7545.8),
    _as_tianshou("hopper", "sac", 3387.7),
    _as_tianshou("hopper", "td3", 1583.4),
    _task(
        "pong-ppo", "pong", 2_500_000, ">= 20", published=20.989, source=f"{_ZOO}, PongNoFrameskip-v4", length="L",
        barriers=50,  # some minutes each
    ),
    _leduc("mmd", "<= 0.15"),
    _leduc("rnad", _AS_GOOD),
    _leduc("nfsp"),
    _memory("ppo", "memory", ">= 0.95", 100_000),
    _memory("r2d2", "memory-r2d2", ">= 0.95", 50_000),
    _memory("ppo-feedforward", "memory", "<= 0.55", 100_000, memory=None, memory_size=None),
    _memory(
        "dqn-feedforward", "memory-r2d2", "<= 0.55", 50_000,
        kind="dqn", batch=128, memory=None, length=None, period=None, burn_in=None,
    ),
    _task(
        "speaker-listener-mappo", "speaker-listener", 10_000_000,  # 5M of two agents
        published=-10.68, source=_EPYMARL, length="L", points=(2_000_000, 4_000_000),
        peer=Peer.epymarl("mappo", steps=5_000_000),
    ),
    _spread("qmix"),
    _spread("vdn"),
    _spread("iql"),
    _tic_tac_toe("alphazero", 24_576),
    _tic_tac_toe("muzero", 49_152),
    _task("cartpole-muzero", "cartpole-muzero", 100_000, ">= 500"),
    *(_spread_by_turns(kind) for kind in _TURNS),
    _spread_ippo(),
    *(_team("speaker-listener", "speaker-listener", 4_000_000, kind) for kind in _TURNS[1:]),  # MAPPO is above: 4M is a point of its
    _speaker_listener_qmix(),
    *(_team("lbf", "lbf-coop", 4_000_000, kind, a2po={"share_weights": True}) for kind in _TURNS),  # as its authors do in StarCraft
    *(_team("smax-3m", "smax-3m", 3_000_000, kind, hatrpo={"clip": None}) for kind in _TURNS),
    *(_team("smax-2s3z", "smax-2s3z", 5_000_000, kind, hatrpo={"clip": None}) for kind in _TURNS),
    *(_team("cheetah2x3", "half-cheetah-2x3", 4_000_000, kind, "L") for kind in _TURNS),
    *(_team("ant2x4", "ant-2x4", 2_000_000, kind, "L") for kind in _TURNS),
    _task("overcooked-ppo", "overcooked", 5_000_000),  # 2.5M steps of two cooks
    _task("key-and-door-rnd", "key-and-door", 200_000, ">= 0.9"),
    _task("key-and-door-icm", "key-and-door-icm", 200_000),
    _without_curiosity(),
    _values_behind_the_door("key-and-door-dqn-rnd", ">= 0.8", curious=True),
    _values_behind_the_door("key-and-door-dqn", "<= 0.1", curious=False),
    *(_imitation(kind, episodes) for episodes in _EPISODES for kind in ("bc", "gail", "airl")),
    _mat("spread-mat", "simple-spread-mat", 3_000_000),
    _mat("spread-mat-dec", "simple-spread-mat-dec", 3_000_000, "mat_dec"),
    _mat("lbf-mat", "lbf-coop", 4_000_000),
    _mat("smax-3m-mat", "smax-3m", 3_000_000),
    _task("pendulum-mpo", "pendulum-mpo", 20_000, ">= -160", published=-156.995, source=f"{_ZOO}, of SAC"),
    _task("hopper-mpo", "hopper-mpo", 300_000, length="L"),  # beside hopper-sac
    _task("cartpole-vmpo", "cartpole-vmpo", 100_000, ">= 500", published=500.0, source=f"{_ZOO}, of PPO"),
    _lunar_lander_by_vmpo(),
    _task(
        "pong-vmpo", "pong-vmpo", 2_500_000, published=20.989, source=f"{_ZOO}, of PPO, PongNoFrameskip-v4", length="L",
        barriers=50,
    ),
    _task("cartpole-apex", "cartpole-apex", 50_000, ">= 500", published=500.0, source=_ZOO),
    _task("cartpole-m-iqn", "cartpole-m-iqn", 50_000, ">= 500", published=500.0, source=_ZOO),
    _task("cartpole-rainbow-iqn", "cartpole-rainbow-iqn", 50_000, ">= 500", published=500.0, source=_ZOO),
    _task("pendulum-apex", "pendulum-apex", 20_000, ">= -160", published=-156.995, source=_ZOO),
    *(_cartpole_gradient(kind) for kind in _GRADIENTS),
    *(_cartpole_values(kind) for kind in _VALUES),
    LearningTask(
        "pendulum-ddpg", _changed("pendulum-td3", kind="ddpg"), 20_000, ">= -160", published=-152.099, source=_ZOO
    ),
    LearningTask(
        "spread-maddpg",
        {**keys_of("simple-spread"), "algorithm": {"kind": "maddpg", "critic": "state", "rollout": 240}},
        3_000_000,
        length="L",
    ),
    LearningTask(
        "leduc-tabular-q", {**keys_of("leduc-dqn"), "algorithm": {"kind": "tabular_q"}}, 2_400_000, unit="episodes",
        score="exploitability",
    ),
    *(_spread(kind) for kind in ("qplex", "cw-qmix", "ow-qmix", "cds-qmix", "coma")),
    *(_lbf(kind) for kind in ("qmix", "vdn", "qplex", "cw_qmix", "ow_qmix", "cds_qmix", "coma")),
    *(_smax(kind) for kind in ("qmix", "vdn", "qplex", "cw_qmix", "ow_qmix", "cds_qmix")),
)  # fmt: skip
TASKS = {task.name: task for task in _ALL}
_GENERATIONS = 24  # of a game in self-play: each adds a point to the curve


def scenario(task: LearningTask, seed: int, *, share: float = 1.0) -> dict[str, Any]:
    """The scenario of one run. share: of the budget."""
    budget = int(task.budget * share)
    common: dict[str, Any] = {"checkpoints": {"iterations": task.barriers or 1_000_000}, "seed": seed}
    if task.at_end:
        once = {
            "generations": 1,
            "response": {task.unit: budget},
            "evaluation": {"episodes": 2, "exploitability": "off"},
        }
        return {**common, **once, **task.keys}
    if task.score == "exploitability":
        # No limit for the whole run: it would be reached before the last generation is measured.
        learners = 1 if "every_seat" in task.keys else 2
        limits = {"generations": _GENERATIONS, "response": {"episodes": budget // (learners * _GENERATIONS)}}
        return {**common, **limits, **task.keys}
    alone = {"scenario": "psro", "meta_solver": "last", "generations": 1, "response": {task.unit: budget}}
    evaluation: dict[str, Any] = {"episodes": 2, "exploitability": "off"}
    if task.points:
        every = max(1, int(task.points[0] * share) // task.keys["algorithm"]["batch"])  # a version for each batch
        evaluation["background"] = {"every": every, "episodes": task.episodes}
    return {**common, **alone, "evaluation": evaluation, **task.keys}
