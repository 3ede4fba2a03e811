"""`benchmarks.capacity`: the model by hand, against what was measured, and against its page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.capacity import PAGE, PICTURE, RATE, figures, filled, key, limit, svg
from benchmarks.capacity_model import Costs, Run, Setup, Work
from benchmarks.capacity_scenarios import SIZES, TOLERANCE, Case, cases, costs, foretold, scenarios
from benchmarks.page_results import medians

FREE = Costs(*([0.0] * 11), latency=0.0)
WORK = Work(rows=8, wait=0.01, play=0.0, act=0.0, steps=100, learn=1e-4, row_bytes=100, weights=0.0)


def rate(costs: Costs = FREE, work: Work = WORK, **setup: object) -> float:
    """As a run begins and ends, its requests are fewer."""
    return Run(costs, work, Setup(**setup)).outcome(warm=2, cool=3).rate  # type: ignore[arg-type]


@pytest.mark.parametrize("case", [*cases()], ids=lambda case: case.name)
def test_the_model_repeats_what_was_measured(case: Case) -> None:
    assert case.model(costs()) == pytest.approx(case.measured, rel=TOLERANCE)


def test_in_step_workers_wait_while_the_driver_learns() -> None:
    assert rate(workers=5, mode="sync") == pytest.approx(4000 / (1.0 + 0.4), rel=1e-3)


def test_asynchronous_workers_play_meanwhile_until_the_learner_is_busy() -> None:
    assert rate(workers=5) == pytest.approx(4000 / 1.0, rel=1e-3)
    assert rate(workers=50) == pytest.approx(1 / WORK.learn, rel=1e-3)
    assert rate(workers=50, trainers=4) == pytest.approx(40_000, rel=1e-2)


def test_a_straggler_holds_up_all_in_step_and_itself_alone_otherwise() -> None:
    work = replace(WORK, learn=0.0, iterations=30)
    assert rate(work=work, workers=16, mode="sync", slower=10) == pytest.approx(1280, rel=1e-3)
    assert rate(work=work, workers=16, slower=10) == pytest.approx(15.1 * 800, rel=0.02)


def test_messages_of_the_driver_bound_the_rate() -> None:
    dear = replace(FREE, call=0.01, answer=0.02)
    assert rate(dear, replace(WORK, learn=0.0), workers=200) == pytest.approx(800 / 0.03, rel=1e-3)


def test_weights_go_to_each_node_once() -> None:
    slow = replace(FREE, bandwidth=1e6, per_node=2)
    work = replace(WORK, learn=0.0, row_bytes=0.0, weights=1e5)  # 0.1 s to a node
    assert rate(slow, work, workers=8, mode="sync") == pytest.approx(6400 / 1.4)
    assert rate(slow, work, workers=8, mode="sync", tree=True) == pytest.approx(6400 / 1.3)


def test_evaluators_take_matches_off_the_workers() -> None:
    work = replace(WORK, learn=0.0, matches=8, match_steps=100, split=1)
    alone, helped = (Run(FREE, work, Setup(4, evaluators=n)).outcome() for n in (0, 2))
    assert alone.rate == pytest.approx(8 * 3200 / (8.0 + 8.0), rel=1e-3)
    assert helped.rate == pytest.approx(8 * 3200 / 8.0, rel=1e-3)


def test_the_result_file_is_what_the_model_says() -> None:
    known = costs()
    for name in scenarios():
        for size in SIZES[2:3]:
            said = figures(foretold(known, name, "as it is", size), "as it is", size)
            stored = {figure: medians("capacity")(name, figure) for figure in said}
            assert stored == pytest.approx(said, rel=1e-4, abs=1e-6)


def test_the_page_and_the_picture_are_what_the_result_file_says() -> None:
    assert filled(PAGE.read_text(encoding="utf-8")) == PAGE.read_text(encoding="utf-8")
    assert svg() == PICTURE.read_text(encoding="utf-8")


def test_every_scenario_stops_at_a_part_that_is_named() -> None:
    for name in scenarios():
        assert limit(name, "as it is", SIZES[-1]).startswith("driver ")
        assert medians("capacity")(name, key("as it is", SIZES[-1], RATE)) > 0
