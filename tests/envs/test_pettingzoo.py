"""`pettingzoo/…`: the contract, agreement with plain PettingZoo loops, and what is refused."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest
from pettingzoo import make as pettingzoo_make
from refusals import Refusal, check_refusals
from zoo_replay import all_at_once, one_by_one, play, returns_of

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.adapters.gymnasium import quiet
from ludus.envs.registry import list_envs, make_env
from ludus.testing import ledger
from ludus.testing.env import check_env

FAST: dict[str, dict[str, Any]] = {
    "connect_four_v3": {},
    "tictactoe_v3": {},
    "leduc_holdem_v4": {},
    "texas_holdem_v4": {},
    "texas_holdem_no_limit_v6": {},
    "rps_v2": {},
    "go_v5": {"board_size": 5},
    "knights_archers_zombies_v11": {"max_cycles": 15, "teams": "prefix"},
    "multiwalker_v9": {"max_cycles": 12, "teams": "one"},
}


@pytest.mark.parametrize("name", FAST)
def test_pettingzoo_satisfies_vector_env_contract(name: str) -> None:
    check_env(
        lambda n: make_env(f"pettingzoo/{name}", num_envs=n, **FAST[name]),
        num_envs=2,
        steps=30,
        team="split",
        early_rewards=True,
    )


def test_turn_based_games_satisfy_vector_env_contract_in_sequence() -> None:
    check_env(
        lambda n: make_env("pettingzoo/rps_v2", num_envs=n, api="aec", max_cycles=4),
        num_envs=2,
        steps=30,
        early_rewards=True,
    )


@pytest.mark.parametrize("game", ["connect_four", "tictactoe", "leduc_holdem", "texas_holdem", "texas_holdem_no_limit"])
def test_turns_agree_with_a_plain_loop(game: str) -> None:
    (name,) = (id for id in list_envs("pettingzoo") if id.rpartition("_v")[0] == f"pettingzoo/{game}")
    env = make_env(name, num_envs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its spaces
        reference = pettingzoo_make("aec", "classic/" + name.rpartition("/")[2].replace("_v", "-v"))
    for seed, played in play(env, episodes=8):
        totals = one_by_one(reference, seed, played)
        assert returns_of(env, totals) == pytest.approx(played.returns)
        assert sum(played.returns) == pytest.approx(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("classic/rps-v2", {}),
        ("butterfly/knights_archers_zombies-v11", {"max_cycles": 150, "spawn_delay": 2}),
        ("sisl/multiwalker-v9", {"max_cycles": 40}),
    ],
)
def test_simultaneous_moves_agree_with_a_plain_loop(name: str, options: dict[str, Any]) -> None:
    env = make_env(f"pettingzoo/{name}", num_envs=1, **options)
    reference = pettingzoo_make("parallel", name, **options)
    lengths = set()
    for seed, played in play(env, episodes=3):
        totals = all_at_once(reference, seed, played)
        assert returns_of(env, totals) == pytest.approx(played.returns)
        lengths.add(len(played.steps[-1]))
    assert lengths if name.startswith("classic") else lengths != {0}


def test_who_plays_and_for_what() -> None:
    four = make_env("pettingzoo/connect_four_v3", num_envs=1).spec
    assert [(a.name, a.player, a.role) for a in four.agents] == [("player_0", 0, "player"), ("player_1", 1, "player")]
    assert (four.zero_sum, four.utility_range, four.symmetry) == (True, ((-1, 1), (-1, 1)), ((0,), (1,)))
    assert four.agents[0].observation.shape == (6, 7, 2)
    rounds = make_env("pettingzoo/rps_v2", num_envs=1, max_cycles=5).spec
    assert (rounds.zero_sum, rounds.utility_range, rounds.symmetry) == (True, ((-5, 5), (-5, 5)), ((0, 1),))
    three = make_env("pettingzoo/texas_holdem_v4", num_envs=1, num_players=3).spec
    assert (three.num_players, three.zero_sum, three.utility_range[0]) == (3, False, (-np.inf, np.inf))
    mine = make_env("pettingzoo/connect_four_v3", num_envs=1, zero_sum=False, utility_range=[-2, 2]).spec
    assert (mine.zero_sum, mine.utility_range) == (False, ((-2, 2), (-2, 2)))


def test_the_most_that_poker_pays() -> None:
    """Both raise as long as they may; nobody can lose more."""
    for name, prefer, most in [("leduc_holdem_v4", [1, 0, 3], 7), ("texas_holdem_v4", [1, 0, 3], 25)]:
        env = make_env(f"pettingzoo/{name}", num_envs=1)
        timestep = env.reset(keys(1, "poker", count=1))
        seen = set()
        for _ in range(120):
            masks = [due.mask for due in timestep.due]
            actions = tuple(
                np.array([next(a for a in prefer if row[a]) for row in mask], np.int64)  # type: ignore[union-attr]
                for mask in masks
            )
            timestep = env.step(actions)
            seen |= set(np.abs(timestep.finished.returns).ravel().tolist())
        assert max(seen) == most == env.spec.utility_range[0][1]


def test_hidden_cards_stay_hidden() -> None:
    """Leduc: before the public card, an observation (36 bits) holds exactly one card of the hand, none on the table."""
    env = make_env("pettingzoo/leduc_holdem_v4", num_envs=16)
    timestep = env.reset(keys(2, "leduc", count=16))
    for due in timestep.due:
        assert (due.observation[:, :3].sum(axis=1) == 1).all()
        assert not due.observation[:, 3:6].any()


def test_boards_of_two_sizes_in_one_process() -> None:
    """PettingZoo's Go keeps its board's size in a global variable."""

    def first_moves(size: int, other: int | None) -> Any:
        env = make_env("pettingzoo/go_v5", num_envs=1, board_size=size)
        timestep = env.reset(keys(1, "go", count=1))
        if other is not None:
            make_env("pettingzoo/go_v5", num_envs=1, board_size=other)
        for move in range(4):
            p = move % 2
            actions = [np.empty(0, np.int64), np.empty(0, np.int64)]
            actions[p] = np.array([7 + move])
            timestep = env.step(tuple(actions))
        return timestep.due[0].observation.copy(), timestep.due[0].mask

    for left, right in zip(first_moves(5, None), first_moves(5, 9), strict=True):
        assert np.array_equal(left, right)


def test_rendered_environments_are_rendered() -> None:
    env = make_env("pettingzoo/cooperative_pong_v6", num_envs=1, max_cycles=20)
    timestep = env.reset(keys(1, "pong", count=1))
    first = timestep.due[0].observation.copy()
    timestep = env.step((np.ones(1, np.int64), np.ones(1, np.int64)))
    assert first.any()
    assert (first != timestep.due[0].observation).any()
    board = make_env("pettingzoo/tictactoe_v3", num_envs=1, render=True)
    board.reset(keys(1, "board", count=1))
    assert board.render(0).shape[2] == 3  # type: ignore[attr-defined]


REFUSED: list[Refusal] = [
    ("connect_fore_v3", {}, UnknownName, "did you mean 'connect_four_v3'"),
    ("connect_four_v2", {}, UnknownName, "did you mean 'connect_four_v3'"),
    ("gin_rummy_v4", {}, UnknownName, "openspiel/gin_rummy"),
    ("simple_spread_v3", {}, UnknownName, "mpe2/simple_spread_v3"),
    ("connect_four_v3", {"api": "parallel"}, ConfigError, "no such interface"),
    ("connect_four_v3", {"api": "turns"}, ConfigError, "allowed: auto, aec, parallel"),
    ("rps_v2", {"max_cycle": 3}, ConfigError, "no option 'max_cycle'; did you mean 'max_cycles'"),
    ("rps_v2", {"teems": "one"}, ConfigError, "did you mean 'teams'"),
    ("rps_v2", {"num_actions": 4}, EnvError, "must be an odd number"),
    ("rps_v2", {"state": True}, EnvError, "has no state"),
    ("rps_v2", {"zero_sum": "yes"}, ConfigError, "expected true or false"),
    ("multiwalker_v9", {"state": True, "terminate_on_fall": False}, ConfigError, "Give remove_on_fall=false, or leave"),
    ("pong_v3", {"noop_max": -1}, ConfigError, "noop_max=-1 was given for pettingzoo/pong_v3; expected a whole number"),
    ("pong_v3", {"repeat_action_probability": 1}, ConfigError, "repeat_action_probability=1 was given .* 0 to below 1"),
    ("rps_v2", {"noop_max": 3}, ConfigError, "no option 'noop_max'"),
    ("rps_v2", {"determinism": "some"}, ConfigError, "allowed: environment, vector, none"),
]


def test_pettingzoo_rejects_invalid_ids_and_options() -> None:
    check_refusals(lambda name, **options: make_env(f"pettingzoo/{name}", num_envs=1, **options), REFUSED)


def walk(env: Any) -> None:
    """Random steps to the end, each with a look at the state."""
    env.reset(seed=3)
    rng = np.random.default_rng(3)
    while env.agents:
        env.step({agent: rng.uniform(-1, 1, 4).astype(np.float32) for agent in env.agents})
        env.state()


def test_multiwalker_cannot_tell_its_state_without_the_walkers_that_fell() -> None:
    """Why Ludus refuses it. If this fails, PettingZoo has changed, and the refusal may go."""
    with quiet():  # Box2D's bindings warn
        env = pettingzoo_make("parallel", "sisl/multiwalker-v9", terminate_on_fall=False)
    with pytest.raises(AttributeError, match="has no attribute 'position'"):
        walk(env)


def needs(name: str) -> str | None:
    """The package that an environment lacks here."""
    spec_of = {"shimmy": ["hanabi_v5"], "multi_agent_ale_py": ATARI}
    for package, names in spec_of.items():
        if name in names and importlib.util.find_spec(package) is None:
            return package
    return None


_ALL = (  # of PettingZoo 1.27; more, or others, are to be looked at
    "atari/basketball_pong_v3 atari/boxing_v2 atari/combat_plane_v2 atari/combat_tank_v2 atari/double_dunk_v3 "
    "atari/entombed_competitive_v3 atari/entombed_cooperative_v3 atari/flag_capture_v2 atari/foozpong_v3 "
    "atari/ice_hockey_v2 atari/joust_v3 atari/mario_bros_v3 atari/maze_craze_v3 atari/othello_v3 atari/pong_v3 "
    "atari/quadrapong_v4 atari/space_invaders_v2 atari/space_war_v2 atari/surround_v2 atari/tennis_v3 "
    "atari/video_checkers_v4 atari/volleyball_pong_v3 atari/warlords_v3 atari/wizard_of_wor_v3 "
    "butterfly/cooperative_pong_v6 butterfly/knights_archers_zombies_v11 butterfly/pistonball_v6 classic/chess_v6 "
    "classic/connect_four_v3 classic/go_v5 classic/hanabi_v5 classic/leduc_holdem_v4 classic/rps_v2 "
    "classic/texas_holdem_no_limit_v6 classic/texas_holdem_v4 classic/tictactoe_v3 sisl/multiwalker_v9 "
    "sisl/pursuit_v5"
)
ALL = _ALL.split()
ATARI = [id.removeprefix("atari/") for id in ALL if id.startswith("atari/")]
CHECKED_ATARI = {"pong_v3"}


def test_pettingzoo_lists_its_environments() -> None:
    assert list_envs("pettingzoo") == sorted(f"pettingzoo/{id.rpartition('/')[2]}" for id in ALL)


def refused(name: str) -> bool:
    """Whether its package is not here, which is then said."""
    package = needs(name)
    if package is not None:
        with pytest.raises(ConfigError, match=f"needs {package}"):
            make_env(f"pettingzoo/{name}", num_envs=1)
    return package is not None


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(ATARI) - set(CHECKED_ATARI)))
def test_other_atari_environments_replay_to_the_bit(name: str) -> None:
    """And their rewards and ends are counted. A reset takes a third of a second."""
    if refused(name):
        return
    env, seeds = make_env(f"pettingzoo/{name}", num_envs=1, obs_type="ram"), keys(1, "atari", count=1)
    counts = ledger.Ledger(env.spec, 1, team="split", early_rewards=True)
    once = ledger.play(env, seeds, 20, watch=counts.see)
    ledger.same(once, ledger.play(env, seeds, 20), "a second reset")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted({id.rpartition("/")[2] for id in ALL} - FAST.keys() - set(ATARI) | CHECKED_ATARI)
)
def test_slow_pettingzoo_environments_satisfy_vector_env_contract(name: str) -> None:
    if refused(name):
        return
    id, options = f"pettingzoo/{name}", {"obs_type": "ram"} if name in ATARI else dict[str, Any]()
    if name == "pistonball_v6":
        options["n_pistons"] = 5
    check_env(lambda n: make_env(id, num_envs=n, **options), num_envs=2, steps=20, team="split", early_rewards=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"noop_max": 30}, {"repeat_action_probability": 0.25}, {"noop_max": 30, "api": "aec"}]
)
def test_atari_has_chance_only_if_it_is_asked_for(options: dict[str, Any]) -> None:
    """PettingZoo's own has none: if the first case fails, it has changed, and its page is no longer true. No-ops do not count as steps."""
    if refused("pong_v3"):
        return
    env = make_env("pettingzoo/pong_v3", num_envs=1, obs_type="ram", max_cycles=30, **options)
    frames: list[list[bytes]] = []
    for seed in (1, 1, 2):
        timestep, seen = env.reset(keys(seed, "atari", count=1), episodes=1), []
        while not len(timestep.finished.environment):
            seen += [due.observation.tobytes() for due in timestep.due if len(due.slot)]
            timestep = env.step(tuple(np.full(len(due.slot), len(seen) // 14) for due in timestep.due))
        frames.append(seen)
    env.close()
    one, again, other = frames
    assert len(one) == 60
    assert one == again
    assert (one == other) == (not options)
    assert (one[0] == other[0]) == ("noop_max" not in options)
