"""The benchmark of `warm_start`: its game by hand, its rule by hand, its page, and that the library's default is what the cells say."""

from __future__ import annotations

import json
from pathlib import Path

import pyspiel
import pytest

from benchmarks.contestants import Repetition
from benchmarks.sealed_bids import NAME
from benchmarks.warm_start import BEGIN, END, SEEDS, cell_path, decide, load, main, ratio, table
from benchmarks.warm_start_run import GAMES, STARTS, judge, scenario
from ludus.core.config import to_yaml
from ludus.runs.runner import run
from ludus.runs.scenario import PSRO
from ludus.runs.scenario_files import parse_scenario

Cells = dict[tuple[str, str], dict[int, Repetition]]


def cells(**values: list[float]) -> Cells:
    """The same exploitability by seed in every game."""
    return {
        (game, start): {
            seed: Repetition(
                seed, {"exploitability": value, "population exploitability": value / 2, "cpu seconds": 10.0}
            )
            for seed, value in enumerate(values[start])
        }
        for game in GAMES
        for start in STARTS
    }


def deal(state: pyspiel.State, first: int, second: int) -> None:
    (action,) = [
        action for action, _ in state.chance_outcomes() if f"({first}, {second})" in state.action_to_string(action)
    ]
    state.apply_action(action)


def test_sealed_bids_by_hand() -> None:
    """Values 3 and 1, bids 2 and 1: the first earns 1 and has 2 left. Values 2 and 4, bids 1 and 3: the second earns 1: equal."""
    state = pyspiel.load_game(NAME).new_initial_state()
    deal(state, 3, 1)
    state.apply_actions([2, 1])
    deal(state, 2, 4)
    assert [state.legal_actions(player) for player in range(2)] == [[0, 1, 2], [0, 1, 2, 3, 4]]
    other = state.clone()
    state.apply_actions([1, 3])
    assert state.is_terminal()
    assert state.returns() == [0.0, 0.0]
    other.apply_actions([1, 1])  # a tie sells nothing
    assert other.returns() == [1.0, -1.0]


def test_a_bidder_sees_its_own_values_and_all_bids_of_the_past() -> None:
    states = []
    for hidden in (1, 4):
        state = pyspiel.load_game(NAME).new_initial_state()
        deal(state, 3, hidden)
        state.apply_actions([2, 1])
        deal(state, 2, hidden)
        states.append(state)
    seen, hides = ([state.information_state_tensor(player) for state in states] for player in range(2))
    assert seen[0] == seen[1]
    assert hides[0] != hides[1]
    assert seen[0] == [1, 0, *[0, 0, 1, 0], *[0, 1, 0, 0], *[0, 0, 1, 0, 0], *[0, 1, 0, 0, 0], *[0] * 10]


def test_every_cell_is_a_scenario() -> None:
    for game in GAMES:
        for start in STARTS:
            chosen = parse_scenario(to_yaml(scenario(game, start, 3)))
            assert isinstance(chosen, PSRO)
            assert ([rule.source for rule in chosen.warm_start], chosen.seed) == ([start], 3)


def test_a_run_without_a_tree_is_judged_on_it(tmp_path: Path) -> None:
    """Both players of Kuhn poker uniform: NashConv 11/12. In generation 1 what was learned plays, greedily: one pure policy each."""
    data = {**scenario("goofspiel-4", "last", 0, share=0.1), "env": {"id": "openspiel/kuhn_poker", "tree": "off"}}
    run(
        parse_scenario(to_yaml({**data, "response": {"episodes": 256}, "evaluation": {"episodes": 10}})),
        run_dir=tmp_path / "run",
        report=False,
    )
    curve, population = judge(tmp_path / "run", "openspiel/kuhn_poker")
    assert [episodes for episodes, _ in curve] == [0, 512]
    assert curve[0][1] == pytest.approx(11 / 12)
    assert 0 < population <= min(value for _, value in curve) + 1e-6


def test_the_rule_by_hand() -> None:
    """Halves and quarters of 0.4: ratios 1/2, 1/4, …; their geometric mean is 2^-1.4 = 0.379. Deviation of 1, 2, 1, 2, 1 twos 0.5477, half
    width 2.7764 x 0.5477 / sqrt(5) = 0.6801 twos: 2^-2.0801 = 0.2365 to 2^-0.7199 = 0.6072."""
    better = cells(random=[0.4] * 5, last=[0.2, 0.1, 0.2, 0.1, 0.2], best=[0.4] * 5)
    assert ratio(better, "last", GAMES) == pytest.approx((0.37893, 0.23648, 0.60717), rel=1e-4)
    assert decide(better) == "last"
    unclear = cells(random=[0.4] * 5, last=[0.2, 0.1, 0.8, 0.1, 0.8], best=[0.4] * 5)
    assert decide(unclear) == "random"  # lower on average, but not by the interval
    assert decide(cells(random=[0.1] * 5, last=[0.2] * 5, best=[0.2] * 5)) == "random"
    assert decide(cells(random=[0.4], last=[0.1], best=[0.2])) == "random"  # one seed has no interval
    assert decide(cells(random=[], last=[0.1], best=[0.2])) is None


def test_the_table_has_pairs() -> None:
    lines = table(cells(random=[0.4] * 2, last=[0.2] * 2, best=[0.8] * 2)).splitlines()
    assert len(lines) == 2 + len(GAMES) + 1
    assert lines[2] == "| leduc | 0.400 ± 0.000 | 0.200 ± 0.000 | 0.800 ± 0.000 |"
    assert lines[-1] == "| all, relative to `random` |  | 0.50 (0.50 to 0.50) | 2.00 (2.00 to 2.00) |"


def test_a_cell_that_has_a_result_is_not_run_again_and_the_page_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for (game, start), some in cells(random=[0.1], last=[0.2], best=[0.3]).items():
        path = cell_path(game, start, 0, folder=tmp_path)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"repetition": {"seed": 0, "figures": some[0].figures}}))
    arguments = ["--results", str(tmp_path), "--seeds", "0"]
    assert main(arguments) == 0
    assert "Default by the rule: `random`." in capsys.readouterr().out
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    assert main([*arguments, "--page", str(page)]) == 0
    assert "| 0.100 | 0.200 | 0.300 |" in page.read_text()


def test_the_default_is_what_the_cells_say() -> None:
    measured = load()
    assert {len(some) for some in measured.values()} == {len(SEEDS)}
    assert [rule.source for rule in PSRO(env="openspiel/kuhn_poker").warm_start] == [decide(measured)]
