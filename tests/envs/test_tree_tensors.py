"""Game trees as tensors: equal to the compiled sweeps. By hand, on a CPU; and on `meta`, where whatever is read back raises."""

from typing import Any

import numpy as np
import pytest
import torch

from ludus.core.errors import PolicyError
from ludus.envs.tree.game_tree import GameTree, compile_tree
from ludus.envs.tree.tensors import PlacedTree, TreeTensors

GOOFSPIEL = "goofspiel(imp_info=True,num_cards=4,points_order=descending)"
CLIFF = "cliff_walking(height=2,width=3,horizon=6)"
GAMES = ["kuhn_poker", "kuhn_poker(players=3)", "leduc_poker", "matrix_bos", GOOFSPIEL, CLIFF]


def random_tables(tree: GameTree, player: int, count: int, seed: int = 0) -> np.ndarray:
    """float64[count, I_p, A]: the first with some actions that are never played."""
    rng = np.random.default_rng([seed, player])
    noise = rng.exponential(size=(count, *tree.uniform(player).shape))
    noise[0] *= rng.random(noise[0].shape) < 0.7
    table = tree.uniform(player) * (noise + 1e-3 * (noise.sum(axis=2, keepdims=True) == 0))
    table = np.where(table.sum(axis=2, keepdims=True) > 0, table, tree.uniform(player))
    return table / table.sum(axis=2, keepdims=True)


def everyones(tree: GameTree, count: int, seed: int = 0) -> list[np.ndarray]:
    return [random_tables(tree, p, count, seed) for p in range(tree.num_players)]


def compiled_plans(tree: GameTree, tables: list[np.ndarray]) -> list[np.ndarray]:
    return [np.stack([tree.realization(p, table) for table in many]) for p, many in enumerate(tables)]


def earned(tree: GameTree, player: int, table: np.ndarray, profiles: list[Any]) -> list[float]:
    """What a response earns against each profile: of two that earn the same, rounding may choose another in each program."""
    plan = tree.realization(player, table)
    return [tree.values([*profile[:player], plan, *profile[player + 1 :]])[player] for profile in profiles]


def close(found: torch.Tensor, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", GAMES)
def test_batches_equal_the_compiled_sweeps(name: str) -> None:
    tree = compile_tree(name)
    tensors, tables = TreeTensors(tree, "cpu"), everyones(tree, 3)
    wanted = compiled_plans(tree, tables)
    plans = [tensors.realization(p, torch.from_numpy(many)) for p, many in enumerate(tables)]
    for found, plan in zip(plans, wanted, strict=True):
        close(found, plan)
    profiles = list(zip(*wanted, strict=True))
    close(tensors.values(plans), np.array([tree.values(profile) for profile in profiles]))
    gain, value = tensors.exploitability(plans)
    close(value, np.array([tree.exploitability(profile).value for profile in profiles]))
    close(gain, np.array([tree.exploitability(profile).gain for profile in profiles]))
    for player in range(tree.num_players):
        values, responses = tensors.best_response(player, plans)
        close(values, np.array([tree.best_response(player, profile)[0] for profile in profiles]))
        for table, profile, value in zip(responses.numpy(), profiles, values.tolist(), strict=True):
            assert earned(tree, player, table, [profile]) == pytest.approx([value], abs=1e-12)
        probs = np.array([0.2, 0.3, 0.5])
        joint = tensors.best_response_joint(player, plans, torch.from_numpy(probs))
        best = tree.best_response_joint(player, profiles, probs.tolist())
        close(joint[0], np.array(best[0]))
        assert probs @ earned(tree, player, joint[1].numpy(), profiles) == pytest.approx(best[0], abs=1e-12)


@pytest.mark.parametrize("name", GAMES)
def test_payoffs_of_all_profiles_equal_the_compiled_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = compile_tree(name)
    stacks = compiled_plans(tree, [random_tables(tree, p, n) for p, n in enumerate((3, 2, 4)[: tree.num_players])])
    tensors, placed = TreeTensors(tree, "cpu"), [torch.from_numpy(stack) for stack in stacks]
    close(tensors.payoffs(placed), tree.payoffs(stacks))
    monkeypatch.setattr("ludus.envs.tree.tensors._ROOM", 1)  # one policy at a time
    for player, stack in enumerate(stacks):
        close(tensors.payoffs_slice(player, placed[player][:2], placed), tree.payoffs_slice(player, stack[:2], stacks))


@pytest.mark.parametrize("name", GAMES)
def test_a_placed_tree_answers_as_the_tree_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.envs.tree.tensors._ROOM", 1)  # one profile at a time
    tree = compile_tree(name)
    placed, stacks = PlacedTree(tree, "cpu"), compiled_plans(tree, everyones(tree, 3))
    profiles = list(zip(*stacks, strict=True))
    np.testing.assert_allclose(placed.values(profiles[1]), tree.values(profiles[1]), rtol=0, atol=1e-12)
    found, wanted = (where.exploitability(profiles[0]) for where in (placed, tree))
    np.testing.assert_allclose([found.gain, found.value], [wanted.gain, wanted.value], rtol=0, atol=1e-12)
    np.testing.assert_allclose(placed.payoffs(stacks), tree.payoffs(stacks), rtol=0, atol=1e-12)
    probs = (0.5, 0.2, 0.3)
    for player in range(tree.num_players):
        others = [[None if p == player else plan for p, plan in enumerate(profile)] for profile in profiles]
        value, table = placed.best_response_joint(player, others, probs)
        assert value == pytest.approx(tree.best_response_joint(player, others, probs)[0], abs=1e-12)
        assert np.dot(earned(tree, player, table, profiles), probs) == pytest.approx(value, abs=1e-12)
    with pytest.raises(PolicyError, match="2 probabilities"):
        placed.best_response_joint(0, profiles, (0.5, 0.5))
    with pytest.raises(PolicyError, match="has shape"):
        placed.values([plan[:-1] for plan in profiles[0]])


def test_equals_go_to_the_lowest_action() -> None:
    """Kuhn, against a player 1 who always passes: king wins 1 either way, and the state after a bet of player 1 never comes."""
    tree = compile_tree("kuhn_poker")
    passive = torch.tensor([[[1.0, 0.0]] * 6], dtype=torch.float64)
    tensors = TreeTensors(tree, "cpu")
    plan = tensors.realization(1, passive)
    value, table = tensors.best_response(0, [plan, plan])
    rows = dict(zip(tree.enumeration.key[:6], table[0].tolist(), strict=True))
    assert value.tolist() == pytest.approx([1.0], abs=1e-12)
    assert rows == {"0": [0, 1], "1": [0, 1], "2": [1, 0], "0pb": [1, 0], "1pb": [1, 0], "2pb": [1, 0]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuhn_poker(players=3)", GOOFSPIEL])
def test_nothing_is_read_back(name: str) -> None:
    tree = compile_tree(name)
    tensors = TreeTensors(tree, "meta")
    tables = [torch.from_numpy(many).to("meta") for many in everyones(tree, 4)]
    plans = [tensors.realization(p, table) for p, table in enumerate(tables)]
    gain, value = tensors.exploitability(plans)
    shapes = {
        "values": tensors.values(plans).shape,
        "gain": gain.shape,
        "value": value.shape,
        "response": tensors.best_response(0, plans)[1].shape,
        "payoffs": tensors.payoffs(plans).shape,
    }
    players = tree.num_players
    assert {what: tuple(shape) for what, shape in shapes.items()} == {
        "values": (4, players),
        "gain": (4, players),
        "value": (4, players),
        "response": tuple(tables[0].shape),
        "payoffs": (players, *[4] * players),
    }


def test_tree_tensors_reject_mismatched_arguments() -> None:
    tensors = TreeTensors(compile_tree("kuhn_poker"), "cpu")
    table = torch.from_numpy(tensors.tree.uniform(0)[None])
    plan = tensors.realization(0, table)
    with pytest.raises(PolicyError, match=r"expected torch.float64 of shape \(policies, 6, 2\) on cpu"):
        tensors.realization(0, table.float())
    with pytest.raises(PolicyError, match=r"plans of \[1, 2\] policies"):
        tensors.values([plan, torch.cat([plan, plan])])
    with pytest.raises(PolicyError, match=r"expected torch.float64 of shape \(policies, 13\)"):
        tensors.payoffs([plan, plan[:, :12]])
