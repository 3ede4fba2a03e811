"""Nothing leaks: worlds that a seat cannot tell apart look the same to it, byte by byte, and so does the public's view."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from play_games import AnyGame, openspiel, people

from ludus.apps.play.game_sessions import GameSession, MoveRequest
from ludus.apps.play.views import _as_picture, _planes, hides_state
from ludus.core.types import AgentSpec, EnvSpec
from ludus.envs.config import Environment

_GAMES = 16
HIDDEN = {
    "kuhn_poker": 3,
    "kuhn_poker(players=3)": 3,
    "leduc_poker": 3,
    "universal_poker": 3,
    "liars_dice": 3,
    "goofspiel(num_cards=3,imp_info=true,points_order=descending)": 3,
    "phantom_ttt": 4,
    "dark_hex(board_size=2)": 4,
    "turn_based_simultaneous_game(game=matrix_rps())": 2,
    "tiny_bridge_2p": 2,
}
"""Name -> moves after which a game is left."""
QUICK = ("leduc_poker", "dark_hex(board_size=2)")


def worlds(game: AnyGame, moves: int) -> Iterator[tuple[Any, GameSession]]:
    """(state, table) again and again, of games that are different."""
    for seed in range(_GAMES):
        table, chance = people(game, seed=seed), random.Random(seed)
        for _ in range(moves):
            if table.view(0)["over"]:
                break
            yield table._episode.state(len(table._episode.episode.steps)), table
            for player in table.view(None)["waiting_for"]:
                view = table.view(player)
                legal = [one["action"] for one in view["frame"]["decisions"][0]["legal"]]
                order = MoveRequest(player=player, agent=0, action=chance.choice(legal[:3]))
                table.move(player, [order], view["frame"]["number"])
        table.close()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in HIDDEN]
)
def test_a_seat_sees_no_more_than_its_information_state(name: str) -> None:
    game = openspiel(name)
    seen: dict[tuple[int, str], set[str]] = defaultdict(set)
    alike: dict[tuple[int, str], set[str]] = defaultdict(set)
    for state, table in worlds(game, HIDDEN[name]):
        for player in range(game.spec.num_players):
            turn = "its turn" if player in table.view(player)["waiting_for"] else ""  # which everybody is told
            key = player, state.information_state_string(player) + turn
            seen[key].add(json.dumps(table.view(player), sort_keys=True))
            alike[key].add(str(state))
    assert max(map(len, alike.values())) > 1  # or this shows nothing
    for key, views in seen.items():
        assert len(views) == 1, (key, views)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker", "liars_dice", "universal_poker"])
def test_who_only_watches_sees_no_more_than_what_was_done(name: str) -> None:
    """The public's view depends on the moves and on what lies open."""
    seen: dict[str, set[str]] = defaultdict(set)
    for state, table in worlds(openspiel(name), 3):
        view = table.view(None)
        made = [move.action for move in state.full_history() if move.player >= 0]
        seen[f"{made} {view['frame']['board']['table']}"].add(json.dumps(view, sort_keys=True))
    assert all(len(views) == 1 for views in seen.values())


def test_hidden_moves_do_not_show_by_being_counted() -> None:
    """In dark hex one who stumbles over a stone moves again, which the other does not notice."""
    table = people(openspiel("dark_hex(board_size=3)"), seed=0)
    table.move(0, [MoveRequest(player=0, agent=0, action=4)], 0)
    before = table.view(0)
    table.move(1, [MoveRequest(player=1, agent=0, action=4)], 0)  # a stone of player 0's
    assert table.view(0) == before
    assert table.view(None)["frame"]["number"] == 0
    assert table.view(1)["frame"]["number"] == 1
    assert table.view(1)["frame"]["last"] == [{"player": 1, "agent": 0, "label": "b2"}]
    assert [table.view(viewer)["moves"] for viewer in (0, 1, None)] == [
        [{"number": 1, "player": 0, "agent": 0, "label": "b2"}],
        [{"number": 1, "player": 1, "agent": 0, "label": "b2"}],
        [],
    ]
    table._failed = "it was stopped"
    table._publish()  # the last frame shows all
    assert [(move["number"], move["player"]) for move in table.view(0)["moves"]] == [(1, 0), (2, 1)]
    assert [(move["number"], move["player"]) for move in table.view(None)["moves"]] == [(2, 0), (2, 1)]
    table.close()


def test_a_simultaneous_choice_is_not_seen_before_all_have_chosen() -> None:
    views = []
    for action in (0, 2):
        table = people(openspiel("matrix_rps"), seed=0)
        table.move(0, [MoveRequest(player=0, agent=0, action=action)], 0)
        views.append((table.view(1), table.view(None)))
        assert table.view(1)["waiting_for"] == [1]
        assert table.view(0)["frame"]["decisions"] == []
        table.close()
    assert views[0] == views[1]


def test_other_games_of_several_players_show_a_seat_what_it_observes() -> None:
    """simple_adversary's picture shows everybody the landmark that the adversary is to find."""
    env = Environment(
        id="mpe2/simple_adversary_v3",
        num_envs=1,
        options={"teams": {"a": ["adversary_0"], "b": ["agent_0", "agent_1"]}},
    )
    table = people(AnyGame(env), seed=3)
    for player, agents in ((0, 1), (1, 2)):
        board = table.view(player)["frame"]["board"]
        assert board["kind"] == "text"
        assert board["text"].count("observes") == agents
    assert table.view(None)["frame"]["board"]["kind"] == "text"
    assert "hides" in table.view(None)["frame"]["board"]["text"]
    table.close()


@pytest.mark.parametrize(
    ("id", "players", "hides"),
    [
        ("gymnasium/CartPole-v1", 1, False),
        ("pettingzoo/classic/connect_four-v3", 2, False),
        ("pettingzoo/pong_v3", 2, False),
        ("pettingzoo/leduc_holdem_v4", 2, True),
        ("pettingzoo/rps_v2", 2, True),
        ("football/5_vs_5", 2, False),
        ("mpe2/simple_adversary_v3", 2, True),
        ("mpe2/simple_speaker_listener_v4", 1, False),
        ("own.module:Game", 2, True),
        ("object/Game", 2, True),
    ],
)
def test_pictures_are_for_seats_only_where_everybody_may_see_all(id: str, players: int, hides: bool) -> None:
    agents = tuple(AgentSpec(f"a{p}", p, Box(0, 1, (1,)), Discrete(2)) for p in range(players))
    spec = EnvSpec(id, agents, ((0, 1),) * players, tuple((p,) for p in range(players)))
    assert hides_state(spec, None) == hides


def test_observations_that_are_images_are_shown_as_such() -> None:
    stack = np.zeros((4, 20, 30), np.uint8)
    stack[3] = 7
    for seen, value in (
        (stack, 7),
        (np.moveaxis(stack, 0, 2), 7),
        (stack[3], 7),
        (np.full((20, 30, 3), 5, np.uint8), 5),
    ):
        image = _as_picture(seen)
        assert image is not None
        assert image.shape == (20, 30, 3)
        assert (image == value).all()
    for other in (np.zeros((20, 30, 3), np.float32), np.zeros(600, np.uint8), np.zeros((3, 3, 2), np.uint8)):
        assert _as_picture(other) is None


def test_observations_of_planes_are_shown_as_grids() -> None:
    seen = np.zeros((2, 3, 2), np.bool_)
    seen[0, 1, 0] = seen[1, 2, 1] = True
    assert _planes(seen) == ". 1 .\n. . 2"
    assert _planes(np.full((2, 3, 2), 0.5)) is None
    assert _planes(np.zeros(6)) is None
    assert _planes(np.ones((1, 1, 26))) == "1"
