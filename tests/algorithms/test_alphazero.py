"""AlphaZero: what is learned of a search, its loss by hand, the contract, refusals, and that it learns tic-tac-toe."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from alphazero_games import outcomes, played, small, spec

from ludus.algorithms.alphazero.learner import policy_loss, value_loss, weight_norm
from ludus.algorithms.common.base import LearnerContext
from ludus.core.errors import ConfigError, DataError, ScenarioError
from ludus.core.types import PolicyRef, SegmentEnd
from ludus.policies.file import load_policy
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.rollout.worker import RolloutWorker
from ludus.runs.runner import run
from ludus.runs.scenario_check import check
from ludus.runs.scenario_files import load_scenario
from ludus.testing.algorithm import check_algorithm
from tests.reference.mcts import losses

T = torch.tensor


def learner_of(algorithm, **options):
    return algorithm.learner(LearnerContext(spec(), (0, 1), 0, total=100, **options))


def sample(items, rows):
    return Sample({name: column[rows] for name, column in items.items()}, np.arange(len(rows)), np.ones(len(rows)))


def test_loss_literal():
    """Two rows. The first has probabilities (1/4, 3/4) of its two legal actions, of which the search took all; the second is right."""
    logits = T([[0.0, np.log(3.0), 50.0], [0.0, 0.0, 0.0]], dtype=torch.float32)
    mask = T([[True, True, False], [False, True, False]])
    policy = T([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    torch.testing.assert_close(policy_loss(logits, policy, mask), T([np.log(4 / 3), 0.0]).float())
    torch.testing.assert_close(value_loss(T([0.5, -1.0]), T([1.0, -1.0])), T([0.25, 0.0]))
    assert weight_norm([T([1.0, 2.0]), T([[3.0]])]).item() == 14.0


def test_an_update_is_the_gradient_of_the_loss_that_it_says():
    """Without symmetries; the numbers by autograd on the policy's own outputs, and Adam's first step, which has the rate as its length."""
    algorithm = small(symmetries=False, l2=0.01, value_coefficient=0.5, learning_rate=1e-3)
    learner = learner_of(algorithm)
    items = dict(learner.items(played(learner, 0)))["replay"]
    batch = sample(items, np.arange(12))
    network = build_policy(learner.spec, learner.weights()).network
    out = network.evaluate(batch.columns["observation"])
    logits = out.out[:, :9]
    logp = logits - np.log((np.exp(logits) * batch.columns["mask"]).sum(1, keepdims=True))
    by_policy = -(batch.columns["policy"] * logp).sum(1).mean()
    by_value = ((batch.columns["value"] - out.value) ** 2).mean()
    norm = sum((array.astype(np.float64) ** 2).sum() for array in learner.weights().values())
    before = learner.weights()
    told = learner.update(batch)
    assert told["policy_loss"] == pytest.approx(by_policy, rel=1e-4)
    assert told["value_loss"] == pytest.approx(by_value, rel=1e-4)
    assert told["loss"] == pytest.approx(by_policy + 0.5 * by_value + 0.01 * norm, rel=1e-4)
    moved = np.abs(np.concatenate([(learner.weights()[k] - before[k]).ravel() for k in before]))
    assert moved.max() == pytest.approx(1e-3, rel=1e-2)


def test_targets_are_what_was_found_and_how_it_ended():
    learner = learner_of(small())
    rows = played(learner, 0)
    ((name, items),) = learner.items(rows)
    assert name == "replay"
    assert set(rows.seat) == {0, 1}
    np.testing.assert_array_equal(items["policy"], rows.extras["search_policy"])
    np.testing.assert_allclose(items["policy"].sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(items["value"], outcomes(rows))
    assert {-1.0, 1.0} <= set(items["value"].tolist())
    assert (items["policy"][~items["mask"]] == 0).all()


def test_a_game_that_it_plays_in_both_seats_is_one_episode():
    """Schedules follow games, as `response` counts them: six of twelve are half of the training."""
    learner = learner_of(small(learning_rate={"start": 1.0, "end": 0.0}))
    learner.budget.total = 12
    learner.items(played(learner, 0))
    assert learner.rate(learner.config.learning_rate) == 0.5


def test_later_searches_stand_in_for_the_outcome():
    """λ = 0: the value that the next own search found, at the end the reward. Truncated: the last one's, for what was not played."""
    learner = learner_of(small(value_lambda=0.0))
    rows = played(learner, 0)
    found, last = rows.extras["search_value"], rows.start[1:] - 1
    expected = np.append(found[1:], 0.0)
    expected[last] = rows.reward[last]
    np.testing.assert_allclose(dict(learner.items(rows))["replay"]["value"], expected, rtol=1e-6)
    cut = replace(
        rows,
        tail=np.full_like(rows.tail, SegmentEnd.TRUNCATED),
        reward=np.where(np.isin(np.arange(rows.num_rows), last), 7.0, 0.0),
    )
    expected[last] = found[last]
    np.testing.assert_allclose(dict(learner.items(cut))["replay"]["value"], expected, rtol=1e-6)


def test_without_a_search_there_is_nothing_to_learn():
    learner = learner_of(small())
    with pytest.raises(DataError, match="no search_policy and no search_value"):
        learner.items(replace(played(learner, 0), extras={}))


@pytest.mark.parametrize(("factor", "own"), [(-1.0, "-1"), (0.5, "0.5")])
def test_games_that_pay_something_else_than_their_rules_are_refused(factor, own):
    """Whoever has won gets -1, or half of what the search plays for."""
    learner = learner_of(small())
    rows = played(learner, 0)
    won = rows.reward.max() == 1.0
    assert won
    with pytest.raises(DataError, match=f"got {own}, as it is learned, where the rules say 1. Leave out wrappers"):
        learner.items(replace(rows, reward=factor * rows.reward))
    nobody = replace(rows, reward=-rows.reward, added=np.ones(rows.num_segments, np.bool_))
    learner.items(nobody)  # played them, so that it is whoever added them who says what they are paid


def test_rewards_that_are_larger_are_learned_as_shares():
    """Of the most that there is to win, or not at all."""
    ten = replace(spec(), utility_range=((-10.0, 10.0),) * 2)
    small().check(ten)
    with pytest.raises(ScenarioError, match="of which 10 would be learned"):
        small(scale_rewards=False).check(ten)
    learner = small().learner(LearnerContext(ten, (0, 1), 0, total=100))
    rows = played(learner, 0)
    items = dict(learner.items(replace(rows, reward=10 * rows.reward)))["replay"]
    np.testing.assert_allclose(items["value"], outcomes(rows), rtol=1e-6)


def test_without_masks_what_the_rules_allow_is_legal():
    learner = learner_of(small())
    rows = played(learner, 0)
    assert rows.mask is not None
    assert not rows.mask.all()
    items = dict(learner.items(replace(rows, mask=None)))["replay"]
    np.testing.assert_array_equal(items["mask"], rows.mask)


def test_symmetries_teach_what_turned_boards_teach():
    """A row with its best move in a corner, learned from for a while, is known in all four corners."""
    learner = learner_of(small(l2=0.0, learning_rate=0.01, hidden=(32,)))
    items = dict(learner.items(played(learner, 0)))["replay"]
    first = sample(items, np.flatnonzero(items["mask"].all(1))[:1].repeat(32))
    policy = np.zeros((32, 9), np.float32)
    policy[:, 0] = 1.0
    batch = replace(first, columns={**first.columns, "policy": policy})
    for _ in range(150):
        learner.update(batch)
    network = build_policy(learner.spec, learner.weights()).network
    shares = network.probabilities(batch.columns["observation"][:1], batch.columns["mask"][:1], mode="explore")[0][0]
    np.testing.assert_allclose(shares[[0, 2, 6, 8]], 0.25, atol=0.06)


def test_searches_anew_teach_what_the_newest_weights_find():
    """Of the first half of a batch, whatever had been found there."""
    anew, plain = (learner_of(small(reanalyse=share, noise=0.0)) for share in (0.5, 0.0))
    columns = {name: column[:8] for name, column in dict(anew.items(played(anew, 0)))["replay"].items()}
    searcher = build_policy(anew.spec, anew.weights())
    fresh = searcher.search(columns["observation"][:4], columns["mask"][:4], np.zeros((4, 2), np.float32)).policy
    found = np.concatenate([fresh.astype(np.float32), columns["policy"][4:]])
    old = np.concatenate([columns["mask"][:4].astype(np.float32), columns["policy"][4:]])
    anew.update(sample({**columns, "policy": old}, np.arange(8)))
    plain.update(sample({**columns, "policy": found}, np.arange(8)))
    for name, array in anew.weights().items():
        np.testing.assert_array_equal(array, plain.weights()[name])


def test_ranks_search_anew_what_one_learner_does():
    """Three quarters of the whole batch, each row with the same noise."""
    learner = learner_of(small(reanalyse=0.75, selection="gumbel"))
    columns = {name: column[:8] for name, column in dict(learner.items(played(learner, 0)))["replay"].items()}
    observation, mask = columns["observation"], columns["mask"]
    policy = torch.full(mask.shape, -1.0)
    whole = learner.reanalyzed_policy(policy, observation, mask, slice(0, 8))
    assert (whole[:6] != policy[:6]).any(dim=1).all()
    assert (whole[6:] == policy[6:]).all()
    parts = [
        learner.reanalyzed_policy(policy[s], observation, mask, s) for s in (slice(0, 3), slice(3, 6), slice(6, 8))
    ]
    torch.testing.assert_close(torch.cat(parts), whole)


@pytest.mark.parametrize(
    "options", [{}, {"selection": "gumbel", "average": 0.1, "symmetries": False, "reanalyse": 0.5}], ids=str
)
def test_alphazero_satisfies_algorithm_contract(options):
    """Saved, resumed and learned twice, to the bit; from games that its own searches played."""
    check_algorithm(small(**options), spec(), seats=(0, 1), rollouts=played, rounds=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selection": "gumbel", "leaves": 4}, "leaves is 4, and must be 1"),
        ({"min_size": 50, "capacity": 40}, "min_size 50 must be at most"),
        ({"priority_exponent": 0.5}, "no priorities"),
        ({"reanalyse": 0.05}, "reanalyse 0.05 of a batch of 16 is less than one row"),
        ({"rules": "chess"}, "chess"),
    ],
)
def test_settings_that_fit_nothing(options, message):
    with pytest.raises(ConfigError, match=message):
        small(**options)


def test_games_that_it_cannot_search(tensors):
    with pytest.raises(ScenarioError, match="there are none for made up"):
        small().check(tensors)
    with pytest.raises(ScenarioError, match="Give share=always"):
        small().check(spec(), (1,))
    wrong = {"kind": "in_a_row", "rows": 3, "columns": 4, "length": 3}
    with pytest.raises(ScenarioError, match="rules with 36 entries"):
        small(rules=wrong).check(spec())
    small().check(spec(), (0, 1))


def test_only_those_who_can_are_played_by_a_search():
    scenario = load_scenario("tic-tac-toe-alphazero", [])
    check(scenario, spec(), matches=spec())
    with pytest.raises(
        ScenarioError, match="mode=search was given, and the algorithm 'ppo' trains policies of kind 'actor_critic'"
    ):
        check(load_scenario("tic-tac-toe-alphazero", ["algorithm=ppo"]), spec(), matches=spec())


FEW = (
    *("latest=0.5", "generations=2", "response.episodes=16", "evaluation.episodes=2", "env.num_envs=8"),
    *(
        f"algorithm.{option}"
        for option in ("rollout=8", "simulations=4", "play_simulations=4", "hidden=[8]", "batch=16")
    ),
    "algorithm.min_size=20",
)


def test_it_meets_its_past(tmp_path, monkeypatch):
    """With `latest` below 1: the version of before, which searches, too; of those games the learner's own moves alone are learned."""
    steps, met, recorded = RolloutWorker._steps, Counter(), Counter()

    def watched(worker, request):
        for rollout in steps(worker, request):
            if rollout is not None and request.modes:  # it trains
                factors = request.opponents.factors
                met.update(
                    f.entries[k][0]
                    for row in rollout.episodes.entry
                    for f, k in zip(factors, row, strict=True)
                    if k >= 0
                )
                recorded.update(np.unique(rollout.trajectories.episode, return_counts=True)[1].tolist())
            yield rollout

    monkeypatch.setattr(RolloutWorker, "_steps", watched)
    run(load_scenario("tic-tac-toe-alphazero", list(FEW)), run_dir=tmp_path / "run", report=False)
    assert set(met) == {PolicyRef(0, "0-0", 0, "explore"), PolicyRef(0, "0-1", 0, "search")}
    assert recorded[1] == sum(met.values())
    assert recorded[2] > 0


def test_its_versions_make_a_league(tmp_path):
    """Main agents and both kinds of exploiters learn from searches against what the ordinary schedule has them meet."""
    small = [option for option in FEW if not option.startswith("latest")]
    learns = ["scenario=league", "algorithm.updates_per_decision=0.2"]
    run(load_scenario("tic-tac-toe-alphazero", [*small, *learns]), run_dir=tmp_path / "run", report=False)
    files = {path.stem: path.read_bytes() for path in (tmp_path / "run" / "policies" / "0").iterdir()}
    roles = ("league_exploiter-0", "league_exploiter-1", "main-0", "main_exploiter-0")
    assert set(files) == {"0-0", *(f"{role}-{generation}" for role in roles for generation in (1, 2))}
    assert len(set(files.values())) == len(files)  # equal policies have equal files: each has learned, by itself


def lost(policy, mode):
    """Of all that can be played against it."""

    def choose(observation, legal):
        return policy.act(
            observation, legal, None, np.zeros((len(legal), policy.noise_width), np.float32), mode=mode
        ).action

    return losses(choose, policy.model.rules)


@pytest.mark.slow
def test_tic_tac_toe_is_never_lost(tmp_path):
    """The preset's last version, searching, against all that can be played; of the first version it is often lost."""
    run(load_scenario("tic-tac-toe-alphazero"), run_dir=tmp_path / "run", report=False)
    first, last = (load_policy(next((tmp_path / "run" / "policies" / "0").glob(f"0-{k}.safetensors"))) for k in (1, 5))
    assert lost(last, "search") == [0, 0]
    assert sum(lost(first, "greedy")) > 5
