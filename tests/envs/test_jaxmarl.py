"""`jaxmarl/…`: the contract, battles with dead units, teams, shared kitchens, turns, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from installed import require

pytest.importorskip("jax")

import jax
from jax_games import check_form, check_on_a_device
from last_steps import check_last_step
from refusals import Refusal, check_refusals

from ludus.contrib.envs.functional.vector import JaxVectorEnv
from ludus.core.errors import ConfigError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.registry import list_envs, make_env, package_faults
from ludus.testing.env import check_env

require("jaxmarl")

# The packages' own code is not up to date with JAX's types, which JAX says when it compiles it.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:scatter inputs"),
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype"),
]

SPREAD, BATTLE, TAG = "jaxmarl/MPE_simple_spread_v3", "jaxmarl/HeuristicEnemySMAX", "jaxmarl/MPE_simple_tag_v3"
SEEDS = keys(1, "jaxmarl", count=2)
# The same options in several tests: what was compiled for one serves the others.
SHORT_BATTLE: dict[str, Any] = {"scenario": "3m", "state": True, "max_steps": 8}
SHORT_TAG: dict[str, Any] = {"teams": "prefix", "max_steps": 8}
ALONE = ("jaxmarl/hanabi", "jaxmarl/coin_game")  # played without neighbours: compiling takes long
KITCHEN: dict[str, Any] = {"layout": "cramped_room", "max_steps": 30, "teams": "one"}


def made(id: str, num_envs: int = 2, **options: Any) -> JaxVectorEnv:
    env = make_env(id, num_envs=num_envs, **options)
    assert isinstance(env, JaxVectorEnv)
    return env


@pytest.mark.long
def test_spread_is_shaped_as_mpe2s() -> None:
    env, other = made(SPREAD, teams="one", max_steps=2), make_env("mpe2/simple_spread_v3", num_envs=2, teams="one")
    ours, theirs = env.spec.agents[0], other.spec.agents[0]
    assert len(env.spec.agents) == len(other.spec.agents) == 3
    assert ours.observation.shape == theirs.observation.shape == (18,)
    assert ours.action == theirs.action
    assert env.spec.determinism == "vector"
    timestep = env.reset(SEEDS)
    for _ in range(3):  # JaxMARL looks at the number of steps before it counts one
        assert timestep.due[0].slot.tolist() == list(range(6))
        timestep = env.step((np.zeros(6, int),))
    assert timestep.finished.terminated.tolist() == [False, False]  # it only ran out of time
    assert timestep.finished.length.tolist() == [3, 3]


def test_kitchens_and_maps_are_named() -> None:
    env = made("jaxmarl/overcooked", layout="cramped_room", teams="one")
    assert [agent.action.n for agent in env.spec.agents] == [6, 6]
    assert env.spec.agents[0].observation.shape == (4, 5, 26)
    team = made(BATTLE, scenario="3m")
    assert [agent.name for agent in team.spec.agents] == ["ally_0", "ally_1", "ally_2"]
    assert team.spec.utility_range == ((0.0, 6.0),)
    both = made("jaxmarl/SMAX", scenario="2s3z", use_self_play_reward=True, state=True, zero_sum=True)
    assert [len(both.spec.agents_of(p)) for p in range(2)] == [5, 5]
    assert both.spec.utility_range == ((-5.0, 5.0), (-5.0, 5.0))
    assert made("jaxmarl/SMAX", scenario="2s3z", teams="one").spec.utility_range == ((-np.inf, np.inf),)
    assert both.spec.state is not None
    assert both.spec.state.shape == (120,)


REFUSED: list[Refusal] = [
    ("jaxmarl/SMAXX", {}, UnknownName, "did you mean 'SMAX'"),
    (BATTLE, {"scenario": "3n"}, UnknownName, "unknown map '3n'.*3m"),
    (BATTLE, {"max_stepps": 3}, ConfigError, "unknown option 'max_stepps'.*did you mean 'max_steps'"),
    ("jaxmarl/overcooked", {"layout": "crampd_room"}, UnknownName, "did you mean 'cramped_room'"),
    ("jaxmarl/overcooked", {"layouts": 3}, ConfigError, "cannot be made with.*layouts"),
    ("jaxmarl/overcooked", {"shaped_rewards": "all"}, ConfigError, "expected a number"),
    (SPREAD, {"shaped_rewards": 1}, ConfigError, "has none"),
    (SPREAD, {"package_rewards": True}, ConfigError, "the rewards of .* are JaxMARL's"),
    (TAG, {"package_rewards": "own"}, ConfigError, "expected true or false"),
    (SPREAD, {"num_agnets": 5}, ConfigError, "unknown option 'num_agnets'.*did you mean 'num_agents'"),
    ("jaxmarl/storm", {}, ConfigError, "no observations of their own"),
    ("jaxmarl/ant_4x2", {}, ConfigError, "given it up with Brax.*mamujoco"),
    ("jaxmarl/JaxRobotarium_rware", {}, ConfigError, "needs jaxrobotarium"),
    (SPREAD, {"state": True}, ConfigError, "no common state.*joint_state"),
]


def test_jaxmarl_rejects_invalid_ids_and_options() -> None:
    check_refusals(partial(make_env, num_envs=1), REFUSED)
    assert {SPREAD, BATTLE, "jaxmarl/hanabi"} <= set(list_envs("jaxmarl"))
    (text,) = package_faults("jaxmarl/MPE_simple_facmac_3a_v1", {})
    assert "a script of the package moves the prey" in text
    assert package_faults(TAG, {}) == []


# ---------------------------------------------------------------------------------------------- compiled for many seconds


def test_a_battle() -> None:
    """Dead units are asked on, and can do nothing. Each unit is paid its third of what the team earns, when it earns it."""
    env = made(BATTLE, num_envs=4, scenario="3m", state=True)
    timestep, died, won, lost = env.reset(keys(1, "battle", count=4)), 0, 0, 0
    rng = np.random.default_rng(0)
    paid = np.zeros((4, 3))
    for _ in range(300):
        due = timestep.due[0]
        assert due.mask is not None
        assert due.mask.shape == (len(due.slot), 8)  # four directions, stop, three to shoot at
        assert len(due.slot) == 12
        died += int((due.mask.sum(axis=1) == 1).sum())
        shoots = due.mask[:, 5:].any(axis=1)  # allies stand still and shoot what comes
        target = 5 + (due.mask[:, 5:] * rng.random((len(due.slot), 1))).argmax(axis=1)
        timestep = env.step((np.where(shoots, target, 4),))
        ended, due = timestep.ended[0], timestep.due[0]
        going = ~due.first
        paid.reshape(-1)[due.slot[going]] += due.reward[going]
        paid.reshape(-1)[ended.slot] += ended.reward
        for e, returns, terminated in zip(
            timestep.finished.environment, timestep.finished.returns[:, 0], timestep.finished.terminated, strict=True
        ):
            np.testing.assert_allclose(paid[e], returns / 3, atol=1e-5)
            paid[e] = 0
            won, lost = won + (returns > 5.99), lost + (returns <= 3)
            assert terminated or returns < 5
        assert ended.terminated.all() or not timestep.finished.terminated.all()
    assert died > 0
    assert won + lost > 5
    assert won > 0


def test_time_is_up() -> None:
    env = made(BATTLE, **SHORT_BATTLE)
    timestep = env.reset(SEEDS)
    for _ in range(9):  # the number of steps is looked at before it is counted
        assert not len(timestep.finished.environment)
        timestep = env.step((np.full(6, 4),))
    assert timestep.finished.terminated.tolist() == [False, False]
    assert timestep.ended[0].slot.tolist() == list(range(6))


def long(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("jaxmarl/MPE_simple_speaker_listener_v4", {"teams": "one"}),  # spaces that differ
        (TAG, SHORT_TAG),
        (BATTLE, SHORT_BATTLE),
        long("jaxmarl/SMAX", {"scenario": "5m_vs_6m", "max_steps": 20}),  # sides that differ
        ("jaxmarl/overcooked", KITCHEN),
        long("jaxmarl/hanabi", {"teams": "one"}),
        long("jaxmarl/switch_riddle", {"teams": "one"}),
        long("jaxmarl/coin_game", {}),
    ],
)
def test_jaxmarl_environments_satisfy_vector_env_contract(id: str, options: dict[str, Any]) -> None:
    early = "hanabi" in id  # all are paid for what the first one does
    num_envs = 1 if id in ALONE else 2
    check_env(lambda n: made(id, n, **options), num_envs=num_envs, steps=32, team="split", early_rewards=early)


def test_on_a_device_it_is_the_same() -> None:
    assert check_on_a_device(made(TAG, **SHORT_TAG), "cpu", steps=20) >= 4


def test_steps_on_the_way_may_be_paid() -> None:
    """A cook who takes an onion and puts it into the pot is paid 3 for that."""
    total = []
    for share in (0, 0.5):
        env = made("jaxmarl/overcooked", **KITCHEN, **({"shaped_rewards": share} if share else {}))
        timestep, rng, paid = env.reset(SEEDS, episodes=20), np.random.default_rng(0), 0.0
        while len(timestep.due[0].slot):
            timestep = env.step((rng.integers(0, 6, len(timestep.due[0].slot)),))
            paid += float(timestep.finished.returns.sum())
        total.append(paid)
    assert total[0] % 20 == 0  # a soup pays 20 to each
    assert total[1] > total[0]
    assert (total[1] - total[0]) % 0.5 == 0


@pytest.mark.parametrize("own", [False, True])
def test_prey_pays_for_the_touches_of_itself(own: bool) -> None:
    """JaxMARL 0.2.0 itself charges all prey for the touches of the last one: that is its fault, which an option brings back."""
    options = {"package_rewards": True} if own else {}
    chase: Any = made(TAG, 1, num_good_agents=2, **options)._program.env
    _, state = chase._env.reset(jax.random.PRNGKey(0))
    apart = np.stack([np.linspace(-0.8, 0.8, len(state.p_pos)), np.linspace(-0.5, 0.5, len(state.p_pos))], axis=-1)
    for touched, fault in ((0, [0, 0]), (1, [-10, -10])):
        place = apart.copy()
        place[0] = place[3 + touched]
        paid = chase._env.rewards(state.replace(p_pos=jax.numpy.asarray(place)))
        assert [float(paid[agent]) for agent in chase._env.adversaries] == [10, 10, 10]
        prey = fault if own else [-10 * (touched == 0), -10 * (touched == 1)]
        assert [float(paid[agent]) for agent in chase._env.good_agents] == prey


@pytest.mark.long
def test_robots_that_arrive_or_collide_in_the_last_permitted_step_are_at_their_end() -> None:
    check_last_step("jaxmarl/jaxnav", "max_steps", most=400, num_agents=2)


@pytest.mark.long
def test_hanabis_agents_take_turns() -> None:
    env = made("jaxmarl/hanabi", num_envs=1, teams="one")
    timestep = env.reset(SEEDS[:1])
    for _ in range(6):  # whoever ends the game, somebody begins the next
        assert sum(len(due.slot) for due in timestep.due) == 1
        timestep = env.step(tuple(due.mask.argmax(axis=1) for due in timestep.due if due.mask is not None))


@pytest.mark.long
def test_every_environment_has_the_form_that_it_announces(subtests: pytest.Subtests) -> None:
    for id in list_envs("jaxmarl"):
        with subtests.test(id):
            check_form(made(id))
