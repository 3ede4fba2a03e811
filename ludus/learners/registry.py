"""Algorithms by name, and which of them serve an environment."""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

from ludus.core.errors import ScenarioError, either
from ludus.core.parts import load
from ludus.core.types import EnvSpec
from ludus.learners.base import Algorithm, ComputedOracle
from ludus.learners.spaces import NotServed

ALGORITHMS = {
    "a2c": "ludus.learners.on_policy.options:A2C",
    "ddpg": "ludus.learners.ddpg.options:DDPG",
    "dqn": "ludus.learners.dqn.options:DQN",
    "exact": "ludus.learners.exact.oracle:ExactBestResponse",
    "impala": "ludus.learners.on_policy.options:IMPALA",
    "iqn": "ludus.learners.dqn.options:IQN",
    "maddpg": "ludus.learners.maddpg.options:MADDPG",
    "mappo": "ludus.learners.ppo.options:MAPPO",
    "munchausen_dqn": "ludus.learners.dqn.options:MunchausenDQN",
    "mmd": "ludus.learners.mmd.options:MMD",
    "nfsp": "ludus.learners.nfsp.options:NFSP",
    "ppo": "ludus.learners.ppo.options:PPO",
    "qr_dqn": "ludus.learners.dqn.options:QRDQN",
    "qmix": "ludus.learners.qmix.options:QMIX",
    "r2d2": "ludus.learners.r2d2.options:R2D2",
    "rainbow": "ludus.learners.dqn.options:Rainbow",
    "reinforce": "ludus.learners.on_policy.options:Reinforce",
    "rnad": "ludus.learners.mmd.options:RNaD",
    "sac": "ludus.learners.sac.options:SAC",
    "sac_discrete": "ludus.learners.sac.options:SACDiscrete",
    "tabular_q": "ludus.learners.tabular_q.options:TabularQ",
    "td3": "ludus.learners.ddpg.options:TD3",
    "vdn": "ludus.learners.qmix.options:VDN",
}


def check_fits(algorithm: Algorithm | ComputedOracle, env: EnvSpec) -> None:
    """Raises ScenarioError if it cannot serve the environment, and says what would."""
    try:
        algorithm.check(env)
    except NotServed as error:
        raise ScenarioError(f"{error} {serving(env)}") from None


def serving(env: EnvSpec) -> str:
    """What to say where an algorithm cannot serve an environment: which registered ones serve the actions of all its agents."""
    wanted = {_kind(agent.action) for agent in env.agents}
    teams = any(len(env.agents_of(player)) > 1 for player in range(env.num_players))
    found = []
    for name in ALGORITHMS:
        algorithm: Any = load("algorithm", name, ALGORITHMS)
        needs_tree = getattr(algorithm, "needs_tree", False)
        wants_team = getattr(algorithm, "for_teams", False)  # it would learn without, but says more than there is
        serves = wanted <= set(algorithm.about.actions)
        if serves and not (needs_tree and env.enumeration is None) and not (wants_team and not teams):
            found.append(name)
    return (
        f"Use {either(found)} there."
        if found
        else "No registered algorithm serves these actions; wrap the environment."
    )


def _kind(action: Space[Any]) -> str:
    """As in `AlgorithmInfo.actions`."""
    if isinstance(action, Discrete):
        return "discrete"
    if isinstance(action, MultiDiscrete | MultiBinary):
        return "multi_discrete"
    return "box" if isinstance(action, Box) and action.dtype.kind == "f" else "other"
