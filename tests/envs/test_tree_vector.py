"""The tree's vector environment against a step-by-step replay through pyspiel, and against the contract's letter."""

import copy

import numpy as np
import pyspiel
import pytest
from tree_replay import Replay, legal, play
from tree_toy import PayingGame

from ludus.core.errors import EnvError
from ludus.core.types import Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.tree.game_tree import compile_tree
from ludus.envs.tree.vector import TreeVectorEnv

GAMES = [
    "kuhn_poker",
    "kuhn_poker(players=3)",
    "leduc_poker",
    "matrix_rps",
    "matching_pennies_3p",
    "goofspiel(imp_info=True,num_cards=4,points_order=descending)",
    "goofspiel(imp_info=True,num_cards=4,points_order=random)",
    "cliff_walking(horizon=6)",
    "sheriff",
]


def frozen(timestep: Timestep) -> Timestep:
    return copy.deepcopy(timestep)


def assert_equal(a: Timestep, b: Timestep) -> None:
    for ours, theirs in ((a.due, b.due), (a.ended, b.ended), ((a.finished,), (b.finished,))):
        for x, y in zip(ours, theirs, strict=True):
            for name in x._fields:
                np.testing.assert_array_equal(getattr(x, name), getattr(y, name), err_msg=name)


@pytest.mark.parametrize("name", GAMES)
def test_every_step_equals_a_replay_through_pyspiel(name: str) -> None:
    tree, game, count = compile_tree(name), pyspiel.load_game(name), 7
    env = TreeVectorEnv(tree, count)
    assert isinstance(env, VectorEnv)
    seeds = np.array([3, 1, 4, 1, 5, 9, 2**63 + 11], np.uint64)
    timestep = env.reset(seeds)
    games = [Replay(game, tree, int(s)) for s in seeds]
    rng = np.random.default_rng(0)
    finished = 0
    for _ in range(60):
        expected = [g.due() for g in games]
        actions = legal(tree, timestep, rng)
        for p, due in enumerate(timestep.due):
            assert due.mask is None
            assert due.slot.tolist() == [e for e in range(count) if p in expected[e]]
            for e, i, reward, first in zip(due.slot, due.observation, due.reward, due.first, strict=True):
                assert (i, reward, first) == expected[e][p]
        moves: list[dict[int, int]] = [{} for _ in range(count)]
        for p, due in enumerate(timestep.due):
            for e, a in zip(due.slot, actions[p], strict=True):
                moves[e][p] = int(a)
        answers = [g.step(m) for g, m in zip(games, moves, strict=True)]
        timestep = env.step(actions)
        for p, ended in enumerate(timestep.ended):
            assert ended.slot.tolist() == [e for e in range(count) if p in answers[e][0]]
            assert ended.reward.tolist() == [answers[e][0][p] for e in ended.slot]
            assert ended.terminated.all()
            assert (ended.observation == -1).all()
            assert len(ended.terminated) == len(ended.observation) == len(ended.slot)
        over = [e for e in range(count) if answers[e][1] is not None]
        assert timestep.finished.environment.tolist() == over
        assert timestep.finished.returns.tolist() == [list(answers[e][1][0]) for e in over]
        assert timestep.finished.length.tolist() == [answers[e][1][1] for e in over]
        assert len(timestep.finished.terminated) == len(over)
        finished += len(over)
    assert finished > count


def test_a_game_that_ends_on_the_others_move_closes_the_open_decision() -> None:
    """Kuhn by hand: player 0 bets, player 1 folds. Player 0's decision was open and not due; it closes with +1."""
    tree = compile_tree("kuhn_poker")
    env = TreeVectorEnv(tree, 1)
    first = env.reset(np.zeros(1, np.uint64), episodes=1)
    assert [len(d.slot) for d in first.due] == [1, 0]
    second = env.step((np.array([1]), np.array([], np.int64)))
    assert [len(d.slot) for d in second.due] == [0, 1]
    assert [len(e.slot) for e in second.ended] == [0, 0]
    third = env.step((np.array([], np.int64), np.array([0])))
    assert [len(d.slot) for d in third.due] == [0, 0]
    assert [e.slot.tolist() for e in third.ended] == [[0], [0]]
    assert [e.reward.tolist() for e in third.ended] == [[1.0], [-1.0]]
    assert third.finished.returns.tolist() == [[1.0, -1.0]]
    assert third.finished.length.tolist() == [2]


def test_rewards_between_own_decisions_are_summed() -> None:
    """Players 0, 1, 1, 0 move; a mover gets 1 + action, the other -0.5. Actions 1, 0, 1, 0 by hand: player 0 gets 2 by its first
    move and twice -0.5 before its second (1.0), then 1. Player 1 gets 1 by its first move; by its second, 2 and then -0.5."""
    game = PayingGame()
    tree = compile_tree(game)
    env = TreeVectorEnv(tree, 1)
    none = np.array([], np.int64)
    timestep = env.reset(np.zeros(1, np.uint64), episodes=1)
    rewards: list[list[tuple[float, bool]]] = [[], []]
    for player, action in ((0, 1), (1, 0), (1, 1), (0, 0)):
        due = timestep.due[player]
        rewards[player].append((float(due.reward[0]), bool(due.first[0])))
        assert not any(len(e.slot) for e in timestep.ended)
        move = np.array([action])
        timestep = env.step((move, none) if player == 0 else (none, move))
    assert rewards == [[(0.0, True), (1.0, False)], [(0.0, True), (1.0, False)]]
    assert [e.reward.tolist() for e in timestep.ended] == [[1.0], [1.5]]
    assert timestep.finished.returns.tolist() == [[2.0, 2.0]]  # player 1's includes the -0.5 before its first decision
    assert tree.best_response(0, [None, tree.realization(1, tree.uniform(1))])[0] == 3.0


def test_rock_paper_scissors_asks_both_at_once() -> None:
    tree = compile_tree("matrix_rps")
    env = TreeVectorEnv(tree, 3)
    timestep = env.reset(np.arange(3, dtype=np.uint64))
    assert [d.slot.tolist() for d in timestep.due] == [[0, 1, 2], [0, 1, 2]]
    assert [d.observation.tolist() for d in timestep.due] == [[0, 0, 0], [1, 1, 1]]
    timestep = env.step((np.array([0, 1, 2]), np.array([0, 0, 0])))  # rock, paper, scissors against rock
    assert timestep.finished.returns.tolist() == [[0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]]
    assert [e.reward.tolist() for e in timestep.ended] == [[0.0, 1.0, -1.0], [0.0, -1.0, 1.0]]
    assert [d.slot.tolist() for d in timestep.due] == [[0, 1, 2], [0, 1, 2]]
    assert all(d.first.all() for d in timestep.due)


@pytest.mark.parametrize("name", ["leduc_poker", "kuhn_poker(players=3)"])
def test_mean_returns_of_random_play_match_exact_values(name: str) -> None:
    tree = compile_tree(name)
    env = TreeVectorEnv(tree, 500)
    start = env.reset(np.random.default_rng(1).integers(0, 2**64, 500, dtype=np.uint64), episodes=40)
    returns = np.concatenate([t.finished.returns.copy() for t in play(env, tree, start, 2)])
    assert returns.shape == (20_000, tree.num_players)
    exact = tree.values([tree.realization(p, tree.uniform(p)) for p in range(tree.num_players)])
    error = returns.std(axis=0) / np.sqrt(len(returns))
    assert (np.abs(returns.mean(axis=0) - exact) < 4.5 * error).all()
    assert (error < 0.05).all()


@pytest.mark.parametrize("quota", [3, np.array([2, 0, 5, 1])])
def test_each_environment_plays_its_quota_and_then_rests(quota: int | np.ndarray) -> None:
    tree = compile_tree("leduc_poker")
    env = TreeVectorEnv(tree, 4)
    wanted = np.broadcast_to(quota, 4)
    start = env.reset(np.arange(4, dtype=np.uint64), episodes=quota)
    assert sorted(e for d in start.due for e in d.slot) == np.flatnonzero(wanted).tolist()
    played = np.zeros(4, int)
    last = start
    for last in play(env, tree, start, 0):
        played[last.finished.environment] += 1
        for due in last.due:
            assert (played[due.slot] < wanted[due.slot]).all()
    np.testing.assert_array_equal(played, wanted)
    rest = env.step((np.array([], np.int64),) * 2)
    assert not any(len(x.slot) for x in (*rest.due, *rest.ended))
    assert not len(rest.finished.environment)


def test_an_environments_games_do_not_depend_on_its_neighbours() -> None:
    """The same seed and policy give the same episodes alone and among others, in any place, and again after a reset."""
    tree = compile_tree("leduc_poker")

    def episodes(seeds: list[int], watched: int) -> list[tuple[list[int], list[float]]]:
        env = TreeVectorEnv(tree, len(seeds))
        timestep = env.reset(np.array(seeds, np.uint64), episodes=30)
        found: list[tuple[list[int], list[float]]] = []
        seen: list[int] = []
        while any(len(d.slot) for d in timestep.due):
            for due in timestep.due:
                seen += due.observation[due.slot == watched].tolist()
            mask = [tree.enumeration.mask[d.observation] for d in timestep.due]
            choice = [d.observation % m.sum(axis=1) for d, m in zip(timestep.due, mask, strict=True)]
            actions = tuple(
                np.array([np.flatnonzero(row)[k] for row, k in zip(m, c, strict=True)], np.int64)
                for m, c in zip(mask, choice, strict=True)
            )
            timestep = env.step(actions)
            if watched in timestep.finished.environment:
                row = timestep.finished.environment.tolist().index(watched)
                found.append((seen, timestep.finished.returns[row].tolist()))
                seen = []
        return found

    alone = episodes([77], 0)
    assert len(alone) == 30
    assert len({tuple(seen) for seen, _ in alone}) > 5
    assert episodes([5, 6, 77], 2) == alone
    assert episodes([77, 77], 1) == alone
    assert episodes([78], 0) != alone


@pytest.mark.parametrize("name", ["leduc_poker", "kuhn_poker(players=3)", "cliff_walking(horizon=6)", "matrix_rps"])
def test_restored_environment_goes_on_bit_for_bit(name: str) -> None:
    tree = compile_tree(name)
    env = TreeVectorEnv(tree, 6)
    timestep = env.reset(np.arange(6, dtype=np.uint64), episodes=20)
    rng = np.random.default_rng(0)
    for _ in range(9):
        timestep = env.step(legal(tree, timestep, rng))
    saved, at_save = env.snapshot(), frozen(timestep)
    future = [frozen(t) for t in play(env, tree, timestep, 1)]
    other = TreeVectorEnv(tree, 6)
    restored = other.restore(saved)
    assert_equal(restored, at_save)
    assert other.snapshot() == saved
    again = [frozen(t) for t in play(other, tree, restored, 1)]
    assert len(future) == len(again) > 5
    for a, b in zip(future, again, strict=True):
        assert_equal(a, b)


def test_buffers_stay_until_the_second_next_step() -> None:
    tree = compile_tree("leduc_poker")
    env = TreeVectorEnv(tree, 8)
    timestep = env.reset(np.arange(8, dtype=np.uint64))
    rng = np.random.default_rng(0)
    for _ in range(20):
        kept = frozen(timestep)
        following = env.step(legal(tree, timestep, rng))
        assert_equal(timestep, kept)
        timestep = following


def test_illegal_action_names_the_place_and_changes_nothing() -> None:
    tree = compile_tree("leduc_poker")
    env = TreeVectorEnv(tree, 5)
    timestep = frozen(env.reset(np.arange(5, dtype=np.uint64)))
    key = tree.enumeration.key[timestep.due[0].observation[3]]
    none = np.array([], np.int64)
    saved = env.snapshot()
    for action in (0, 3, -1, 2**40):  # folding is illegal before a bet; there are three actions
        bad = np.array([1, 1, 1, action, 1])
        with pytest.raises(EnvError) as caught:
            env.step((bad, none))
        message = str(caught.value)
        assert f"illegal action {action} of player 0 in environment 3 (slot 3)" in message
        assert repr(key) in message
        assert "legal are [1, 2]" in message
    assert env.snapshot() == saved
    assert len(env.step((np.ones(5, np.int8), none)).due[1].slot) == 5


def test_wrong_actions_are_refused() -> None:
    env = TreeVectorEnv(compile_tree("kuhn_poker"), 2)
    none = np.array([], np.int64)
    with pytest.raises(EnvError, match="before its first reset"):
        env.step((none, none))
    env.reset(np.arange(2, dtype=np.uint64))
    with pytest.raises(EnvError, match="actions of 1 players"):
        env.step((np.zeros(2, int),))
    with pytest.raises(EnvError, match=r"player 0 have shape \(3,\)"):
        env.step((np.zeros(3, int), none))
    with pytest.raises(EnvError, match=r"player 1 have shape \(1,\)"):
        env.step((np.zeros(2, int), np.zeros(1, int)))
    with pytest.raises(EnvError, match="type float64"):
        env.step((np.zeros(2), none))


def test_wrong_resets_are_refused() -> None:
    env = TreeVectorEnv(compile_tree("kuhn_poker"), 2)
    with pytest.raises(EnvError, match="one per environment"):
        env.reset(np.zeros(3, np.uint64))
    with pytest.raises(EnvError, match="episodes has -1"):
        env.reset(np.zeros(2, np.uint64), episodes=-1)
    with pytest.raises(EnvError, match="expected a number"):
        env.reset(np.zeros(2, np.uint64), episodes=np.ones(3, int))
    with pytest.raises(EnvError, match="num_envs is 0"):
        TreeVectorEnv(compile_tree("kuhn_poker"), 0)


def test_foreign_and_damaged_snapshots_are_refused() -> None:
    env = TreeVectorEnv(compile_tree("kuhn_poker"), 2)
    with pytest.raises(EnvError, match="before its first reset"):
        env.snapshot()
    env.reset(np.arange(2, dtype=np.uint64))
    saved = env.snapshot()
    for other in (TreeVectorEnv(compile_tree("kuhn_poker"), 3), TreeVectorEnv(compile_tree("matrix_rps"), 2)):
        with pytest.raises(EnvError, match="this snapshot is not of"):
            other.restore(saved)
    for damaged in (b"", b"nonsense", saved[: len(saved) // 2], saved[:900] + b"\x55" * 40 + saved[940:]):
        with pytest.raises(EnvError, match="this is no snapshot of"):
            env.restore(damaged)
    assert env.snapshot() == saved
