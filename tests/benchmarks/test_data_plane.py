"""What the bars of `benchmarks.data_plane` compare, and that its workers say what they name."""

from __future__ import annotations

from benchmarks import data_plane
from benchmarks.data_plane_tables import KINDS
from benchmarks.harness import Medians, Repetition


def seen(**figures: dict[str, float]) -> Medians:
    return Medians({name: [Repetition(0, found)] for name, found in figures.items()})


def outcomes(medians: Medians) -> dict[str, tuple[float | None, str]]:
    judged = [bar.judge(medians) for bar in data_plane.BENCHMARK.bars]
    return {outcome.name: (outcome.value, outcome.verdict) for outcome in judged}


def test_bars_compare_with_the_faster_peer_and_with_the_one_that_is_there() -> None:
    uniform, prioritised = "1 KB/uniform, inserts per second", "100 KB/prioritised, samples per second"
    found = outcomes(
        seen(
            Ludus={uniform: 6.0, prioritised: 3.0},
            cpprb={uniform: 5.0, prioritised: 4.0},
            torchrl={uniform: 8.0},
            prefetcher={
                "learner waits, depth 2, batches per second": 9.5,
                "learner waits, ideal, batches per second": 10.0,
            },
            weights={
                "new version, transfers to the other node": 1.0,
                "unchanged, transfers to the other node": 0.0,
            },
        )
    )
    assert found["1 KB/uniform, inserts, times the best peer"] == (0.75, "short")
    assert found["100 KB/prioritised, samples, times the best peer"] == (0.75, "short")
    assert found["100 KB/uniform, samples, times the best peer"] == (None, "unjudged")
    assert found["prefetcher, of the ideal with a learner that waits"] == (0.95, "met")
    assert found["transfers of a new version to a node of 8 workers"] == (1.0, "met")
    assert found["transfers of a version that is there"] == (0.0, "met")


def test_cases_are_those_that_tables_are_measured_in() -> None:
    assert {case.partition("/")[2] for case in data_plane.CASES} <= set(KINDS)
    assert {bar.name.partition(",")[0] for bar in data_plane.BENCHMARK.bars} >= set(data_plane.CASES)
