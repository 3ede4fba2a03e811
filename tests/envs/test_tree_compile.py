"""What compilation accepts, refuses and says about a game."""

from pathlib import Path

import numpy as np
import pyspiel
import pytest
import torch

from ludus.core.errors import EnvError
from ludus.envs.tree.game_tree import compile_tree, try_compile
from ludus.envs.tree.vector import TreeVectorEnv
from ludus.envs.tree.walk import exceeds_node_limit


@pytest.mark.parametrize(
    ("name", "nodes", "infostates"),
    [
        ("kuhn_poker", 58, [6, 6]),
        ("leduc_poker", 9457, [468, 468]),
        ("kuhn_poker(players=3)", 617, [16, 16, 16]),
        ("matrix_rps", 13, [1, 1]),  # root, three hidden choices, nine ends
    ],
)
def test_sizes(name: str, nodes: int, infostates: list[int]) -> None:
    tree = compile_tree(name)
    assert len(tree.arrays.nodes.player) == nodes
    assert [len(sequences.parent) for sequences in tree.arrays.sequences] == infostates
    assert tree.enumeration.offset == (0, *np.cumsum(infostates))
    assert tree.spec.id == f"openspiel/{name}"
    assert compile_tree(name) is tree


def test_a_game_made_in_memory_may_have_anothers_name() -> None:
    """Kuhn poker as a matrix of 27 × 64 plans says that it is `kuhn_poker()`."""
    game = pyspiel.extensive_to_matrix_game(pyspiel.load_game("kuhn_poker"))
    assert compile_tree(game).num_actions == 64 != compile_tree("kuhn_poker").num_actions


@pytest.mark.parametrize(
    "name",
    [
        "restricted_nash_response(game=kuhn_poker(),fixed_player=0,p=0.5)",
        "normal_form_extensive_game(game=kuhn_poker())",
    ],
)
def test_a_game_is_named_by_what_it_is_loaded_by(name: str) -> None:
    """OpenSpiel calls them rnr_kuhn_poker(players=2), which it cannot load, and normal_form_extensive_game(), which is any game's."""
    tree = compile_tree(name)
    assert tree.spec.id == f"openspiel/{name}"
    assert compile_tree(name) is tree
    assert len(compile_tree(tree.spec.id.removeprefix("openspiel/")).arrays.nodes.player) == len(
        tree.arrays.nodes.player
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "nodes"), [("tic_tac_toe", 549_946), ("liars_dice", 294_883)])
def test_sizes_of_large_trees(name: str, nodes: int) -> None:
    assert len(compile_tree(name).arrays.nodes.player) == nodes


def test_nodes_are_ordered_and_siblings_lie_side_by_side() -> None:
    nodes = compile_tree("leduc_poker").arrays.nodes
    inner = np.flatnonzero(nodes.degree)
    children = np.concatenate([np.arange(nodes.child[x], nodes.child[x] + nodes.degree[x]) for x in inner])
    np.testing.assert_array_equal(np.sort(children), np.arange(1, len(nodes.player)))
    assert (nodes.child[inner] > inner).all()
    chance = np.flatnonzero(nodes.player == -1)
    last = nodes.child[chance] + nodes.degree[chance] - 1
    np.testing.assert_allclose(nodes.cumulative[last], 1.0, atol=1e-12)


@pytest.mark.parametrize("name", ["leduc_poker", "kuhn_poker(players=3)", "goofspiel(imp_info=True,num_cards=4)"])
def test_enumeration_decodes_to_openspiels_tensors_and_masks(name: str) -> None:
    tree = compile_tree(name)
    game = pyspiel.load_game(name)
    ids = [
        {key: i for i, key in enumerate(tree.enumeration.key) if i in range(*tree.enumeration.ids(p).indices(10**9))}
        for p in range(tree.num_players)
    ]
    rng = np.random.default_rng(0)
    for _ in range(30):
        state = game.new_initial_state()
        while not state.is_terminal():
            for p in range(tree.num_players):
                if not state.is_chance_node() and state.legal_actions(p):
                    i = ids[p][state.information_state_string(p)]
                    np.testing.assert_array_equal(tree.enumeration.observation[i], state.information_state_tensor(p))
                    assert np.flatnonzero(tree.enumeration.mask[i]).tolist() == state.legal_actions(p)
            if state.is_simultaneous_node():
                state.apply_actions([rng.choice(state.legal_actions(p)) for p in range(tree.num_players)])
            else:
                state.apply_action(rng.choice(state.legal_actions()))


def test_spec_of_kuhn() -> None:
    spec = compile_tree("kuhn_poker").spec
    assert [a.name for a in spec.agents] == ["player_0", "player_1"]
    assert spec.utility_range == ((-2.0, 2.0), (-2.0, 2.0))
    assert spec.zero_sum
    assert spec.max_decisions == 2
    assert spec.agents[0].observation.shape == (11,)
    assert all(spec.agents[0].observation.contains(row) for row in spec.enumeration.observation)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("matrix_rps", ((0, 1),)),
        ("matrix_pd", ((0, 1),)),
        ("blotto(coins=5,fields=3)", ((0, 1),)),
        ("blotto(coins=5,fields=3,players=3)", ((0, 1, 2),)),
        ("matrix_bos", ((0,), (1,))),  # each prefers another meeting point
        ("matrix_mp", ((0,), (1,))),  # the matcher and the mismatcher
        ("kuhn_poker", ((0,), (1,))),
        ("leduc_poker", ((0,), (1,))),
        # Symmetric as a game, but its tensors tell the players apart: not interchangeable for a network.
        ("goofspiel(imp_info=True,num_cards=4,points_order=descending)", ((0,), (1,))),
    ],
)
def test_symmetry(name: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert compile_tree(name).spec.symmetry == groups


def test_symmetric_players_have_mirrored_payoffs() -> None:
    tree = compile_tree("blotto(coins=5,fields=3)")
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(tree.num_actions), size=(4, 1))
    stacks = [np.stack([tree.realization(p, row) for row in rows]) for p in range(2)]
    table = tree.payoffs(stacks)
    assert np.abs(table).max() > 0.01
    np.testing.assert_allclose(table[0], table[1].T, rtol=0, atol=1e-12)


def test_general_sum_game_is_not_called_zero_sum() -> None:
    tree = compile_tree("matrix_pd")
    assert not tree.spec.zero_sum
    cooperate, defect = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    both = [np.stack([tree.realization(p, t) for t in (cooperate, defect)]) for p in range(2)]
    np.testing.assert_array_equal(tree.payoffs(both)[0], [[5, 0], [10, 1]])


def test_game_made_in_memory() -> None:
    game = pyspiel.create_matrix_game("mine", "Mine", ["a", "b"], ["c", "d"], [[1, 2], [3, 4]], [[5, 6], [7, 8]])
    tree = compile_tree(game)
    np.testing.assert_array_equal(tree.values([tree.realization(p, tree.uniform(p)) for p in range(2)]), [2.5, 6.5])


@pytest.mark.parametrize(
    ("observation", "width"), [("information_state", 30), ("observation", 16), ("one_hot", 468), ("auto", 30)]
)
def test_choice_of_observation(observation: str, width: int) -> None:
    found = compile_tree("leduc_poker", observation=observation).enumeration.observation
    assert found.shape == (936, width)
    if observation == "one_hot":
        np.testing.assert_array_equal(found[468:], np.eye(468))


def test_unknown_observation_lists_what_there_is() -> None:
    with pytest.raises(EnvError, match="choose one of: auto, observation, one_hot"):
        compile_tree("tic_tac_toe", observation="information_state")
    with pytest.raises(EnvError, match="choose one of: auto, information_state, observation, one_hot"):
        compile_tree("kuhn_poker", observation="pixels")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("connect_four", "far more than 1000000 nodes"),
        ("chess", "no information state|far more than"),
        ("backgammon", "no information state strings"),
        ("mfg_crowd_modelling", "mean-field"),
        ("cursor_go", "more than 1000 moves deep"),
        ("no_such_game", "cannot load the game 'no_such_game'"),
    ],
)
def test_games_that_do_not_fit_are_refused_with_a_reason(name: str, why: str) -> None:
    with pytest.raises(EnvError, match=why):
        compile_tree(name)
    tree, reason = try_compile(name)
    assert tree is None
    assert reason


@pytest.mark.slow
def test_imperfect_recall_is_refused() -> None:
    with pytest.raises(EnvError, match="lacks perfect recall: player"):
        compile_tree("liars_dice_ir")


def test_utility_range_holds_for_every_end() -> None:
    """OpenSpiel's own bound for a cliff with a horizon of 5 is -9, though five harmless steps earn -5."""
    assert pyspiel.load_game("cliff_walking(horizon=5)").max_utility() == -9.0
    assert compile_tree("cliff_walking(horizon=5)").spec.utility_range == ((-104.0, -5.0),)


NEVER = """EFG 2 R "g" { "A" "B" } ""
p "" 1 1 "i" { "a" "b" } 0
t "" 1 "" { 3 -3 }
c "" 1 "x" { "l" 0.25 "r" 0.75 } 0
t "" 2 "" { 1 -1 }
t "" 3 "" { -2 2 }
"""
ALONE = """EFG 2 R "g" { "A" "B" } ""
c "" 1 "x" { "l" 0.5 "r" 0.5 } 0
t "" 1 "" { 1 -1 }
t "" 2 "" { -1 1 }
"""
IMPOSSIBLE = """EFG 2 R "g" { "A" "B" } ""
c "" 1 "x" { "l" 0.0 "r" 1.0 } 0
t "" 1 "" { 50 -50 }
p "" 1 1 "i" { "a" "b" } 0
t "" 2 "" { 1 -1 }
t "" 3 "" { 2 -2 }
"""


def of_file(folder: Path, text: str) -> str:
    (folder / "game.efg").write_text(text, encoding="utf-8")
    return f"efg_game(filename={folder / 'game.efg'})"


def test_a_game_that_chance_decides_alone_is_refused(tmp_path: Path) -> None:
    tree, why = try_compile(of_file(tmp_path, ALONE))
    assert tree is None
    assert "no player ever moves" in why


def test_an_end_that_cannot_come_is_no_empty_episode(tmp_path: Path) -> None:
    tree = compile_tree(of_file(tmp_path, IMPOSSIBLE))
    env = TreeVectorEnv(tree, 3)
    assert len(env.reset(np.arange(3, dtype=np.uint64)).due[0].slot) == 3


def test_on_a_device_a_player_who_never_moves_has_a_valid_id(tmp_path: Path) -> None:
    env = TreeVectorEnv(compile_tree(of_file(tmp_path, NEVER)), 4)
    device = env.on_device(torch.device("cpu"), num_envs=4)
    assert device.reset(1).slots[1].observation.max() == 0
    device.step((torch.zeros(4, 1, dtype=torch.long),) * 2)


def test_sampled_stochastic_game_is_refused() -> None:
    sampled = [
        g.short_name
        for g in pyspiel.registered_games()
        if g.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC and g.default_loadable
    ]
    assert sampled
    with pytest.raises(EnvError, match="samples its chance events"):
        compile_tree(sampled[0])


def test_node_limit_is_exact() -> None:
    assert len(compile_tree("kuhn_poker", node_limit=58).arrays.nodes.player) == 58
    with pytest.raises(EnvError, match="more than 57 nodes"):
        compile_tree("kuhn_poker", node_limit=57)


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker", "matrix_rps", "kuhn_poker(players=3)"])
def test_the_quick_check_never_refuses_a_game_that_fits(name: str) -> None:
    game = pyspiel.load_game(name)
    nodes = len(compile_tree(name).arrays.nodes.player)
    assert not exceeds_node_limit(game, nodes)
    assert exceeds_node_limit(game, max(1, nodes // 1000))
