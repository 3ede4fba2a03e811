"""Batched tree search against plain Python, tactics, noise at the root, and the policy that searches."""

import numpy as np
import pytest

from ludus.contrib.algorithms.muzero.policy import make_muzero
from ludus.core.errors import ConfigError, PolicyError
from ludus.core.types import Enumeration, PolicySpec
from ludus.envs.rules import InARow
from ludus.policies.actor_critic import arrays_of, initial_weights
from ludus.policies.bots import parse_bot
from ludus.policies.file import save_policy
from ludus.policies.registry import build_policy
from ludus.policies.search import policy as search_policy
from ludus.policies.search import tree as trees
from ludus.policies.search.policy import KnownModel
from ludus.policies.search.search import Expanded, RootNoise, SearchSettings, halving, search
from ludus.policies.specs import joined, mlp_spec, muzero_spec, searching_spec, tabulates
from tests.reference.mcts import GumbelSearch, Search, losses

TIC_TAC_TOE = {"kind": "in_a_row", "rows": 3, "columns": 3, "length": 3, "planes": [2, 1, 0]}
RULES = InARow(3, 3, 3, planes=(2, 1, 0))
FOUR = InARow(4, 5, 3, gravity=True)


def opinion(rules):
    """A fixed network of random weights, in float64, whose rows do not depend on the batch: (logits, value)."""
    rng = np.random.default_rng(3)
    first, second = rng.standard_normal((rules.inputs, rules.actions)), rng.standard_normal(rules.inputs)

    def evaluate(x):
        logits, value = (x[:, :, None] * first).sum(1), np.tanh((x * second).sum(1))
        return logits.astype(np.float32), value.astype(np.float32)

    return evaluate


def uniform(rules):
    return lambda x: (np.zeros((len(x), rules.actions), np.float32), np.zeros(len(x), np.float32))


def openings(rules, count):
    """Positions after 0 to 4 random moves that end no game."""
    rng, out = np.random.default_rng(4), []
    while len(out) < count:
        position = np.zeros((1, rules.width), np.int8)
        for _ in range(len(out) % 5):
            moved = rules.step(position, rng.choice(np.flatnonzero(rules.legal(position)[0]), 1).astype(np.int32))
            assert moved.discount[0] != 0.0
            position = moved.positions
        out.append(position[0])
    return np.stack(out)


def roots(model, position):
    return model.roots(model.rules.observe(position), model.rules.legal(position))


def twin(rules, evaluate, kind=Search, **options):
    """The plain search of the same game and opinions."""

    def after(state, action):
        moved = rules.step(state, np.array([action], np.int32))
        return moved.positions, float(moved.reward[0]), moved.discount[0] == 0.0

    def judge(state):
        logits, value = evaluate(rules.observe(state))
        legal = np.flatnonzero(rules.legal(state)[0])
        weight = np.array([np.exp(float(logits[0, a]) - float(logits[0, legal].max())) for a in legal])
        total = 0.0
        for w in weight:
            total += w
        return {int(a): w / total for a, w in zip(legal, weight, strict=True)}, float(value[0])

    return kind(after, judge, **options)


@pytest.mark.parametrize("rules", [RULES, FOUR], ids=["tic-tac-toe", "four"])
@pytest.mark.parametrize(
    "options",
    [{}, {"unvisited": "node", "init": 2.5, "base": 50.0}, {"rescale": True}, {"rescale": True, "bounds": [-1.0, 1.0]}],
    ids=str,
)
def test_visits_are_those_of_plain_python(rules, options):
    """Every visit, value and choice, of twelve positions searched together."""
    evaluate, position = opinion(rules), openings(rules, 12)
    model, settings = KnownModel(rules, evaluate), SearchSettings(simulations=90, **options)
    found = search(model, roots(model, position), settings)
    names = {"node": options.get("unvisited") == "node"} | {k: v for k, v in options.items() if k != "unvisited"}
    for k, state in enumerate(position[:, None]):
        plain = twin(rules, evaluate, **names)
        root = plain.root(state)
        for _ in range(90):
            plain.simulate(root)
        expected = [root.visits.get(a, 0) for a in range(rules.actions)]
        assert found.visits[k].tolist() == expected
        assert found.value[k] == pytest.approx(root.mean(), abs=1e-12)
        np.testing.assert_allclose(found.policy[k], np.array(expected) / 90)
        assert expected[found.best[k]] == max(expected)


@pytest.mark.parametrize(("considered", "simulations"), [(4, 40), (16, 24), (3, 7)])
def test_gumbel_is_that_of_plain_python(considered, simulations):
    evaluate, position = opinion(FOUR), openings(FOUR, 8)
    model = KnownModel(FOUR, evaluate)
    settings = SearchSettings(simulations=simulations, selection="gumbel", considered=considered)
    uniforms = np.random.default_rng(0).random((8, 2), np.float32)
    found = search(model, roots(model, position), settings, RootNoise(uniforms, 1.0, 0.25))
    noise = trees.make_tree(8, 1, FOUR.actions)
    trees.draw_gumbel(noise, uniforms)
    for k, state in enumerate(position[:, None]):
        plain = twin(FOUR, evaluate, GumbelSearch)
        root = plain.root(state)
        best = plain.run(root, noise.noise[k], min(considered, len(root.prior)), simulations)
        assert found.visits[k].tolist() == [root.visits.get(a, 0) for a in range(FOUR.actions)]
        assert found.best[k] == best
        improved = plain.improved(root)
        np.testing.assert_allclose(found.policy[k], [improved.get(a, 0.0) for a in range(FOUR.actions)], atol=1e-12)


def test_halving_literal():
    """Four actions and eight simulations: one visit each, then the two best ones two each."""
    assert list(halving(4, 8)) == [0, 0, 0, 0, 1, 1, 2, 2]
    assert list(halving(1, 3)) == [0, 1, 2]
    assert list(halving(5, 5)) == [0, 0, 0, 0, 0]


def place(rules, *moves):
    position = np.zeros((1, rules.width), np.int8)
    for move in moves:
        position = rules.step(position, np.array([move], np.int32)).positions
    return position


@pytest.mark.parametrize("options", [{}, {"leaves": 4}, {"selection": "gumbel"}], ids=str)
def test_it_wins_in_one_and_blocks_in_one_without_a_network(options):
    """x at 0 and 1 wins at 2, whoever else threatens; o, who has nothing, must block there. Terminal values come back with the right
    sign."""
    model = KnownModel(RULES, uniform(RULES))
    position = np.concatenate([place(RULES, 0, 3, 1, 4), place(RULES, 0, 4, 1)])
    found = search(model, roots(model, position), SearchSettings(simulations=200, **options))
    assert found.best.tolist() == [2, 2]
    assert found.value[0] > 0.2
    assert found.value[1] < found.value[0]
    if options.get("selection") != "gumbel":
        assert found.visits.sum(1).tolist() == [200, 200]


@pytest.mark.slow
def test_with_enough_simulations_nobody_beats_it_without_a_network():
    """Tic-tac-toe against every reply, as first and as second player; with few simulations it loses."""
    model = KnownModel(RULES, uniform(RULES))

    def lost(simulations):
        settings = SearchSettings(simulations=simulations, unvisited="node")
        return losses(lambda seen, legal: search(model, model.roots(seen, legal), settings).best, RULES)

    assert lost(1500) == [0, 0]
    assert sum(lost(4)) > 0


def test_leaves_of_one_tree_are_kept_apart():
    """Four walks at once, with visits on their way counted as lost, go to four moves of the empty board; all that was on its way comes
    back."""
    model = KnownModel(RULES, uniform(RULES))
    found = search(model, roots(model, place(RULES)), SearchSettings(simulations=8, leaves=4))
    assert sorted(found.visits[0].tolist()) == [0, 1, 1, 1, 1, 1, 1, 1, 1]


def test_pending_leaves_count_as_virtual_losses():
    """argmax of (W - virtual n') / (N + n') + c P √N' / (1 + N + n'), for Q as they are; what nobody went to is worth its node."""
    rng, games, actions = np.random.default_rng(0), 300, 4
    tree = trees.make_tree(games, 9, actions)
    tree.kind[:, 0], tree.value[:, 0] = trees.OPEN, rng.uniform(-1, 1, games)
    tree.prior[:, 0] = rng.dirichlet(np.ones(actions), games)
    tree.visits[:, 0], tree.virtual[:, 0] = rng.integers(0, 3, (2, games, actions))
    visits, going, prior = tree.visits[:, 0].copy(), tree.virtual[:, 0].copy(), tree.prior[:, 0]
    tree.total[:, 0] = visits * rng.uniform(-1, 1, (games, actions))
    formula = SearchSettings(unvisited="node", virtual_loss=0.75).formula
    both, total = visits + going, tree.total[:, 0]
    n = 1 + both.sum(1, keepdims=True)
    mean = (tree.value[:, :1] + total.sum(1, keepdims=True)) / (1 + visits.sum(1, keepdims=True))
    q = np.where(both > 0, (total - 0.75 * going) / np.maximum(both, 1), mean)
    weight = formula.init + np.log((1 + n + formula.base) / formula.base)
    expected = (q + weight * np.sqrt(n) * prior / (1 + both)).argmax(1)
    node, action, leaf = np.zeros((3, games, 1), np.int32)
    trees.select(tree, formula, np.zeros(games, np.int32), node, action, leaf)
    np.testing.assert_array_equal(action[:, 0], expected)


class Arms:
    """One player, who may do one of six things again and again: what is reached by them is worth `least` and more, or less."""

    def __init__(self, least, most):
        self.least, self.most = least, most

    def expanded(self, states):
        worth = self.least + (self.most - self.least) * (states * 37 % 64) / 64
        n = len(states)
        return Expanded(
            states, np.zeros(n), np.ones(n), np.zeros((n, 6), np.float32), np.ones((n, 6), np.bool_), worth.astype(np.float32)
        )  # fmt: skip

    def expand(self, states, action):
        return self.expanded((states * 6 + 1 + action) % 4096)


@pytest.mark.parametrize("unit", [(-64.0, 0.0), (-65536.0, -32768.0), (1024.0, 1088.0), (2.0, 2.125)], ids=str)
def test_leaves_are_kept_apart_whatever_returns_are(unit):
    """With Q that are scaled, those of one player spread as those between 0 and 1 do: the first four walks go to four moves."""
    states = np.arange(5, dtype=np.int64)

    def found(simulations, least, most):
        model = Arms(least, most)
        settings = SearchSettings(simulations=simulations, leaves=4, rescale=True, unvisited="node")
        return search(model, model.expanded(states), settings).visits

    assert (np.sort(found(4, *unit)) == [0, 0, 1, 1, 1, 1]).all()
    np.testing.assert_array_equal(found(64, *unit), found(64, 0.0, 1.0))


def test_noise_is_a_dirichlets():
    """Its mean over many roots is uniform over the legal actions, its variance (1 - 1/n) / (n (n c + 1)); the share is what it says."""
    games, share = 4000, 0.25
    tree = trees.make_tree(games, 1, 4)
    tree.prior[:, 0] = [0.7, 0.3, 0.0, -1.0]
    trees.add_dirichlet(tree, np.random.default_rng(0).random((games, 2), np.float32), 0.6, share)
    prior = tree.prior[:, 0, :3]
    assert (tree.prior[:, 0, 3] == -1.0).all()
    np.testing.assert_allclose(prior.sum(1), 1.0)
    drawn = (prior - 0.75 * np.array([0.7, 0.3, 0.0])) / share
    np.testing.assert_allclose(drawn.mean(0), 1 / 3, atol=0.02)
    np.testing.assert_allclose(drawn.var(0), (1 / 3 * 2 / 3) / (3 * 0.6 + 1), atol=0.006)


def test_gumbel_noise_is_gumbels():
    tree = trees.make_tree(4000, 1, 3)
    trees.draw_gumbel(tree, np.random.default_rng(1).random((4000, 2), np.float32))
    assert tree.noise.mean() == pytest.approx(0.5772, abs=0.05)
    assert tree.noise.var() == pytest.approx(np.pi**2 / 6, abs=0.1)


# ------------------------------------------------------------------ the policy


def policy(*, temperature=1.0, **options):
    network = mlp_spec(inputs=27, actions=9, hidden=(8,))
    noise = {"concentration": 1.0, "share": 0.25, "temperature": temperature, "moves": 4}
    spec = searching_spec(network, rules=TIC_TAC_TOE, search={"simulations": 20, **options}, play=60, noise=noise)
    return build_policy(spec, joined({"network": initial_weights(network, np.random.default_rng(0))}))


def test_modes_are_the_network_alone_and_two_ways_to_search():
    one, position = policy(), openings(RULES, 10)
    observation, mask = RULES.observe(position), RULES.legal(position)
    noise = np.random.default_rng(1).random((10, 3), np.float32)
    for mode in ("explore", "greedy"):
        act, alone = (
            one.act(observation, mask, None, noise, mode=mode),
            one.network.act(observation, mask, None, noise, mode=mode),
        )
        np.testing.assert_array_equal(act.action, alone.action)
        assert not act.extras
    played = one.act(observation, mask, None, noise, mode="search")
    again = one.act(observation, mask, None, noise[::-1], mode="search")
    np.testing.assert_array_equal(played.action, again.action)  # chance has no part in it
    np.testing.assert_allclose(
        played.extras["search_policy"] * 60, np.round(played.extras["search_policy"] * 60), atol=1e-4
    )
    trained = one.act(observation, mask, None, noise, mode="self_play")
    visits = trained.extras["search_policy"]
    assert visits.shape == (10, 9)
    assert trained.extras["search_value"].shape == (10,)
    late = RULES.moves(position) >= 4
    assert late.tolist() == [False] * 4 + [True] + [False] * 4 + [True]
    rows = np.arange(10)
    assert (visits[late, trained.action[late]] == visits[late].max(1)).all()
    np.testing.assert_allclose(trained.logp[~late], np.log(visits[rows, trained.action])[~late], rtol=1e-5)
    assert (trained.logp[late] == 0.0).all()


def test_a_temperature_near_zero_draws_the_most_visited():
    """0.2 ^ 1000 is 0 in floating point; the greatest share is not."""
    one, position = policy(temperature=0.001), openings(RULES, 4)
    noise = np.random.default_rng(1).random((4, 3), np.float32)
    act = one.act(RULES.observe(position), RULES.legal(position), None, noise, mode="self_play")
    visits = act.extras["search_policy"]
    np.testing.assert_array_equal(visits[np.arange(4), act.action], visits.max(1))
    assert np.isfinite(act.logp).all()


def test_a_search_depends_on_its_row_alone():
    one, position = policy(selection="gumbel"), openings(RULES, 6)
    observation, mask = RULES.observe(position), RULES.legal(position)
    noise = np.random.default_rng(2).random((6, 3), np.float32)
    together = one.act(observation, mask, None, noise, mode="self_play")
    for k in range(6):
        rows = slice(k, k + 1)
        alone = one.act(observation[rows], mask[rows], None, noise[rows], mode="self_play")
        assert alone.action[0] == together.action[k]
        np.testing.assert_allclose(alone.extras["search_policy"][0], together.extras["search_policy"][k], atol=1e-5)


def states_of(count):
    """An enumerated game of positions without an end, the last of which looks like the first."""
    states = openings(RULES, count)
    states[-1] = states[0]
    return Enumeration(RULES.observe(states), RULES.legal(states), (0, count), tuple("abcdefgh"[:count]))


def test_specs_say_where_it_has_a_table():
    one = policy()
    assert [mode for mode in one.modes if tabulates(one.spec, mode=mode)] == ["explore", "greedy", "search"]
    for mode in one.modes:
        assert (one.tabulate(states_of(6), 0, mode=mode) is not None) == tabulates(one.spec, mode=mode)


def test_a_table_of_a_search_is_what_it_plays(monkeypatch):
    """What looks alike is searched once: here five of six, three at a time at most."""
    one, game, asked = policy(), states_of(6), []
    plain = one.search
    monkeypatch.setattr(search_policy, "_TOGETHER", 3)
    monkeypatch.setattr(one, "search", lambda *given: asked.append(len(given[0])) or plain(*given))
    table = one.tabulate(game, 0, mode="search")
    assert asked == [3, 2]
    monkeypatch.undo()
    action = one.act(game.observation, game.mask, None, np.zeros((6, 3), np.float32), mode="search").action
    np.testing.assert_array_equal(table, np.eye(9)[action])


def test_the_table_of_a_player_who_never_decides_is_empty():
    game = states_of(6)
    both = Enumeration(game.observation, game.mask, (0, 6, 6), game.key)
    assert policy().tabulate(both, 1, mode="search").shape == (0, 9)


def test_muzeros_network_has_a_table_and_its_search_another():
    spec = muzero_spec(
        inputs=27, actions=9, hidden=(8,), latent=5, support=2, discount=-1.0, search={"simulations": 5}, play=9,
        noise={"concentration": 1.0, "share": 0.25},
    )  # fmt: skip
    one, game = build_policy(spec, arrays_of(make_muzero(spec))), states_of(6)
    observation, legal = game.observation, game.mask
    for mode in one.modes:
        table = one.tabulate(game, 0, mode=mode)
        assert (table is not None) == tabulates(spec, mode=mode) == (mode != "self_play")
        if table is not None:
            act = one.act(observation, legal, None, np.full((6, 3), 0.6, np.float32), mode=mode)
            np.testing.assert_allclose(table[np.arange(6), act.action], np.exp(act.logp), rtol=1e-5)
    found = one.act(observation, legal, None, np.full((6, 3), 0.6, np.float32), mode="search")
    assert (found.extras["search_policy"][~legal] == 0).all()
    np.testing.assert_allclose(found.extras["search_policy"].sum(1), 1.0, rtol=1e-5)


def test_a_bot_searches_with_as_many_simulations_as_one_likes(tmp_path):
    one, position = policy(), openings(RULES, 5)
    save_policy(tmp_path / "one.safetensors", one.spec, one.weights())
    bot = parse_bot(f"ludus.policies.search.bot:SearchBot,policy={tmp_path}/one.safetensors,simulations=7").make()
    seven = build_policy(PolicySpec("searching", {**one.spec.config, "play": 7}), one.weights())
    observation, legal = RULES.observe(position), RULES.legal(position)
    expected = seven.act(observation, legal, None, np.zeros((5, 3), np.float32), mode="search").action
    bot.restart(0, 5)
    assert [bot.act(seen, mask) for seen, mask in zip(observation, legal, strict=True)] == expected.tolist()
    save_policy(tmp_path / "two.safetensors", one.network.spec, one.network.weights())
    with pytest.raises(ConfigError, match="kind 'actor_critic', which does not search"):
        parse_bot(f"ludus.policies.search.bot:SearchBot,policy={tmp_path}/two.safetensors").make()


def test_rules_of_another_game_are_refused():
    one = policy()
    observation = RULES.observe(openings(RULES, 1))
    with pytest.raises(PolicyError, match="the rules are of another game"):
        one.act(observation, np.eye(9, dtype=bool)[:1], None, np.zeros((1, 3), np.float32), mode="search")
