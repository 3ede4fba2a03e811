"""The worker on compiled games: payoffs against exact values, and the same episodes however they are computed."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.types import Mixture, OpponentFactor, PolicyRef
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.tree.game_tree import GameTree, compile_tree
from ludus.envs.tree.vector import TreeVectorEnv
from ludus.policies.actor_critic import initial_weights
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.base import Policy
from ludus.policies.categorical import TabularPolicy
from ludus.policies.specs import mlp_spec, tabular_spec
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

LEDUC = "leduc_poker"
RANDOM_POINTS = "goofspiel(imp_info=True,num_cards=4,points_order=random)"


@pytest.fixture(scope="module")
def leduc() -> GameTree:
    return compile_tree(LEDUC)


def table(tree: GameTree, player: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng((seed, player))
    mask = tree.enumeration.mask[tree.enumeration.ids(player)]
    weights = rng.exponential(size=mask.shape) * mask
    return weights / weights.sum(axis=1, keepdims=True)


def tabular(tree: GameTree, player: int, seed: int) -> TabularPolicy:
    return TabularPolicy(tabular_spec(tree.enumeration, (player,)), {"probs": table(tree, player, seed)})


def network(tree: GameTree, seed: int) -> ActorCriticPolicy:
    size = int(np.prod(tree.enumeration.observation.shape[1:]))
    spec = mlp_spec(inputs=size, actions=tree.num_actions, hidden=[16])
    rng = np.random.default_rng(seed)
    weights = {name: 3 * array for name, array in initial_weights(spec, rng).items()}
    return ActorCriticPolicy(spec, weights)


def worker_of(env, policies: dict[PolicyRef, Policy], *, tabulate: bool = True) -> RolloutWorker:
    bank = LocalBank(env.spec, env.num_envs, tabulate=tabulate)
    bank.load(list(policies.items()))
    return RolloutWorker(env, bank)


def same(one: Rollout, other: Rollout) -> None:
    for name in ("returns", "length", "terminated", "seat", "entry", "index"):
        assert np.array_equal(getattr(one.episodes, name), getattr(other.episodes, name)), name
    a, b = one.trajectories, other.trajectories
    assert (a is None) == (b is None)
    if a is None:
        return
    for name in ("start", "action", "reward", "t", "tail", "agent", "seat", "episode"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    np.testing.assert_allclose(a.logp, b.logp, atol=1e-5)


def test_payoffs_of_tabulated_play_are_the_exact_ones(leduc):
    refs = [[PolicyRef(p, f"{p}.{k}") for k in range(2)] for p in range(2)]
    policies = {refs[p][k]: tabular(leduc, p, k) for p in range(2) for k in range(2)}
    worker = worker_of(TreeVectorEnv(leduc, 1000), policies)
    mixture = Mixture.product({0: (refs[0], [0.8, 0.2]), 1: (refs[1], [0.3, 0.7])})
    got = worker.run(RolloutRequest(None, (), mixture, "episodes", 40_000, seed=3)).episodes
    assert got.index.tolist() == list(range(40_000))
    for i, j in np.ndindex(2, 2):
        plans = [leduc.realization(0, table(leduc, 0, i)), leduc.realization(1, table(leduc, 1, j))]
        mine = got.returns[(got.entry == (i, j)).all(axis=1)]
        error = mine.std(axis=0) / np.sqrt(len(mine))
        assert (np.abs(mine.mean(axis=0) - leduc.values(plans)) < 4.5 * error).all()
    assert abs((got.entry[:, 0] == 0).mean() - 0.8) < 4.5 * np.sqrt(0.16 / 40_000)
    assert abs((got.entry[:, 1] == 0).mean() - 0.3) < 4.5 * np.sqrt(0.21 / 40_000)


def test_seats_stay_apart_however_often_each_is_drawn(leduc):
    """One policy in both seats, drawn 2 to 1: returns by seat do not depend on how many environments each seat has (invariant 5)."""
    both = TabularPolicy(
        tabular_spec(leduc.enumeration, (0, 1)), {"probs": np.concatenate([table(leduc, p, 0) for p in range(2)])}
    )
    me, other = PolicyRef(0, "me"), PolicyRef(0, "other")
    worker = worker_of(TreeVectorEnv(leduc, 999), {me: both, other: both})
    mixture = Mixture.product({0: ([other], [1.0]), 1: ([other], [1.0])})
    got = worker.run(RolloutRequest(me, (0, 0, 1), mixture, "episodes", 39_960, seed=3)).episodes
    exact = leduc.values([leduc.realization(p, table(leduc, p, 0)) for p in range(2)])
    for seat, count in ((0, 26_640), (1, 13_320)):
        mine = got.returns[got.seat == seat]
        assert len(mine) == count
        assert (np.abs(mine.mean(axis=0) - exact) < 4.5 * mine.std(axis=0) / np.sqrt(count)).all()


def test_rewards_of_the_rows_sum_to_the_returns(leduc):
    me, other = PolicyRef(0, "me", 5), PolicyRef(1, "other")
    worker = worker_of(TreeVectorEnv(leduc, 64), {me: tabular(leduc, 0, 0), other: tabular(leduc, 1, 0)})
    mixture = Mixture.product({1: ([other], [1.0])})
    got = worker.run(RolloutRequest(me, (0,), mixture, "episodes", 640, seed=3))
    rows = got.trajectories
    sums = np.add.reduceat(rows.reward, rows.start[:-1])
    by_index = dict(zip(got.episodes.index.tolist(), got.episodes.returns[:, 0].tolist(), strict=True))
    assert rows.num_segments == 640  # player 0 opens every hand
    assert [by_index[e] for e in rows.episode.tolist()] == pytest.approx(sums.tolist())
    probs = table(leduc, 0, 0)[rows.observation, rows.action]
    np.testing.assert_allclose(rows.logp, np.log(probs), atol=1e-5)
    assert (rows.bootstrap_observation == -1).all()


def test_the_same_request_gives_the_same_rollout_and_another_seed_another(leduc):
    me, other = PolicyRef(0, "me", 5), PolicyRef(1, "other")
    policies = {me: tabular(leduc, 0, 0), other: tabular(leduc, 1, 0)}
    mixture = Mixture.product({1: ([other], [1.0])})
    request = RolloutRequest(me, (0,), mixture, "episodes", 128, seed=3)
    worker = worker_of(TreeVectorEnv(leduc, 32), policies)
    first = worker.run(request)
    same(first, worker.run(request))
    same(first, worker_of(TreeVectorEnv(leduc, 32), policies).run(request))
    other_seed = worker.run(RolloutRequest(me, (0,), mixture, "episodes", 128, seed=4))
    assert not np.array_equal(first.episodes.returns, other_seed.episodes.returns)


def test_an_amount_that_the_environments_do_not_divide_is_played_exactly(leduc):
    both = {PolicyRef(p, "x"): tabular(leduc, p, 0) for p in range(2)}
    mixture = Mixture.product({p: ([PolicyRef(p, "x")], [1.0]) for p in range(2)})
    for amount in (1, 7, 33):
        got = worker_of(TreeVectorEnv(leduc, 8), both).run(
            RolloutRequest(None, (), mixture, "episodes", amount, seed=1)
        )
        assert got.episodes.index.tolist() == list(range(amount))
        assert got.counters["episodes"] == amount
        assert got.counters["env_steps"] == got.episodes.length.sum() == got.counters["decisions"]


@pytest.mark.parametrize("game", [LEDUC, RANDOM_POINTS, "kuhn_poker(players=3)"])
def test_the_general_path_plays_the_same_episodes_as_the_tree(game):
    tree = compile_tree(game)
    players = tree.num_players
    refs = [PolicyRef(p, "net") for p in range(players)]
    me = PolicyRef(0, "me", 1)
    nets = {ref: network(tree, k) for k, ref in enumerate(refs)} | {me: network(tree, 77)}
    mixture = Mixture.product({p: ([refs[p]], [1.0]) for p in range(1, players)})
    request = RolloutRequest(me, (0,), mixture, "episodes", 48, seed=11)
    by_tree = worker_of(TreeVectorEnv(tree, 12), nets, tabulate=False).run(request)
    by_game = worker_of(OpenSpielVectorEnv(game, 12), nets).run(request)
    same(by_tree, by_game)
    ids = by_tree.trajectories.observation
    assert np.array_equal(tree.enumeration.observation[ids], by_game.trajectories.observation)
    assert np.array_equal(tree.enumeration.mask[ids], by_game.trajectories.mask)


def test_tables_play_as_their_networks_do(leduc):
    me, other = PolicyRef(0, "me", 1), PolicyRef(1, "other")
    nets = {me: network(leduc, 1), other: network(leduc, 2)}
    request = RolloutRequest(me, (0,), Mixture.product({1: ([other], [1.0])}), "episodes", 512, seed=11)
    by_table = worker_of(TreeVectorEnv(leduc, 64), nets).run(request)
    by_network = worker_of(TreeVectorEnv(leduc, 64), nets, tabulate=False).run(request)
    same(by_table, by_network)


def test_tables_networks_and_stacks_mix(leduc):
    """Three kinds of opponents at once, each drawn by entry: the rows of each go to the right one."""
    a, b, c, d = (PolicyRef(1, name) for name in "abcd")

    class Untabulated(ActorCriticPolicy):
        def tabulate(self, *args, **kwargs):
            return None

    def untabulated(seed: int) -> ActorCriticPolicy:
        net = network(leduc, seed)
        return Untabulated(net.spec, net.weights())

    me = PolicyRef(0, "me", 1)
    opponents = {a: tabular(leduc, 1, 0), b: untabulated(2), c: untabulated(3), d: network(leduc, 4)}
    mixture = Mixture((OpponentFactor((1,), ((a,), (b,), (c,), (d,)), (0.25,) * 4),))
    request = RolloutRequest(me, (0,), mixture, "episodes", 20_000, seed=5)
    got = worker_of(TreeVectorEnv(leduc, 500), {me: tabular(leduc, 0, 0), **opponents}).run(request).episodes
    for k, policy in enumerate(opponents.values()):
        if isinstance(policy, Untabulated):
            probs = ActorCriticPolicy.tabulate(policy, leduc.enumeration, 1)
        else:
            probs = policy.tabulate(leduc.enumeration, 1)
        exact = leduc.values([leduc.realization(0, table(leduc, 0, 0)), leduc.realization(1, probs)])
        mine = got.returns[got.entry[:, 0] == k]
        assert (np.abs(mine.mean(axis=0) - exact) < 4.5 * mine.std(axis=0) / np.sqrt(len(mine))).all()


def test_fragments_hold_the_same_stream_as_whole_episodes(leduc):
    me, other = PolicyRef(0, "me", 5), PolicyRef(1, "other")
    policies = {me: tabular(leduc, 0, 0), other: tabular(leduc, 1, 0)}
    mixture = Mixture.product({1: ([other], [1.0])})
    worker = worker_of(TreeVectorEnv(leduc, 16), policies)
    rows: dict[int, list[tuple]] = {}
    returns: dict[int, float] = {}
    for k in range(6):
        got = worker.run(RolloutRequest(me, (0,), mixture, "decisions", 50, seed=k, carry_on=k > 0))
        r = got.trajectories
        assert r.num_rows >= 50
        for s in range(r.num_segments):
            span = slice(r.start[s], r.start[s + 1])
            rows.setdefault(int(r.episode[s]), []).extend(zip(r.t[span].tolist(), r.reward[span].tolist(), strict=True))
            if r.tail[s] == 2:  # a cut segment's tail is where the next one of its episode begins
                assert r.bootstrap_observation[s] >= 0
        returns |= dict(zip(got.episodes.index.tolist(), got.episodes.returns[:, 0].tolist(), strict=True))
    assert len(returns) > 60
    for episode, value in returns.items():
        times = [t for t, _ in rows[episode]]
        assert times == sorted(set(times))
        assert sum(reward for _, reward in rows[episode]) == pytest.approx(value)
