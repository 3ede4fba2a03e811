"""Joint meta-strategies: what is drawn for the seats, by hand; and that a run's own is played and judged after it, not its marginals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ludus.core.types import MetaSolution, Mixture, OpponentFactor, PolicyRef
from ludus.evaluation.evaluate import EvaluationReport, RunEvaluator, evaluate_run
from ludus.evaluation.exploiters import exploit_run
from ludus.runs.runner import run
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.reader import Reader

MEMBERS = tuple(tuple(PolicyRef(p, f"{p}-{i}") for i in range(2)) for p in range(3))
TRAFFIC = MetaSolution(None, 0.0, joint=np.array([[[0.5, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.25, 0.25]]]))


def refs(*names: str) -> tuple[PolicyRef, ...]:
    return tuple(PolicyRef(int(name[0]), name) for name in names)


def test_a_joint_distribution_is_drawn_at_once() -> None:
    (factor,) = TRAFFIC.factors(MEMBERS, [0, 1, 2])
    assert factor.seats == (0, 1, 2)
    assert factor.entries == (refs("0-0", "1-0", "2-0"), refs("0-1", "1-1", "2-0"), refs("0-1", "1-1", "2-1"))
    assert factor.probs == (0.5, 0.25, 0.25)


def test_some_seats_of_a_joint_distribution() -> None:
    (factor,) = TRAFFIC.factors(MEMBERS, [0, 2])
    assert (factor.seats, factor.probs) == ((0, 2), (0.5, 0.25, 0.25))
    assert factor.entries == (refs("0-0", "2-0"), refs("0-1", "2-0"), refs("0-1", "2-1"))
    (factor,) = TRAFFIC.factors(MEMBERS, [1])
    assert (factor.seats, factor.entries, factor.probs) == ((1,), (refs("1-0"), refs("1-1")), (0.5, 0.5))
    assert TRAFFIC.factors(MEMBERS, []) == ()


def test_marginals_are_drawn_apart() -> None:
    solution = MetaSolution((np.array([0.0, 1.0]), np.array([0.5, 0.5]), np.array([1.0, 0.0])), 0.0)
    first, second = solution.factors(MEMBERS, [0, 1])
    assert first == OpponentFactor((0,), (refs("0-1"),), (1.0,))
    assert second == OpponentFactor((1,), (refs("1-0"), refs("1-1")), (0.5, 0.5))


def test_another_policy_in_a_seat_of_a_joint_distribution() -> None:
    new = PolicyRef(1, "new")
    (joint,) = TRAFFIC.factors(MEMBERS, [0, 1, 2])
    others, mine = Mixture((joint,)).with_seat_fixed(1, new).factors
    assert mine == OpponentFactor((1,), ((new,),), (1.0,))
    assert others.entries == (refs("0-0", "2-0"), refs("0-1", "2-0"), refs("0-1", "2-1"))
    (both,) = Mixture((others, mine)).with_seat_fixed(0, PolicyRef(0, "new")).factors[1:2]
    assert both == OpponentFactor((0,), ((PolicyRef(0, "new"),),), (1.0,))
    assert Mixture((others, mine)).with_seat_fixed(0, PolicyRef(0, "new")).factors[0] == OpponentFactor(
        (2,), (refs("2-0"), refs("2-1")), (0.75, 0.25)
    )


@pytest.fixture(scope="module")
def correlated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four generations against coarse correlated equilibria."""
    folder = tmp_path_factory.mktemp("correlated") / "run"
    text = "{env: {id: openspiel/kuhn_poker, num_envs: 64}, algorithm: exact, meta_solver: cce, generations: 4}"
    run(parse_scenario(text), run_dir=folder, report=False)
    return folder


@pytest.fixture(scope="module")
def report(correlated: Path) -> EvaluationReport:
    return evaluate_run(correlated, episodes=4000)


def test_a_result_has_it_by_hand(tmp_path: Path) -> None:
    """Two who earn 1 if they choose alike, else 0: together they always do, whatever their marginals say. Solvers of
    marginals have none."""
    game = tmp_path / "alike.nfg"
    game.write_text('NFG 1 R "alike" { "A" "B" } { 2 2 }\n\n1 1 0 0 0 0 1 1\n')
    text = f"{{env: 'openspiel/nfg_game(filename={game})', algorithm: exact, generations: 2, meta_solver: "
    played = run(parse_scenario(f"{text}{{kind: ce, select: max_welfare}}}}"), run_dir=tmp_path / "ce", report=False)
    assert played.joint is not None
    assert played.joint.shape == played.generations[-1].sizes == tuple(map(len, played.meta_strategies))
    assert (played.joint * played.payoffs.mean[0]).sum() == pytest.approx(1.0, abs=1e-6)
    for player, strategy in enumerate(played.meta_strategies):
        assert played.joint.sum(axis=1 - player) == pytest.approx(strategy, abs=1e-9)
    for record in played.generations:
        assert record.joint is not None
        assert record.joint.sum() == pytest.approx(1.0, abs=1e-6)
    alone = run(parse_scenario(f"{text}fictitious_play}}"), run_dir=tmp_path / "alone", report=False)
    assert (alone.joint, alone.generations[-1].joint) == (None, None)


def test_the_run_keeps_it(correlated: Path) -> None:
    with Reader(correlated) as reader:
        record = reader.last_generation()
        assert record is not None
        again, missing = reader.generation(record.number), reader.generation(99)
    joint = record.joint
    assert joint is not None
    assert again is not None
    assert again.joint is not None
    assert (again.joint == joint).all()
    assert missing is None
    assert joint.shape == record.sizes
    assert joint.sum() == pytest.approx(1.0)
    for player, marginal in enumerate(record.marginals):
        np.testing.assert_allclose(joint.sum(axis=1 - player), marginal, atol=1e-12)
    assert np.abs(joint - np.multiply.outer(*map(np.array, record.marginals))).max() > 0.01, "no product"


def test_meta_plays_it(correlated: Path, report: EvaluationReport) -> None:
    """Its value and its exploitability are those that the run has recorded."""
    with Reader(correlated) as reader:
        record = reader.last_generation()
    assert record is not None
    meta = next(match for match in report.matches if match.policies == ("@meta", "@meta"))
    assert meta.exact == pytest.approx(record.values, abs=1e-9)
    assert (np.abs(meta.mean - record.values) <= 2.5 * meta.half_width).all()
    assert report.exploitability is not None
    assert report.exploitability.nash_conv == pytest.approx(record.nash_conv, abs=1e-9)
    with RunEvaluator(correlated) as run:
        assert [factor.seats for factor in run.named.mixture(["@meta", "@3"]).factors] == [(0,), (1,)]
        assert [factor.seats for factor in run.named.mixture(["@meta", "@4"]).factors] == [(0, 1)]


def test_exploiters_meet_it(correlated: Path, report: EvaluationReport) -> None:
    found = exploit_run(correlated, budget=200, episodes=2000)
    assert report.exploitability is not None
    assert (found.least <= report.exploitability.gain + 1e-9).all(), "nobody gains more than a best response"
