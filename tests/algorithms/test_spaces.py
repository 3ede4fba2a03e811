"""What algorithms ask of spaces and utilities."""

import re
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Text

from ludus.algorithms.common.base import AlgorithmInfo, LearnerContext
from ludus.algorithms.common.registry import ALGORITHMS, check_fits, serving
from ludus.algorithms.common.space_checks import box, discrete, reward_scale
from ludus.algorithms.ddpg.config import DDPG
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.exact.oracle import ExactBestResponse
from ludus.algorithms.ppo.config import PPO
from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.core.errors import ScenarioError
from ludus.core.parts import resolve_name
from ludus.policies.heads import head_of
from ludus.policies.registry import build_policy
from ludus.policies.specs import action_config, float32_bounds


def test_entries_and_actions(tensors, enumerated):
    assert discrete(tensors, (0, 1), algorithm="x") == (4, 3)
    assert discrete(enumerated, (1,), algorithm="x") == (4, 3)


def test_agents_that_cannot_share_a_network(tensors):
    first, second = tensors.agents
    other = replace(second, observation=Box(-1, 1, (5,), np.float32))
    with pytest.raises(ScenarioError, match="one shape of observations"):
        discrete(replace(tensors, agents=(first, other)), (0, 1), algorithm="x")
    with pytest.raises(ScenarioError, match="one shape of observations"):
        discrete(replace(tensors, agents=(first, replace(second, action=Discrete(9)))), (0, 1), algorithm="x")
    with pytest.raises(ScenarioError, match=r"seats \(5,\) of made up, in which no agent plays"):
        discrete(tensors, (5,), algorithm="x")


@pytest.mark.parametrize("algorithm", [PPO(), DQN()], ids=["ppo", "dqn"])
def test_several_roles_want_several_networks(algorithm, tensors):
    keeper, striker = (replace(tensors.agents[0], name=role, role=role) for role in ("keeper", "striker"))
    team = replace(tensors, agents=(keeper, striker, tensors.agents[1]))
    with pytest.raises(
        ScenarioError, match=r"they have the roles \['keeper', 'striker'\]. Put the wrapper agent_ids around it"
    ):
        algorithm.check(team)


def test_returns_are_scaled_by_the_largest_utility(tensors):
    assert reward_scale(tensors, (0,), enabled=True) == 0.5
    assert reward_scale(tensors, (0,), enabled=False) == 1.0
    endless = replace(tensors, utility_range=((-np.inf, np.inf),) * 2)
    assert reward_scale(endless, (0,), enabled=True) == 1.0


def boxed(env, low=-1.0, high=2.0):
    action = Box(low, high, (2, 3), np.float32)
    return replace(env, agents=tuple(replace(agent, action=action) for agent in env.agents))


def test_continuous_actions(tensors, enumerated):
    found = box(boxed(tensors), (0, 1), algorithm="x")
    assert (found.inputs, found.size, found.shape) == ((4,), 6, (2, 3))
    assert found.low.tolist() == [-1.0] * 6
    assert found.high.tolist() == [2.0] * 6
    assert found.low.dtype == np.float32
    with pytest.raises(ScenarioError, match="x needs actions with finite bounds"):
        box(boxed(tensors, high=np.inf), (0,), algorithm="x")
    with pytest.raises(ScenarioError, match=r"x needs continuous actions .* made up has"):
        box(tensors, (0,), algorithm="x")
    with pytest.raises(ScenarioError, match="x needs continuous actions"):
        box(enumerated, (0,), algorithm="x")
    bits = replace(tensors, agents=tuple(replace(agent, action=MultiBinary(3)) for agent in tensors.agents))
    for env in (boxed(tensors), bits):
        with pytest.raises(ScenarioError, match="x needs discrete actions"):
            discrete(env, (0,), algorithm="x")


def test_bounds_are_those_of_float32_within():
    """0.1 and -0.1 lie within a float32 of theirs that lies beyond; 0.5 is one itself, and has no need to give way."""
    space = Box(np.array([-0.1, -0.5, -np.inf]), np.array([0.1, 0.5, 1e308]), dtype=np.float64)
    low, high = float32_bounds(space)
    assert low.dtype == high.dtype == np.float32
    assert low.tolist() == [-0.09999999403953552, -0.5, -np.inf]
    assert high.tolist() == [0.09999999403953552, 0.5, 3.4028234663852886e38]


def test_actions_at_the_bounds_are_in_a_box_of_float64(tensors):
    narrow = Box(-0.1, 0.1, (2,), np.float64)
    env = replace(tensors, agents=tuple(replace(agent, action=narrow) for agent in tensors.agents))
    far, noise = np.float32([[50, -50, 0, 0]]), np.full((1, 2), 0.5, np.float32)
    for squash in (False, True):
        (played,), _ = head_of(action_config(narrow, squash=squash)).act(far, None, noise, greedy=False)
        assert narrow.contains(played)
    spec = DDPG(hidden=(4,)).policy(env, (0,))
    weights = DDPG(hidden=(4,)).learner(LearnerContext(env, (0,), 0)).weights()
    loud = build_policy(spec, {**weights, "noise": np.float32([1e6]), "warm_up": np.float32([0])})
    seen = np.zeros((1, 4), np.float32)
    for level in (0.0, 0.4, 0.6, 1 - 2.0**-24):
        assert narrow.contains(loud.act(seen, None, None, np.full((1, 2), level, np.float32)).action[0])


BOX = "Use a2c, apex_ddpg, ddpg, impala, mpo, ppo, reinforce, sac, td3 or vmpo there."


def test_suggested_algorithm_supports_the_action_space(tensors, enumerated):
    pendulum = boxed(tensors)
    assert serving(pendulum) == BOX
    several = [replace(agent, action=MultiDiscrete([2, 3])) for agent in tensors.agents]
    assert serving(replace(tensors, agents=tuple(several))) == "Use a2c, impala, ppo, reinforce or vmpo there."
    mixed = (pendulum.agents[0], several[1])
    assert serving(replace(tensors, agents=mixed)) == "Use a2c, impala, ppo, reinforce or vmpo there."
    words = replace(tensors.agents[0], action=Text(3))
    assert serving(replace(tensors, agents=(words,))).startswith("No registered algorithm serves")
    for name, what in (("sac_discrete", (True, True)), ("exact", (False, True)), ("sac", (False, False))):
        said = tuple(name in re.split(r"[ ,.]+", serving(env)) for env in (tensors, enumerated))
        assert said == what, name
    for refused in (ExactBestResponse(), TabularQ(), DQN()):
        with pytest.raises(ScenarioError, match=BOX):
            check_fits(refused, pendulum)


def test_every_algorithm_says_what_it_is():
    for name in ALGORITHMS:
        cls = resolve_name("algorithm", name, ALGORITHMS)
        assert cls.__name__.lower() == {"exact": "exactbestresponse"}.get(name, name.replace("_", ""))
        about = cls.about
        assert isinstance(about, AlgorithmInfo), name
        assert about.actions, name
        assert about.paper, name


ACTIONS = {
    "discrete": [Discrete(3)],
    "multi_discrete": [MultiDiscrete([3, 2]), MultiBinary(3)],
    "box": [Box(-1.0, 2.0, (2,), np.float32)],
    "other": [Text(3), Box(0, 9, (2,), np.int32)],
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_serves_the_actions_that_it_names_and_no_others(name, tensors, enumerated):
    """What it cannot serve is said before it asks for a state, which compiled games have not."""
    of_two = {"gamma": 1.0, "rollout_unit": "episodes"} if name == "muzero" else {}
    algorithm = resolve_name("algorithm", name, ALGORITHMS)(**of_two)
    if name == "alphazero":  # no game of these has rules: tests/algorithms/test_alphazero.py
        with pytest.raises(ScenarioError, match="needs rules that it can step, and there are none for made up"):
            algorithm.check(tensors)
        return
    served, for_teams = algorithm.about.actions, getattr(algorithm, "for_teams", False)
    if "discrete" in served and not for_teams and name != "mappo":
        algorithm.check(enumerated)
    else:
        with pytest.raises(ScenarioError, match=r"needs continuous actions|act together|sees the environment's state"):
            algorithm.check(enumerated)
    if getattr(algorithm, "needs_tree", False):
        with pytest.raises(ScenarioError, match="needs a game that is compiled to a tree"):
            algorithm.check(tensors)
        return
    with_state = replace(tensors, state=Box(-np.inf, np.inf, (5,), np.float32))
    for kind, spaces in ACTIONS.items():
        for space in spaces:
            agents = tuple(replace(agent, action=space) for agent in tensors.agents)
            if kind in served:
                algorithm.check(replace(with_state, agents=agents))
                continue
            needs = (
                rf"{type(algorithm).__name__} (needs (discrete|continuous) actions|cannot play made up: .*action space)"
            )
            with pytest.raises(ScenarioError, match=needs):
                algorithm.check(replace(tensors, agents=agents))
    if "box" in served:
        endless = boxed(with_state, low=-np.inf, high=1.0)
        if algorithm.about.data == "on-policy":
            algorithm.check(endless)
        else:
            with pytest.raises(ScenarioError, match=f"{type(algorithm).__name__} needs actions with finite bounds"):
                algorithm.check(endless)
