"""Exact responses that play as a member does, or earn no more, are not added, and a run in which none gains anything ends. Learned ones are
always added, and the run says where payoffs cannot tell them from a member."""

from pathlib import Path

import numpy as np
import pytest

import ludus
from ludus.runs.runner import resume
from ludus.storage.reader import Reader

RPS, KUHN = "openspiel/matrix_rps", "openspiel/kuhn_poker"
NO_GAIN = "no response gains anything"
# Payoffs of each profile, players A, B and C in turn; A's strategy changes first.
CUBE = """NFG 1 R "cube" { "A" "B" "C" } { 2 2 2 }

3 1 0  0 2 3  1 0 2  2 3 1  0 3 1  1 0 2  2 1 0  3 2 3
"""


def exact(tmp_path: Path, env: str, **options: object) -> ludus.Result:
    scenario = ludus.PSRO(env=env, algorithm="exact", stop=None, **{"generations": 12, **options})
    return ludus.run(scenario, run_dir=tmp_path / "run", report=False)


def texts(run_dir: Path, kind: str) -> list[str]:
    return [event.text for event in Reader(run_dir).events() if event.kind == kind]


def test_joint_psro_ends_once_every_strategy_is_there(tmp_path: Path) -> None:
    """Each population has the uniform policy and two pure ones at most, where it used to double in each generation."""
    (tmp_path / "cube.nfg").write_text(CUBE)
    result = exact(
        tmp_path, f"openspiel/nfg_game(filename={tmp_path}/cube.nfg)", meta_solver="ce", responses="recommended"
    )
    assert result.stopped_by.startswith(NO_GAIN)
    assert len(result.nash_conv) <= 8
    assert result.nash_conv[-1] == pytest.approx(0.0, abs=1e-8)
    assert max(map(len, result.populations)) <= 3
    assert texts(result.run_dir, "no_gain")
    for player in range(3):
        rows = np.moveaxis(result.payoffs.mean, 1 + player, 0).reshape(len(result.populations[player]), -1)
        assert len(np.unique(rows.round(6), axis=0)) == len(rows)


@pytest.mark.parametrize("order", ["simultaneous", "sequential"])
@pytest.mark.parametrize(("env", "share"), [(KUHN, "never"), ("openspiel/blotto(coins=4,fields=3)", "always")])
def test_double_oracle_ends_where_nothing_is_gained(tmp_path: Path, order: str, env: str, share: str) -> None:
    """With a population for each player, and one for both: each response but those of the last two rounds is a new one."""
    result = exact(
        tmp_path, env, order=order, share=share, generations=40, meta_solver={"kind": "nash", "tolerance": 1e-8}
    )
    assert result.stopped_by.startswith(NO_GAIN)
    assert result.nash_conv[-1] == pytest.approx(0.0, abs=1e-6)
    last = result.generations[-1].number
    assert 2 < max(map(len, result.populations)) < last + 1 < 40
    assert len(texts(result.run_dir, "no_gain")) == sum(last + 2 - len(members) for members in result.populations)


def test_a_run_that_has_ended_ends_again(tmp_path: Path) -> None:
    first = exact(tmp_path, KUHN, generations=12)
    again = resume(first.run_dir, overrides=["generations=20"], report=False)
    assert again.stopped_by == first.stopped_by
    assert again.nash_conv == first.nash_conv


def test_a_rough_answer_is_improved_first(tmp_path: Path) -> None:
    """With `slack`, a round that adds nothing is solved again to a part of the gap: those rounds are not in vain."""
    solver = {"kind": "nash", "slack": 0.95, "tolerance": 1e-6}
    game = "openspiel/goofspiel(imp_info=True,num_cards=4,points_order=descending)"
    result = exact(tmp_path, game, share="never", meta_solver=solver, generations=200)
    assert result.stopped_by.startswith(NO_GAIN)
    assert result.nash_conv[-1] < 1e-5


def test_equal_responses_of_one_round_are_one(tmp_path: Path) -> None:
    result = exact(tmp_path, KUHN, generations=1, share="never", responses={"kind": "best", "count": 3})
    assert [len(members) for members in result.populations] == [2, 2]


def test_an_equilibrium_is_its_own_best_response(tmp_path: Path) -> None:
    """Uniform play, with which a run of rock-paper-scissors begins."""
    result = exact(tmp_path, RPS)
    assert result.stopped_by.startswith(NO_GAIN)
    assert [len(members) for members in result.populations] == [1]


def test_zero_gain_response_may_improve_the_equilibrium(tmp_path: Path) -> None:
    """Two who earn 1 if they choose alike: uniform play is an equilibrium, and no response to it earns more."""
    (tmp_path / "alike.nfg").write_text('NFG 1 R "alike" { "A" "B" } { 2 2 }\n\n1 1 0 0 0 0 1 1\n')
    solver = {"kind": "ce", "select": "max_welfare"}
    result = exact(tmp_path, f"openspiel/nfg_game(filename={tmp_path}/alike.nfg)", meta_solver=solver, share="never")
    assert result.stopped_by.startswith(NO_GAIN)
    assert [len(members) for members in result.populations] == [2, 2]
    assert result.generations[-1].values == pytest.approx((1.0, 1.0))


def test_copies_stay_where_each_counts(tmp_path: Path) -> None:
    """Uniform over all responses so far is fictitious play: a response that comes again has twice the weight."""
    result = exact(tmp_path, RPS, generations=12, meta_solver="uniform")
    assert [len(members) for members in result.populations] == [13]
    assert not texts(result.run_dir, "no_gain")


LEARNER = {"kind": "ppo", "batch": 64, "hidden": [16]}


def learned(tmp_path: Path, rate: float) -> ludus.Result:
    """Kuhn poker by PPO, each response from the last one on, for one update."""
    return ludus.run(
        ludus.PSRO(
            env={"id": "openspiel/kuhn_poker", "num_envs": 32},
            algorithm={**LEARNER, "learning_rate": rate},
            response={"episodes": 256},
            warm_start="last",
            mode="explore",
            generations=3,
        ),
        run_dir=tmp_path / "run",
        report=False,
    )


def test_a_learned_response_without_news_is_added_and_said(tmp_path: Path) -> None:
    """A learning rate of almost nothing."""
    result = learned(tmp_path, 1e-30)
    assert [len(members) for members in result.populations] == [4, 4]
    (text,) = [event.text for event in result.warnings if event.kind == "same_payoffs"]
    assert "for 2 generations the payoffs of no response could be told" in text
    assert "0-3 from those of 0-1" in text
    assert len(texts(result.run_dir, "indistinct")) == 4
    assert result.stopped_by == "the schedule is complete"


def test_nothing_is_said_of_a_learned_response_that_is_new(tmp_path: Path) -> None:
    result = learned(tmp_path, 0.01)
    assert "same_payoffs" not in {event.kind for event in result.warnings}
