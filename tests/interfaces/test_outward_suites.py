"""The checks of Gymnasium, Stable-Baselines3 and PettingZoo, as they are, on environments of many kinds."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import ludus
from tests.interfaces.outward_games import api_test, parallel_api_test, parallel_seed_test, seed_test

KINDS: list[tuple[str, int | str, dict[str, Any]]] = [
    ("openspiel/kuhn_poker", 0, {}),
    ("openspiel/kuhn_poker(players=3)", 2, {}),
    ("openspiel/leduc_poker", 1, {}),
    ("openspiel/matching_pennies_3p", 0, {}),
    ("openspiel/connect_four", 0, {}),
    ("openspiel/goofspiel(num_cards=4)", 0, {"tree": "off"}),
    ("openspiel/backgammon", 0, {}),
    ("mpe2/simple_tag_v3", "agent_0", {}),
    ("mpe2/simple_tag_v3", 0, {"teams": "prefix"}),
    ("mpe2/simple_speaker_listener_v4", 1, {}),
    ("pettingzoo/rps_v2", 0, {}),
    ("pettingzoo/tictactoe_v3", 0, {}),
    ("gymnasium/CartPole-v1", 0, {}),
    ("gymnasium/Pendulum-v1", 0, {}),
    ("football/academy_3_vs_1_with_keeper", 0, {}),
    ("pgx/tic_tac_toe", 0, {}),
]


@pytest.mark.long  # compiles a game of JAX four times
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("env", "player", "options"), KINDS)
def test_the_checks_of_other_packages_pass(env: str, player: int | str, options: dict[str, Any]) -> None:
    check_env(ludus.gymnasium_env(env, player=player, **options), skip_render_check=True)
    sb3_check_env(ludus.gymnasium_env(env, player=player, **options), skip_render_check=True)
    api_test(ludus.pettingzoo_env(env, **options), num_cycles=20)
    seed_test(lambda: ludus.pettingzoo_env(env, **options), num_cycles=10)
    parallel_api_test(ludus.pettingzoo_env(env, api="parallel", **options), num_cycles=20)
    parallel_seed_test(lambda: ludus.pettingzoo_env(env, api="parallel", **options), num_cycles=10)
