"""Whole games of a tree on a device: every game is one of OpenSpiel's, its rows are those of the game, graphs change nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ludus.backend import device
from ludus.core.types import Mixture, OpponentFactor, PolicyRef
from ludus.envs.registry import make_env
from ludus.envs.tree.stepping import TreeDeviceEnv
from ludus.rollout import ondevice_trees
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.ondevice import SeatAssignment
from ludus.rollout.ondevice_trees import Form, TreePlay, TreeRollouts
from ludus.rollout.ondevice_trees import Tables as Tables_
from ludus.testing.cuda_graphs import FakeGraphs, LaunchCounter

CPU = torch.device("cpu")
LEARNER, ONE, OTHER = PolicyRef(0, "0-1", 1), PolicyRef(0, "one"), PolicyRef(0, "other")
KUHN, THREE, LEDUC = "kuhn_poker", "kuhn_poker(players=3)", "leduc_poker"
GOOFSPIEL = "goofspiel(imp_info=True,num_cards=3,players=2,points_order=descending)"


def tree_env(name: str, num_envs: int) -> TreeDeviceEnv:
    env: Any = make_env(f"openspiel/{name}", num_envs=1)
    made: TreeDeviceEnv = env.on_device(CPU, num_envs=num_envs)
    return made


class Tables:
    """A learner and opponents with random tables, which may be learned (`ActingLearner`, `Opponent`)."""

    def __init__(self, env: TreeDeviceEnv, seats: tuple[int, ...], seed: int = 0) -> None:
        self.enumeration, self.seats = env.games.tree.enumeration, seats
        self.rng = np.random.default_rng(seed)
        self.learn()
        self.known: dict[tuple[PolicyRef, int], np.ndarray] = {}

    def learn(self) -> None:
        first, last = min(self.seats), max(self.seats) + 1
        rows = slice(self.enumeration.offset[first], self.enumeration.offset[last])
        self.logp = torch.from_numpy(_log(self._random(self.enumeration.mask[rows]))).float()

    def _random(self, mask: np.ndarray) -> np.ndarray:
        weight = self.rng.exponential(size=mask.shape) * mask + 1e-300
        return weight * mask / (weight * mask).sum(1, keepdims=True)

    def table(self, ref: PolicyRef | None = None, player: int | None = None) -> Any:
        if ref is None or player is None:
            return self.logp
        own = self.enumeration.ids(player)
        if (ref, player) not in self.known:
            self.known[ref, player] = self._random(self.enumeration.mask[own])
        return self.known[ref, player]

    def act(self, *given: Any) -> Any:
        raise AssertionError

    acts = act


def _log(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(probs)


def request_of(
    players: int, seats: tuple[int, ...], envs: int, seed: int, *, together: bool = False, more: int = 0
) -> RolloutRequest:
    """A request against a mixture of two, or more, policies of each other player, or against the learner itself."""
    refs = [ONE, OTHER, *(PolicyRef(0, f"{k}") for k in range(more))]
    probs = np.arange(1.0, len(refs) + 1)
    others = [p for p in range(players) if not (together and p in seats)]
    factors = tuple(OpponentFactor((p,), tuple((ref,) for ref in refs), tuple(probs / probs.sum())) for p in others)
    return RolloutRequest(LEARNER, seats, Mixture(factors), "episodes", envs, seed=seed, together=together)


CASES = [
    (KUHN, (0, 1), False),
    (KUHN, (1,), False),
    (KUHN, (0, 1), True),
    (THREE, (0, 2), False),
    (LEDUC, (0,), False),
    (GOOFSPIEL, (0, 1), True),
]


@pytest.mark.parametrize(("name", "seats", "together"), CASES)
def test_rows_are_the_learner_s_decisions_in_games_of_the_tree(
    name: str, seats: tuple[int, ...], together: bool
) -> None:
    """Of each game, which is walked move by move here."""
    env, envs = tree_env(name, 40), 40
    tree, games = env.games.tree, list[Any]()
    rollouts, tables = TreeRollouts(env), Tables(env, seats)
    play = rollouts.whole.play
    rollouts.whole.play = lambda *given: games.append(play(*given)) or games[-1]  # type: ignore[method-assign,assignment,func-returns-value]
    request = request_of(tree.num_players, seats, envs, 3, together=together)
    rollout = TreePlay(rollouts, tables, tables).play(request, each=True)
    nodes, walked = tree.arrays.nodes, games[0].node.numpy()
    rows, lengths, moves = [], [], 0
    offset = tree.enumeration.offset[min(seats)]
    for e in range(envs):
        path = [int(node) for node in walked[:, e]]
        assert path[0] == 0
        path = path[: next(k for k, node in enumerate(path) if nodes.terminal[node] >= 0) + 1]
        returns = tree.arrays.returns[nodes.terminal[path[-1]]]
        lengths.append(sum(nodes.width[node] > 0 for node in path))
        moves += sum(nodes.player[node] >= 0 for node in path)
        for player in seats if together else (seats[e % len(seats)],):
            own = [k for k, node in enumerate(path) if nodes.player[node] == player]
            for place, k in enumerate(own):
                node, child = path[k], path[k + 1]
                rank = child - nodes.child[node]
                assert 0 <= rank < nodes.degree[node]
                action = int(np.flatnonzero(tree.arrays.rank[nodes.info[node]] == rank)[0])
                last = place == len(own) - 1
                worth = returns[player] if last else _paid(tree, path[own[place + 1]], player)
                reward = np.float32(worth - _paid(tree, node, player))
                logp = float(tables.logp[nodes.info[node] - offset, action])
                rows.append(
                    (
                        e,
                        sorted(seats).index(player) if together else 0,
                        k,
                        int(nodes.info[node]),
                        action,
                        logp,
                        float(reward),
                        last,
                    )
                )
    (block,) = rollout.left
    learners = len(block.players)
    found = []
    for k, c in torch.nonzero(block.row).tolist():
        e, slot = divmod(c, learners)
        place = slot if together else 0
        columns = (block.observation, block.action, block.logp, block.reward, block.ended)
        found.append((e, place, k, *(column[k, c].item() for column in columns)))
        assert block.players[slot] in seats
    assert sorted(found) == [(*row[:5], pytest.approx(row[5]), pytest.approx(row[6]), row[7]) for row in sorted(rows)]
    assert rollout.counters == {
        "env_steps": sum(lengths),
        "decisions": moves,
        "learner_decisions": len(rows),
        "episodes": envs,
    }
    assert rollout.episodes.length.tolist() == lengths
    assert rollout.episodes.index.tolist() == list(range(envs))
    ends = [tree.arrays.returns[nodes.terminal[node]] for node in walked[-1]]
    np.testing.assert_array_equal(rollout.episodes.returns, ends)


def _paid(tree: Any, node: int, player: int) -> float:
    return 0.0 if tree.arrays.so_far is None else float(tree.arrays.so_far[node, player])


@pytest.mark.parametrize(("name", "seats", "together"), CASES)
def test_mean_returns_are_the_expected_ones(name: str, seats: tuple[int, ...], together: bool) -> None:
    """Of the mixture that is drawn for each game, computed on the tree."""
    envs = 40_000
    env = tree_env(name, envs)
    tree, tables = env.games.tree, Tables(env, seats)
    players = range(tree.num_players)
    request = request_of(tree.num_players, seats, envs, 5, together=together)
    rollout = TreePlay(TreeRollouts(env), tables, tables).play(request, each=True)
    offset = tree.enumeration.offset

    def plan(player: int, table: np.ndarray) -> np.ndarray:
        return tree.realization(player, table / table.sum(1, keepdims=True))

    mixed = {
        p: sum(
            prob * plan(p, tables.table(entry[0], p)) for entry, prob in zip(factor.entries, factor.probs, strict=True)
        )
        for factor in request.opponents.factors
        for p in factor.seats
    }
    own = {
        p: plan(
            p, tables.logp.double().exp().numpy()[offset[p] - offset[min(seats)] : offset[p + 1] - offset[min(seats)]]
        )
        for p in seats
    }
    for turn, seat in enumerate(seats):
        plans = [own[p] if p == seat or (together and p in seats) else mixed[p] for p in players]
        wanted = tree.values(plans)
        returns = (
            rollout.episodes.returns[rollout.episodes.index % len(seats) == turn]
            if not together
            else rollout.episodes.returns
        )
        error = returns.std(axis=0) / np.sqrt(len(returns))
        assert (np.abs(returns.mean(axis=0) - wanted) <= 4.5 * error + 1e-9).all(), (
            returns.mean(axis=0),
            wanted,
            error,
        )


def test_an_action_of_probability_zero_is_not_taken() -> None:
    env = tree_env(KUHN, 5_000)
    tables = Tables(env, (0, 1))
    tables.logp = torch.where(torch.arange(2) == 1, 0.0, -torch.inf).expand(len(tables.logp), 2).contiguous()
    rollout = TreePlay(TreeRollouts(env), tables, tables).play(request_of(2, (0, 1), 5_000, 0, together=True))
    (block,) = rollout.left
    assert set(block.action[block.row].tolist()) == {1}


def test_a_graph_is_run_with_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, seeds and mixtures; more opponents than there is room for are another graph. Graphs are kept from task to task."""

    def played(each: bool) -> list[list[Any]]:
        out, env = [], tree_env(LEDUC, 64)
        rollouts = TreeRollouts(env)
        for task in range(3):
            tables = Tables(env, (task % 2,), seed=task)
            play = TreePlay(rollouts, tables, tables)
            for number in range(4):
                request = request_of(2, (task % 2,), 64, 10 * task + number, more=task)
                rollout: Rollout = play.play(request, each=each)
                (block,) = rollout.left
                columns = (block.row, block.observation, block.action, block.logp, block.reward, block.ended, block.at)
                out.append([rollout.counters, rollout.sums, *(column.tolist() for column in columns)])
                tables.learn()
        return out

    plain = played(each=False)
    fake = FakeGraphs()
    monkeypatch.setattr(device, "captured", fake.capture)
    monkeypatch.setattr(ondevice_trees, "repeats", lambda place: True)
    assert played(each=False) == plain
    # each of the first two tasks runs twice as it is and is captured; the third is as the first, with two opponents more
    assert fake.runs == [6, 2]


@pytest.mark.parametrize("by_graph", [False, True])
def test_every_seat_has_its_turn_against_the_same_mixture(monkeypatch: pytest.MonkeyPatch, by_graph: bool) -> None:
    """Requests change who sits where, and whether the learner plays all its seats at once, while opponents stay as they are."""
    if by_graph:
        monkeypatch.setattr(device, "captured", FakeGraphs().capture)
        monkeypatch.setattr(ondevice_trees, "repeats", lambda place: True)
    env = tree_env(KUHN, 3)
    tables = Tables(env, (0, 1))
    play = TreePlay(TreeRollouts(env), tables, tables)
    request = request_of(2, (0, 1), 3, 0)
    for _ in range(4):
        for seats, turns in (((0, 1), [0, 1, 0]), ((1, 0), [1, 0, 1])):
            alone = play.play(replace(request, seats=seats), each=True)
            assert alone.episodes.seat.tolist() == turns
            row = alone.left[0].row.view(-1, 3, 2).any(0)
            assert row.tolist() == [[turn == player for player in (0, 1)] for turn in turns]
            both = play.play(replace(request, seats=seats, together=True))
            assert both.left[0].row.view(-1, 3, 2).any(0).all()


def test_a_rollout_is_few_operations_and_by_a_graph_hardly_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Leduc poker, whose longest games have eight decisions: without graphs some 375 operations; two for a decision with one."""

    def launches() -> int:
        env = tree_env(LEDUC, 64)
        tables = Tables(env, (0,))
        play = TreePlay(TreeRollouts(env), tables, tables)
        for number in range(4):
            with LaunchCounter() as counter:
                play.play(request_of(2, (0,), 64, number))
        return counter.launches

    assert 300 < launches() < 400
    fake = FakeGraphs()

    def captured(*given: Any) -> Any:
        answer, _ = fake.capture(*given)
        return answer, lambda: None

    monkeypatch.setattr(device, "captured", captured)
    monkeypatch.setattr(ondevice_trees, "repeats", lambda place: True)
    assert launches() <= 3, "and the graph"


def test_nothing_is_read_back_from_the_device() -> None:
    """On the device "meta" `item()`, `bool()`, `cpu()` and `numpy()` raise."""
    tree = tree_env(KUHN, 4).games.tree
    meta = torch.device("meta")
    env = TreeDeviceEnv(tree, 4, meta)
    rollouts = TreeRollouts(env)
    request = request_of(2, (0,), 4, 0)
    seats = SeatAssignment(request, num_envs=4, num_players=2, device=meta)
    logp = torch.zeros(6, 2, device=meta)
    others = torch.zeros(4 * rollouts.whole.width(1), dtype=torch.int64, device=meta)
    number = torch.zeros(4, 2, dtype=torch.int64, device=meta)
    made = Tables_(seats.cumulative, seats.policies, logp, others, number)
    experience = rollouts.experience(
        Form((0,), False, ((0,), (1,)), (0, 4)), seats, made, torch.zeros(2, dtype=torch.int64, device=meta)
    )
    assert experience.numbers.device == meta
