"""What the benchmark of hidden boards trains, and what it does with cells that have results."""

import json
from xml.etree import ElementTree

import pytest

from benchmarks.contestants import Repetition
from benchmarks.harness import Medians
from benchmarks.hidden_boards import (
    BARS,
    BEST,
    CELLS,
    LONG,
    POPULATION,
    SHORT,
    Cell,
    by_setting,
    contestant,
    load,
    main,
    panels,
)
from benchmarks.hidden_boards_plot import svg
from benchmarks.hidden_boards_run import GAMES, GENERATIONS, METHODS, scenario
from ludus.core.config import to_yaml
from ludus.runs.scenario_files import parse_scenario


def repetition(value, *, seed=0, steps=SHORT):
    figures = {"exploitability": value, "cpu seconds": 60.0, "environment steps": float(steps), "policies": 10.0}
    return Repetition(seed, figures, {"steps": [steps / 2, steps], "exploitability": [2 * value, value]})


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_scenario_of_every_game(game, method):
    chosen = parse_scenario(to_yaml(scenario(game, method, 7, steps=SHORT)))
    assert chosen.seed == 7
    assert chosen.env.id == GAMES[game]
    assert chosen.env.options["observation"] == "observation", "or abrupt games have no exact sweep"


def test_there_are_eighteen_cells_each_with_a_file_of_its_own():
    assert len({cell.name for cell in CELLS}) == len(CELLS) == 18
    assert {cell.method for cell in CELLS if cell.steps == SHORT} == set(METHODS)
    assert {cell.game for cell in CELLS if cell.steps == LONG} == set(GAMES)
    assert set(BEST) <= set(METHODS)
    assert set(POPULATION) <= set(METHODS)
    assert GENERATIONS > 1


def test_bars_take_medians_over_seeds_of_the_long_runs():
    single, population = (contestant("phantom_ttt", method, LONG) for method in ("mmd", POPULATION[-1]))
    runs = {single: [repetition(v) for v in (0.1, 0.3, 0.2)], population: [repetition(v) for v in (0.25, 0.22, 0.1)]}
    values = [bar.judge(Medians(runs)).value for bar in BARS]
    assert values == pytest.approx([0.2, 1.1])
    short = {contestant("phantom_ttt", "mmd", SHORT): [repetition(0.01)]}
    assert {bar.judge(Medians(short)).verdict for bar in BARS} == {"unjudged"}


def test_cells_that_have_a_result_are_not_run_again(tmp_path, capsys):
    for seed, value in enumerate((0.25, 0.75)):
        cell = Cell("dark_hex", "mmd", SHORT, seed)
        path = tmp_path / f"{cell.name}.json"
        path.parent.mkdir(exist_ok=True)
        facts = {"game": cell.game, "method": cell.method, "steps": cell.steps, "seed": seed}
        run = repetition(value, seed=seed)
        path.write_text(json.dumps({**facts, "repetition": {"seed": seed, "figures": run.figures, "curve": run.curve}}))
    asked = ["--games", "dark_hex", "--methods", "mmd", "--steps", str(SHORT), "--seeds", "0", "1"]
    assert main([*asked, "--results", str(tmp_path)]) == 0
    assert "0.250 0.750" in capsys.readouterr().out
    cells = load(tmp_path)
    assert list(by_setting(cells)) == [contestant("dark_hex", "mmd", SHORT)]
    assert main(["--plot", str(tmp_path / "picture.svg"), "--results", str(tmp_path)]) == 0
    picture = ElementTree.parse(tmp_path / "picture.svg")
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["mmd, seed 0", "mmd, seed 1"]
    assert list(panels(cells)) == ["dark hex, 3 × 3, 1 M moves"]


def test_a_picture_of_nothing_is_refused():
    with pytest.raises(ValueError, match="run the benchmark first"):
        svg({})
