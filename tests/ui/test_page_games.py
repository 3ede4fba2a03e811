"""Replays that name their moves, episodes of a pair, tournaments and hints on the page, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from page_tools import Server, opened, run_ids, wait_until
from test_server_tournaments import met, write

import ludus
from ludus.cli.main import main

pytestmark = pytest.mark.slow

_DRAW = """async ([board, view]) => {
  const { showBoard } = await import("/page/boards.js");
  const place = document.createElement("div");
  document.getElementById("main").replaceChildren(place);
  const usual = { can: false, names: ["Ada", "Bo"], turn: [], weights: null, chosen: null, over: false, box: null, legal: [] };
  showBoard(place, { choose: () => {} }).set(board, { ...usual, ...view });
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("games") / "runs"
    leduc = ludus.PSRO(env="openspiel/leduc_poker", algorithm="exact", generations=1)
    ludus.run(leduc, run_dir=root / "leduc", report=False)
    four = ludus.PSRO(env="openspiel/connect_four", generations=1, response={"episodes": 16})
    ludus.run(four, run_dir=root / "four", report=False)
    write(root.parent / "tournaments" / "cup", met("ab", (150, 20, 30)), met("ac", (120, 0, 80)))
    assert main(["push", str(root / "leduc"), str(root / "zoo")]) == 0
    with Server(root) as started:
        yield started


def _go(page: Any, to: str, selector: str) -> None:
    page.evaluate("to => { location.hash = to; }", to)
    page.wait_for_selector(selector)


def test_a_replay_s_address_is_that_of_its_move(browser: Any, server: Server) -> None:
    with opened(browser, server, viewport={"width": 1400, "height": 900}) as page:
        run = run_ids(page)["four"]
        _go(page, f"#/run/{run}/show?seats=@best,random", ".transport")
        assert page.locator(".transport .main").evaluate("it => it.getBoundingClientRect().bottom") <= 900
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        wait_until(page, "() => location.hash.includes('move=2')")
        address = page.evaluate("location.hash")
        assert re.search(r"seed=\d+", address)
        moves = page.locator(".move-list.steps li").all_inner_texts()
        assert page.locator(".replayed .chart").count() == 1
        page.get_by_role("button", name="Probability of the move").click()
        label = page.locator(".replayed .plot").get_attribute("aria-label")
        assert label.startswith("Chart of probability of the move over move.")
        page.reload()
        page.wait_for_selector(".transport")
        assert page.locator(".where").inner_text() == f"2 of {len(moves) - 1}"
        assert page.locator(".move-list.steps li").all_inner_texts() == moves
        page.keyboard.press("End")
        page.wait_for_selector(".turn-line")
        if page.locator(".turn-line").inner_text() != "A draw":
            assert page.locator(".of-line").count() == 4  # the line stays marked
        assert page.messages == []


def test_moves_of_a_team_are_counted(browser: Any, server: Server) -> None:
    with opened(browser, server, "#/people") as page:
        page.wait_for_selector("h1")
        moves = [{"player": 0, "agent": k, "label": label} for k, label in enumerate(["left", "left", "pass"])]
        moves += [{"player": 1, "agent": k, "label": f"move {k}"} for k in range(5)]
        told = page.evaluate("async all => (await import('/page/replay.js')).madeBy(all)", moves)
        assert told == [[0, "left × 2, pass"], [1, "move 0, move 1, move 2, and 2 more"]]


def test_payoffs_of_a_matrix_game_have_the_colours_of_the_payoff_table(browser: Any, server: Server) -> None:
    board = {"kind": "matrix", "actions": [["A", "B"]] * 2, "payoffs": [[[50, -25], [0, 5]], [[-50, 25], [0, -5]]]}
    with opened(browser, server, "#/people") as page:
        page.wait_for_selector("h1")
        for seat, more in ((0, "50"), (1, "25")):
            page.evaluate(_DRAW, [board, {"mine": seat}])
            cells = page.locator(".pay").evaluate_all(
                "all => all.map(cell => [cell.textContent, cell.style.background.includes('--heat-high')])"
            )
            said = {text.partition(",")[0]: red for text, red in cells}
            assert said[more] is True  # much for who looks is red
            assert len(cells) == 4
            assert all(re.fullmatch("−?\\d+, −?\\d+", text) for text, _ in cells)  # read as two numbers
            less = "−25" if seat == 0 else "−50"
            assert said[less] is False


def test_episodes_of_a_pair_are_filtered_by_result_and_replayed(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        run = run_ids(page)["leduc"]
        _go(page, f"#/run/{run}/episodes?seats=@best,random", "tbody tr")
        page.get_by_role("button", name="All (10)").wait_for()
        assert page.locator("tbody tr").count() == 10
        won = page.get_by_role("button", name=re.compile(r"Player 0 won \(\d+\)"))
        many = int(re.findall(r"\d+", won.inner_text())[-1])
        if many:
            won.click()
            wait_until(page, "n => document.querySelectorAll('tbody tr').length === n", arg=many)
        page.get_by_role("button", name="All (10)").click()
        page.get_by_role("button", name="10 more episodes").click()
        page.get_by_role("button", name="All (20)").wait_for()
        row = page.locator("tbody tr").nth(3)
        returned = row.locator("td").nth(2).inner_text()
        row.get_by_role("link").click()
        page.wait_for_selector(".transport")
        page.keyboard.press("End")
        assert page.locator(".seats-list .score").first.inner_text() == returned
        assert page.messages == []


def test_a_tournament_has_a_leaderboard_with_ranks_and_win_rates(browser: Any, server: Server) -> None:
    with opened(browser, server, "#/tournaments", viewport={"width": 390, "height": 844}) as page:
        page.get_by_role("link", name="cup").click()
        page.get_by_role("heading", name="Leaderboard").wait_for()
        ranked = (
            page.locator("tbody")
            .first.locator("tr")
            .evaluate_all(
                "all => all.map(row => [...row.children].slice(0, 2).map(cell => cell.firstChild.textContent))"
            )
        )
        assert [ranks for ranks, _ in ranked] == ["1", "2", "3"]
        assert page.locator("td.rate").all_inner_texts() == ["60%", "80%", "40%", "20%"]
        assert "240 won, 0 drawn, 160 lost" in page.locator("td.rate").first.get_attribute("title")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.messages == []


def test_hints_come_from_whom_one_chooses(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        _go(
            page,
            f"#/run/{run_ids(page)['four']}/play?seats=person,random&hints=bot:mcts-50&rated=0&start=1",
            ".thinking",
        )
        assert "What bot mcts-50 would play." in page.locator(".thoughts .hint").inner_text()
        assert page.locator(".thought-table tbody tr").count() == 7
        _go(page, f"#/run/{run_ids(page)['leduc']}/play?seats=person,random&hints=@meta&rated=0&start=1", ".felt")
        page.wait_for_selector(".thinking")
        told = page.locator(".thoughts .hint").inner_text()
        assert "What the mixture would play. The position is worth" in told
        assert "computed in the game's tree" in told
        assert page.locator(".thought-table thead th").all_inner_texts() == ["Move", "Probability", "Value"]
        assert page.messages == []


def test_an_entry_of_a_zoo_is_played_and_shown(browser: Any, server: Server) -> None:
    with opened(browser, server, "#/zoo") as page:
        page.get_by_role("link", name="leduc").click()
        page.wait_for_selector(".lay")
        assert page.locator("h1").inner_text() == "leduc"
        page.get_by_role("button", name="Start the game").click()
        page.wait_for_selector(".felt")
        page.get_by_role("button", name="Leave the table").click()
        page.get_by_role("button", name="Show me a game").click()
        page.wait_for_selector(".transport")
        assert page.get_by_role("button", name="Save").count() == 0  # an entry stays as it was pushed
        assert page.messages == []
