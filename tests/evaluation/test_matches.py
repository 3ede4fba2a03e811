"""Payoffs by play: luck of mixtures and of profiles, episodes of their own for final figures, counts of wins; `evaluate_run`."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import ludus
from ludus.core.errors import ConfigError, LudusError, RunError
from ludus.core.types import Match, Mixture, OpponentFactor, PolicyRef
from ludus.envs.config import Environment
from ludus.envs.registry import make_env
from ludus.evaluation.evaluate import HeadToHead, evaluate_run
from ludus.evaluation.matches import MatchProfile, MatchRunner, outcomes
from ludus.metagame.population.match_log import win_rate
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import tabular_spec
from ludus.rollout.host import LocalRollouts
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import InProcess
from ludus.storage.reader import Reader


@pytest.fixture
def player() -> MatchRunner:
    """Kuhn poker, in which "pass" always passes and "bet" always bets, in either seat."""
    return MatchRunner(LocalRollouts.around(make_env("openspiel/kuhn_poker", num_envs=16)), always, seed=3)


def always(ref: PolicyRef) -> Policy:
    """Passes, or bets, in Kuhn poker."""
    enumeration = make_env("openspiel/kuhn_poker", num_envs=1).spec.enumeration
    assert enumeration is not None
    probs = np.tile(np.eye(2)[["pass", "bet"].index(ref.policy)], (12, 1))
    return build_policy(tabular_spec(enumeration, (0, 1)), {"probs": probs})


def refs(*names: str) -> tuple[PolicyRef, ...]:
    return tuple(PolicyRef(p, name) for p, name in enumerate(names))


def match(
    player: MatchRunner, index: tuple[int, ...], seats: tuple[PolicyRef, ...], episodes: int, **options: Any
) -> Match:
    (found,) = player.play([MatchProfile(index, seats)], episodes, **options)
    return found


def test_a_match_by_hand(player: MatchRunner) -> None:
    """Passing twice shows the cards for one; a bet against a passing player wins the ante of one; bet and call shows for two."""
    both = match(player, (0, 0), refs("pass", "pass"), 600)
    assert both.mean[1] == -both.mean[0]
    won_, drawn, lost = both.wins[0]
    assert (won_ + lost, drawn) == (600, 0)
    assert both.wins[1] == (lost, drawn, won_)
    assert both.mean[0] == pytest.approx((won_ - lost) / 600)
    assert both.m2[0] == pytest.approx(600 * (1 - both.mean[0] ** 2))  # returns are 1 and -1
    bluff = match(player, (1, 0), refs("bet", "pass"), 100)
    assert (bluff.mean.tolist(), bluff.m2.tolist(), bluff.wins[0]) == ([1.0, -1.0], [0.0, 0.0], (100, 0, 0))
    called = match(player, (1, 1), refs("bet", "bet"), 600)
    assert called.m2[0] == pytest.approx(600 * (4 - called.mean[0] ** 2))
    assert (called.n, called.profile, called.seats, called.exact) == (600, (1, 1), refs("bet", "bet"), False)


def test_how_far_a_match_is_can_be_heard(player: MatchRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here before every step: 33 episodes in 16 environments end after 2, 4 and 6 decisions."""
    unheard = match(player, (0, 0), refs("pass", "pass"), 33)
    monkeypatch.setattr("ludus.rollout.rollouts.REPORT_SECONDS", 0.0)
    told = list[int]()
    heard = match(player, (0, 0), refs("pass", "pass"), 33, on_progress=told.append)
    assert told == [0, 0, 16, 16, 32, 32]
    assert (heard.mean.tolist(), heard.m2.tolist()) == (unheard.mean.tolist(), unheard.m2.tolist())
    with pytest.raises(ZeroDivisionError):  # what it raises ends the match
        match(player, (0, 0), refs("pass", "pass"), 33, on_progress=lambda ended: 1 // (ended - 16))


def test_matches_count_what_matches_count() -> None:
    """Where learners are paid otherwise: here ten times as much, in environments of their own."""
    kuhn = Environment(id="openspiel/kuhn_poker", num_envs=4)
    paid = kuhn.model_copy(update={"wrappers": ({"kind": "scale_reward", "factor": 10.0},)})
    players = alone("pass", "pass")
    returns = []
    for scored in (kuhn.make, None):
        rollouts = RolloutManager(InProcess(), paid.make, spec=paid.make().spec, num_envs=4, scored=scored)
        returns.append(MatchRunner(rollouts, always, seed=3).returns(players, 8))
        rollouts.close()
    np.testing.assert_array_equal(10 * returns[0], returns[1])


def test_training_only_rewards_do_not_count_in_matches() -> None:
    def football(**rewards: float) -> Environment:
        return Environment(id="football/5_vs_5", options={"rewards": rewards, "duration": 40})

    shaped = football(goal=1.0, checkpoints=0.1)
    assert (shaped.scored.options, shaped.played.options) == ({"duration": 40}, {"duration": 40})
    assert football(win=2.0, checkpoints=0.1).scored == football(win=2.0)
    for pure in (football(win=1.0), football(score=1.0), football(score=0.5, win=1.0)):
        assert pure.scored is pure
    assert football(win=1.0).played == football(win=1.0)
    # A game is the same whether its options say what they are anyway.
    assert football(score=1.0).played == football(score=1.0, checkpoints=0.1).played == shaped.played
    kitchen = Environment(id="jaxmarl/overcooked", options={"layout": "cramped_room", "shaped_rewards": 1.0})
    assert kitchen.scored.options == {"layout": "cramped_room"}
    board = Environment(id="openspiel/tic_tac_toe", options={"openings": 2})
    assert board.scored is board
    assert board.played.options == {}


def test_mixtures_share_their_luck_and_blocks_do_not(player: MatchRunner) -> None:
    """The cards of episode k are the same whoever plays, for differences of pairs: called bets are twice what checks are."""
    small, large = (player.returns(alone(*names), 200) for names in (("pass", "pass"), ("bet", "bet")))
    np.testing.assert_array_equal(2 * small, large)
    again, other = player.returns(alone("pass", "pass"), 200), player.returns(alone("pass", "pass"), 200, block=1)
    np.testing.assert_array_equal(again, small)
    assert not np.array_equal(other, small)
    assert abs(np.corrcoef(small[:, 0], other[:, 0])[0, 1]) < 0.3


def test_profiles_have_luck_of_their_own_in_every_order_of_the_seats() -> None:
    """Policies that all pass: (a, b) and (b, a) get the same cards, and so return the same; (a, c) gets others."""
    env = make_env("openspiel/kuhn_poker", num_envs=16)
    assert env.spec.enumeration is not None
    spec = tabular_spec(env.spec.enumeration, (0, 1))
    passing = build_policy(spec, {"probs": np.tile([1.0, 0.0], (12, 1))})
    player = MatchRunner(LocalRollouts.around(env), lambda _: passing, seed=3)
    a, b, c = (PolicyRef(0, name) for name in "abc")
    found = player.play(
        [MatchProfile((0, 0), seats) for seats in ((a, b), (b, a), (a, c), (a, b._replace(version=7)))], 500
    )
    one, turned, other, older = (match.mean[0] for match in found)
    assert one == turned == older != other


def alone(*names: str) -> Mixture:
    return Mixture((OpponentFactor((0, 1), (refs(*names),), (1.0,)),))


def test_outcomes_by_hand() -> None:
    returns = np.array([[1.0, -1.0, 0.0], [0.5, 0.5, -1.0], [0.0, 0.0, 0.0], [-2.0, 1.0, 1.0]])
    assert outcomes(returns) == ((1, 2, 1), (0, 3, 1), (0, 2, 2))
    assert win_rate(returns, np.array([0, 0, 1, 1], np.int8)) == 0.25
    assert win_rate(returns[:, :1], np.zeros(4, np.int8)) == 0.5  # alone: above 0
    assert outcomes(returns[:, :1]) == ((2, 1, 1),)


# ---------------------------------------------------------------------------------------------- evaluate_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four generations of exact responses on Kuhn, with payoffs that were played."""
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    scenario = ludus.PSRO(
        env=ludus.Environment(id="openspiel/kuhn_poker", num_envs=16),
        algorithm="exact",
        generations=4,
        evaluation=ludus.Evaluation(payoffs="simulate", episodes=300),
    )
    ludus.run(scenario, run_dir=run_dir, report=False)
    return run_dir


def by_names(run_dir: Path, *names: str, episodes: int = 300) -> dict[tuple[str, ...], HeadToHead]:
    return {match.policies: match for match in evaluate_run(run_dir, episodes=episodes, policies=names).matches}


def test_meta_and_the_newest_by_default(finished: Path) -> None:
    report = evaluate_run(finished, episodes=200)
    assert [match.policies for match in report.matches] == [
        ("@meta", "@meta"),
        ("@meta", "@1/1-4"),
        ("@0/0-4", "@meta"),
        ("@0/0-4", "@1/1-4"),
    ]
    assert (report.run_dir, report.env, report.generation) == (finished, "openspiel/kuhn_poker", 4)
    with Reader(finished) as reader:
        last = reader.generations()[-1]
    assert report.exploitability is not None
    assert report.exploitability.nash_conv == pytest.approx(last.nash_conv, abs=1e-12)
    np.testing.assert_allclose(report.matches[0].exact, report.exploitability.value, atol=1e-12)


def test_evaluation_tells_how_far_it_is(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a match too; here after each step of it."""
    monkeypatch.setattr("ludus.rollout.rollouts.REPORT_SECONDS", 0.0)
    told: list[tuple[int, int]] = []
    evaluate_run(finished, episodes=400, tell=lambda *done: told.append(done))
    assert {total for _, total in told} == {1600}
    assert told == sorted(told)
    assert [any(400 * k < done < 400 * (k + 1) for done, _ in told) for k in range(4)] == [True] * 4


def test_any_policies_by_name(finished: Path) -> None:
    found = by_names(finished, "@0/0-1", "@0/0-2", "@1/1-3")
    assert list(found) == [("@0/0-1", "@1/1-3"), ("@0/0-2", "@1/1-3")]
    only = by_names(finished, "@meta")
    assert list(only) == [("@meta", "@meta")]
    with pytest.raises(ConfigError, match=r"no '0/0-7' to be named after the @; did you mean '0/0-"):
        evaluate_run(finished, policies=["@0/0-7"])
    with pytest.raises(ConfigError, match="an interval needs at least 2"):
        evaluate_run(finished, episodes=1)


def test_names_of_every_kind(finished: Path, tmp_path: Path) -> None:
    """The same policy, named in other ways, plays the same episodes."""
    other = tmp_path / "other@home"
    shutil.copytree(finished, other)
    names = ["@0/0-3", f"{finished}@0/0-3", f"{other}@0/0-3", str(other / "policies/0/0-3.safetensors")]
    found = by_names(finished, *names, "@newest", "@1/1-4", f"{other}@4")
    returns = {pair: tuple(match.mean) for pair, match in found.items()}
    assert len(returns) == 6 * 3
    assert len({returns[name, "@1/1-4"] for name in names}) == 1
    assert all(returns[name, "@newest"] == returns[name, "@1/1-4"] for name in names)
    with Reader(finished) as reader:
        first = reader.generations()[1]
    report = evaluate_run(finished, episodes=2, of="@1")
    assert [match.policies for match in report.matches] == [("@1", "@1")]
    assert (report.generation, evaluate_run(finished, episodes=2).generation) == (1, 4)  # what its title says
    assert report.exploitability is not None
    assert report.exploitability.nash_conv == pytest.approx(first.nash_conv, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{run}:newest", "what a run has is named with @. Write '{run}@newest'."),
        ("{run}:1-3", "what a run has is named with @. Write '{run}@1/1-3'."),
        ("{run}:0/0-3", "what a run has is named with @. Write '{run}@0/0-3'."),
        ("0-3", "what a run has is named with @. Write '@0/0-3'."),
        ("meta", "what a run has is named with @. Write '@meta'."),
        ("@0-3", "no '0-3' to be named after the @; did you mean '0/0-3'?"),
        (
            "@2/0-3",
            "'@2/0-3': 2 is no player; openspiel/kuhn_poker has the players 0 to 1: 0 (player_0), 1 (player_1).",
        ),
        ("@newst", "no 'newst' to be named after the @; did you mean 'newest'"),
        ("@7", "has the generations 0 to 4; there is no 7 yet."),
        ("{run}@", "nothing follows the @."),
        ("bot:mcts", "'bot:mcts' cannot play openspiel/kuhn_poker"),
        ("nobody@best", "is no policy: there is no run 'nobody'"),
    ],
)
def test_names_of_nobody(finished: Path, name: str, words: str) -> None:
    with pytest.raises(LudusError) as error:
        evaluate_run(finished, policies=[name.format(run=finished)])
    assert words.format(run=finished) in str(error.value)


def test_profile_without_a_player_is_not_exploited(finished: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"'@0/0-3' has nobody for player 1, and what is asked for needs one policy of each"
    ):
        evaluate_run(finished, of="@0/0-3")


def test_intervals_hold_as_often_as_they_say(finished: Path) -> None:
    """95% intervals around means of 20 disjoint profiles; binomially, fewer than 14 holding has a probability of 3e-4."""
    names = [f"@{p}/{p}-{k}" for p in (0, 1) for k in range(5)]
    found = list(by_names(finished, *names, episodes=400).values())
    spread = [m for m in found if m.half_width[0] > 0]
    held = sum(abs(m.mean[0] - m.exact[0]) <= m.half_width[0] for m in spread if m.exact is not None)
    assert held >= stats.binom.ppf(1e-4, len(spread), 0.95)
    for m in found:
        assert m.mean.sum() == pytest.approx(0, abs=1e-12)
        assert sum(m.wins[0]) == m.episodes == 400


def test_final_figures_are_not_those_that_steered_the_run(finished: Path) -> None:
    """The same policies, as many episodes, the same seed: and yet other games."""
    with Reader(finished) as reader:
        steered = {tuple(seat.policy for seat in stored.match.seats): stored.match for stored in reader.matches()}
    named = by_names(finished, *(f"@{p}/{p}-{k}" for p in (0, 1) for k in range(5)))
    found = {tuple(name.partition("/")[2] for name in names): match for names, match in named.items()}
    assert found.keys() == steered.keys()
    varied = [name for name, match in steered.items() if match.m2[0] > 0]
    assert len(varied) > 5
    assert all(found[name].mean[0] != steered[name].mean[0] for name in varied[:3])
    same = sum(found[name].mean[0] == steered[name].mean[0] for name in varied)
    assert same < len(varied) / 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "DELETE FROM policies WHERE id = '0-1'",
            "has 4 policies of player 0, whose meta-strategy after generation 4 is over 5",
        ),
        (
            "UPDATE run SET value = replace(value, 'num_envs', 'num_env')",
            "the scenario in the database of .* unknown key",
        ),
    ],
)
def test_a_database_changed_by_hand_is_refused(finished: Path, tmp_path: Path, change: str, words: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    with sqlite3.connect(folder / "ludus.db") as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(RunError, match=words):
        evaluate_run(folder, episodes=10)


def test_a_run_without_generations_cannot_be_evaluated(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run"):
        evaluate_run(tmp_path)


def test_policies_with_memory_are_played_where_a_tree_could_compute(tmp_path: Path) -> None:
    changes = [
        "algorithm.memory=gru",
        "algorithm.memory_size=4",
        "algorithm.hidden=[4]",
        "generations=1",
        "response.episodes=20",
    ]
    changes += ["evaluation={payoffs: simulate, exploitability: 'off', episodes: 10}", "env.num_envs=8"]
    ludus.run(ludus.load_scenario("leduc-self-play", changes), run_dir=tmp_path / "run", report=False)
    report = evaluate_run(tmp_path / "run", episodes=20)
    assert report.exploitability is None
    assert all(match.exact is None for match in report.matches)
    assert [match.episodes for match in report.matches] == [20] * 4
