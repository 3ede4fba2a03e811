"""The benchmark of the family: cells, findings by hand, the picture, and the part of the page that it writes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from benchmarks import psro_family
from benchmarks.contestants import Repetition
from benchmarks.harness import Medians
from benchmarks.psro_family_cells import Cell, Cells, all_of, below, cell_path, interval, load, ratio_interval, read
from benchmarks.psro_family_findings import (
    as_good_as,
    average_converges,
    better_population,
    faster_at_first,
    gets_stuck,
    hardly_rises,
    less_exploitable,
    newest_is_not_the_best,
    rises_at_times,
    solves_kuhn,
)
from benchmarks.psro_family_methods import GAMES, METHODS, scenario
from benchmarks.psro_family_plot import mean_curve, svg
from benchmarks.psro_family_report import BEGIN, END, FINDINGS, findings_table, inserted, means_table
from ludus.core.config import to_yaml
from ludus.runs.scenario_files import parse_scenario


def a_cell(game: str, method: str, values: list[float], population: float = 0.1, seed: int = 0) -> Cell:
    """Of evenly spaced generations."""
    episodes = np.linspace(0, GAMES[game].budget, len(values))
    return Cell(game, method, seed, episodes, np.array(values), np.full(10, population), 1.0)


def cells(*some: Cell) -> Cells:
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in some:
        found.setdefault((cell.game, cell.method), []).append(cell)
    return Cells(found)


def test_every_cell_is_a_scenario() -> None:
    for game in GAMES:
        for method in METHODS:
            made = parse_scenario(to_yaml(scenario(game, method, 3)))
            assert (made.seed, made.stop.limit("episodes")) == (3, GAMES[game].budget)


def test_each_method_has_a_finding_and_a_file_of_its_own() -> None:
    assert {finding.method for finding in FINDINGS} == set(METHODS)
    assert len({cell_path("leduc", method, 0) for method in METHODS}) == len(METHODS)


def test_a_cell_is_read_as_it_was_written(tmp_path: Path) -> None:
    figures = {"seconds": 7.0, "population exploitability at 50%": 0.2, "population exploitability at 100%": 0.1}
    repetition = {
        "seed": 2,
        "curve": {"episodes": [0.0, 100_000.0, 200_000.0], "nash_conv": [1.0, 0.4, 0.6]},
        "figures": {**figures, "population exploitability": 0.1},
    }
    path = cell_path("kuhn", "psro, PRD", 2, folder=tmp_path)
    assert path == tmp_path / "kuhn" / "psro-prd-2.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"repetition": repetition}))
    (cell,) = load(tmp_path)("kuhn", "psro, PRD")
    assert (cell.seed, cell.end, cell.seconds) == (2, 0.3, 7.0)
    assert [cell.at(share) for share in (0, 0.2, 0.25, 0.49, 1)] == [0.5, 0.5, 0.2, 0.2, 0.3]
    assert [cell.population_at(share) for share in (0.5, 1)] == [0.2, 0.1]
    np.testing.assert_allclose(cell.rises, [0.0, 0.1])
    assert read("kuhn", "psro, PRD", repetition).method == "psro, PRD"


def test_intervals() -> None:
    """Half width of 1 and 3: t(0.975, 1) = 12.706, times sqrt(2) / sqrt(2)."""
    assert [interval(v) for v in ([], [0.25], [-1e-17], [1.0, 3.0])] == ["-", "0.250", "0.000", "2.000 ± 12.706"]


def test_differences_are_decided_by_welchs_interval() -> None:
    """1, 3 and 11, 13: difference -10, variance 1 + 1, two degrees of freedom, half width 4.303 x sqrt(2) = 6.085."""
    low, high = [1.0, 3.0], [11.0, 13.0]
    assert (below(low, high), below(high, low), below(low, low)) == (True, False, None)
    assert (below(low, high, margin=-3.9), below(low, high, margin=-3.95)) == (True, None)
    assert (below(low, 15.0), below(low, 14.0)) == (True, None)  # one degree of freedom: 2 + 12.706
    assert below([1.0], high) is None
    assert below([2.0, 2.0], 2.0) is True
    assert [all_of(True, True), all_of(True, None), all_of(None, False)] == [True, None, False]


def test_the_interval_of_a_ratio_is_fiellers() -> None:
    """9, 10, 11: variance of the mean 1/3. Against itself four degrees of freedom, t 2.77645: t^2 / 3 = 2.56955, ends
    (100 -+ sqrt(100^2 - 97.43045^2)) / 97.43045. With one sample that does not vary, two, t 4.30265: half width 2.48414 of the other."""
    some = [9.0, 10.0, 11.0]
    assert ratio_interval(some, some) == pytest.approx((0.795198, 1.257548), abs=2e-6)
    assert ratio_interval([2 * value for value in some], some) == pytest.approx((1.590396, 2.515096), abs=4e-6)
    assert ratio_interval(some, [5.0, 5.0, 5.0, 5.0]) == pytest.approx((1.503172, 2.496828), abs=2e-6)
    assert ratio_interval([5.0, 5.0], some) == pytest.approx((5 / 12.48414, 5 / 7.51586), abs=2e-6)
    assert ratio_interval([6.0, 6.0], [-3.0, -3.0]) == (-2.0, -2.0)


@pytest.mark.parametrize(
    ("values", "others"),
    [([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0]), ([1.0, 2.0], [-1.0, 1.0]), ([1.0, 2.0], [1.0, 2.0, 9.0])],
)
def test_a_ratio_to_what_may_be_zero_has_no_interval(values: list[float], others: list[float]) -> None:
    assert ratio_interval(values, others) is None


PSRO = (a_cell("kuhn", "psro", [0.4, 0.0]), a_cell("leduc", "psro", [2.0, 0.2, 0.5, 0.3], population=0.1))


def test_findings_by_hand() -> None:
    falling = [2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 0.8, 0.6, 0.5, 0.45, 0.4]
    some = cells(
        *PSRO,
        a_cell("kuhn", "rectified", [0.4, 0.2]),
        a_cell("leduc", "rectified", [2.0, 0.8]),
        a_cell("leduc", "anytime", [2.0, 0.6, 0.65, 0.4]),
        a_cell("leduc", "psro, uniform", falling),
        a_cell("leduc", "self-play psro", [2.0, 0.1] + [0.5] * 9),
        a_cell("leduc", "self-play", [2.0, 0.7, 1.5], population=0.2),
        a_cell("leduc", "pfsp", [2.0, 0.7, 1.0], population=0.3),
    )
    verdicts = {
        "Kuhn 0.000; Leduc 2.000 after a tenth of the episodes, 0.300 in the end": solves_kuhn("psro"),
        "Leduc: it rises in 33% of the generations, by at most 0.30": rises_at_times,
        "Leduc: all rises together 0.050, the greatest 0.05 (`psro` 0.300, 0.30)": hardly_rises,
        "Leduc 1.800, 1.600, 1.000, 0.400 after 10, 25, 50 and 100% of the episodes (`psro` in the end 0.300)": average_converges(
            "psro, uniform"
        ),
        "Kuhn 0.200 (`psro` 0.000); Leduc 0.800 (`psro` 0.300)": gets_stuck,
        "Leduc, after 10% of the episodes: 0.100 (`psro` 2.000, `anytime` 2.000); in the end 0.500": faster_at_first(
            "self-play psro", ("psro", "anytime")
        ),
        "Leduc: newest 1.500, the best on the way 0.700, more exploitable than the one before in 50% of the generations": (
            newest_is_not_the_best
        ),
        "Leduc 1.000 (`self-play` 1.500)": less_exploitable("pfsp", "self-play"),
    }
    for numbers, judge in verdicts.items():
        verdict = judge(some)
        assert verdict is not None
        assert verdict.numbers == numbers
        assert verdict.holds is (True if judge in (rises_at_times, newest_is_not_the_best) else None)  # one seed
    worse = better_population("pfsp", "self-play")(some)
    assert worse is not None
    assert (worse.numbers, worse.holds) == ("Leduc, population 0.300 (`self-play` 0.200)", None)


def test_findings_are_decided_by_two_seeds_that_agree() -> None:
    def both(game: str, method: str, values: list[float], population: float = 0.1) -> list[Cell]:
        return [a_cell(game, method, values, population=population, seed=seed) for seed in (0, 1)]

    some = cells(
        *both("kuhn", "psro", [0.4, 0.0]),
        *both("leduc", "psro", [2.0, 0.2, 0.5, 0.3]),
        *both("kuhn", "rectified", [0.4, 0.2]),
        *both("leduc", "rectified", [2.0, 0.8]),
        *both("kuhn", "alpha-psro", [0.4, 0.02]),
        *both("leduc", "alpha-psro", [2.0, 0.37]),
        *both("leduc", "anytime", [2.0, 0.6, 0.65, 0.4]),
        *both("leduc", "psro, uniform", [2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 0.8, 0.6, 0.5, 0.45, 0.4]),
        *both("leduc", "self-play psro", [2.0, 0.1] + [0.5] * 9),
        *both("leduc", "self-play", [2.0, 0.7, 1.5], population=0.2),
        *both("leduc", "pfsp", [2.0, 0.7, 1.0], population=0.3),
    )
    held = [
        solves_kuhn("psro"),
        hardly_rises,
        average_converges("psro, uniform"),
        gets_stuck,
        faster_at_first("self-play psro", ("psro", "anytime")),
        less_exploitable("pfsp", "self-play"),
        as_good_as("alpha-psro", "psro"),  # 0.02 is close to nothing, 0.37 within a quarter of 0.3
    ]
    not_held = [
        solves_kuhn("rectified"),
        average_converges("self-play psro"),
        faster_at_first("psro", ("self-play psro",)),
        less_exploitable("self-play", "pfsp"),
        better_population("pfsp", "self-play"),
        as_good_as("rectified", "psro"),
    ]
    for judges, holds in ((held, True), (not_held, False)):
        for judge in judges:
            verdict = judge(some)
            assert verdict is not None
            assert verdict.holds is holds


def test_missing_cells_are_no_verdict() -> None:
    assert all(finding.judge(Cells({})) is None for finding in FINDINGS)
    assert findings_table(Cells({})).count("no cells yet") == len(FINDINGS)


def test_tables() -> None:
    some = cells(*PSRO, a_cell("leduc", "psro", [0.4, 0.02], seed=1), a_cell("liars-dice", "psro", [0.5]))
    assert means_table(some).splitlines() == [
        "| method | leduc | liars-dice |",
        "| --- | --- | --- |",
        "| `psro` | 0.160 / 0.100 (2 seeds) | 0.500 / 0.100 (1 seed) |",
    ]
    assert inserted(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\n\nnew\n\n{END}\nb"
    with pytest.raises(ValueError, match="no part between"):
        inserted("a page", "new")


def test_the_picture_has_two_panels_per_game_and_a_curve_per_method() -> None:
    some = cells(*PSRO, a_cell("leduc", "psro", [2.0, 0.4, 0.5, 0.5], seed=1), a_cell("leduc", "league", [2.0, 1.0]))
    np.testing.assert_allclose(
        mean_curve(some("leduc", "psro"), np.array([0.0, 0.4, 1.0]), "exploitability"), [2.0, 0.3, 0.4]
    )
    root = ET.fromstring(svg(some))
    name = "{http://www.w3.org/2000/svg}"
    assert [t.text for t in root.iter(f"{name}text") if t.get("font-size") == "17"] == ["kuhn"] * 2 + ["leduc"] * 2
    assert [t.text for t in root.iter(f"{name}title")] == ["psro"] * 2 + ["psro", "league"] * 2
    with pytest.raises(ValueError, match="no cells"):
        svg(Cells({}))


def repetitions(values: list[float], seconds: float = 5.0) -> list[Repetition]:
    return [Repetition(k, {"exploitability": v, "seconds": seconds + k}) for k, v in enumerate(values)]


def test_bars_are_judged_by_members_with_all_seeds() -> None:
    leduc, kuhn, slowest = psro_family.BARS
    found = Medians(
        {
            "leduc: psro": repetitions([0.3, 0.3, 0.3, 0.3, 0.4]),
            "leduc: anytime": repetitions([0.5] * 5),
            "leduc: league": repetitions([0.1]),
            "kuhn: psro": repetitions([0.0] * 5),
            "kuhn: rectified": repetitions([0.2] * 5, seconds=100.0),
        }
    )
    assert [bar.judge(found, quick=False).value for bar in (leduc, kuhn, slowest)] == pytest.approx([0.32, 0.0, 9.0])
    few = Medians({"leduc: psro": repetitions([0.3])})
    assert [bar.judge(few, quick=False).verdict for bar in psro_family.BARS] == ["unjudged"] * 3


def test_command_writes_page_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cell_path("leduc", "psro", 0, folder=tmp_path)
    path.parent.mkdir()
    curve = {"episodes": [0.0, 2_400_000.0], "nash_conv": [4.0, 0.5]}
    figures = {"seconds": 7.0, "population exploitability at 100%": 0.1}
    figures["exploitability"] = 0.25
    path.write_text(json.dumps({"repetition": {"seed": 0, "curve": curve, "figures": figures}}))
    page, picture = tmp_path / "page.md", tmp_path / "picture.svg"
    page.write_text(f"{BEGIN}\n{END}\n")
    arguments = ["--results", str(tmp_path), "--findings", "--page", str(page), "--plot", str(picture)]
    assert psro_family.main(arguments) == 0
    assert "| `psro` | 0.250 / 0.100 (1 seed) |" in page.read_text()
    assert capsys.readouterr().out.startswith(page.read_text().split(BEGIN)[1].split(END)[0].strip())
    assert picture.read_text().startswith("<svg")
