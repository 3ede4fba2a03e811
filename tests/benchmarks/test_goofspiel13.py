"""What the Goofspiel benchmark trains, within which budget."""

import pytest

from benchmarks.contestants import Repetition
from benchmarks.goofspiel13 import BENCHMARK, best
from benchmarks.goofspiel13_run import CARDS, METHODS, STEPS, scenario
from benchmarks.harness import Medians
from ludus.config import to_yaml
from ludus.scenario_files import parse_scenario


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_scenario_within_the_budget(method):
    chosen = parse_scenario(to_yaml(scenario(method, 3, steps=STEPS)))
    episodes = chosen.response.limit("episodes")
    assert episodes % chosen.oracle.batch == 0, "or a task plays more than it is to"
    assert 0.97 * STEPS < chosen.generations * episodes * CARDS <= STEPS
    assert chosen.seed == 3


def test_the_bar_takes_the_best_method():
    assert {c.name for c in BENCHMARK.contestants} == set(METHODS)
    medians = Medians(
        {name: [Repetition(0, {"exploitability": value})] for name, value in zip(METHODS, (0.3, 0.2, 0.4), strict=True)}
    )
    assert best(medians) == 0.2
