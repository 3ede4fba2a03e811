"""What the Goofspiel benchmark trains, within which budget."""

import json

import pytest

from benchmarks.contestants import Repetition
from benchmarks.goofspiel13 import bar, cell, main
from benchmarks.goofspiel13_run import CARDS, METHODS, STEPS, scenario
from benchmarks.harness import Medians
from ludus.core.config import to_yaml
from ludus.runs.scenario_files import load_scenario, parse_scenario


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_scenario_within_the_budget(method):
    chosen = parse_scenario(to_yaml(scenario(method, 3, steps=STEPS)))
    episodes = chosen.response.limit("episodes")
    assert episodes % chosen.algorithm.batch == 0, "or a task plays more than it is to"
    assert 0.97 * STEPS < chosen.generations * episodes * CARDS <= STEPS
    assert chosen.seed == 3


def test_the_preset_is_the_best_of_them():
    measured = parse_scenario(to_yaml(scenario("self-play, magnetic mirror descent", 0, steps=STEPS)))
    assert load_scenario("goofspiel-13", ["seed=0"]).model_dump(exclude={"name"}) == measured.model_dump(
        exclude={"name"}
    )


def test_the_bar_takes_the_best_method_and_the_figure_of_the_budget():
    found = {
        name: [Repetition(0, {"exploitability": value})]
        for name, value in zip(METHODS, (0.3, 0.2, 0.4, 0.5), strict=True)
    }
    assert bar(STEPS).judge(Medians(found)).line() == (
        "bar approximate population exploitability at 19.2M steps: 0.2 (wanted <= 0.244) met"
    )
    assert bar(4 * STEPS).judge(Medians(found)).verdict == "short"
    assert bar(STEPS).judge(Medians({})).verdict == "unjudged"


def test_cells_have_names_of_their_own():
    assert cell("self-play, regularised", 0, STEPS) == "self-play-regularised-0-19200000"
    assert len({cell(method, seed, STEPS) for method in METHODS for seed in range(2)}) == 2 * len(METHODS)


def test_a_cell_that_has_a_result_is_not_run_again(tmp_path, capsys):
    figures = dict.fromkeys(
        ("exploitability", "low", "high", "floor", "seconds", "environment steps", "policies", "seconds of responders"),
        0.25,
    )
    stored = {"repetition": {"seed": 0, "figures": figures}}
    (tmp_path / f"{cell('psro', 0, STEPS)}.json").write_text(json.dumps(stored))
    assert main(["--methods", "psro", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("(wanted <= 0.244) short\n")


def test_the_picture_shows_every_seed_and_the_published_figure(tmp_path):
    with pytest.raises(ValueError, match="no cells to draw"):
        main(["--results", str(tmp_path), "--plot", str(tmp_path / "none.svg")])
    for seed in (0, 3):
        figures = {"exploitability": 0.1 + seed / 100, "low": 0.09, "high": 0.2}
        curve = {"gain_of_first": [0.3, 0.2], "gain_of_second": [0.1, 0.2]}
        stored = {"repetition": {"seed": seed, "figures": figures, "curve": curve}}
        (tmp_path / f"{cell('psro', seed, STEPS)}.json").write_text(json.dumps(stored))
    assert main(["--results", str(tmp_path), "--plot", str(tmp_path / "both.svg")]) == 0
    picture = (tmp_path / "both.svg").read_text()
    assert picture.count("<circle") == 2
    assert "psro, seed 3" in picture
    assert "published: 0.244" in picture
