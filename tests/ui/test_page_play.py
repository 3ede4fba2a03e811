"""Playing, replays and the game tree on the page, in a real browser: by clicks, by keys alone, and with nothing shown that is hidden."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from page_tools import Server, opened, run_ids, wait_until

import ludus

pytestmark = pytest.mark.slow

_SEAT = """(async () => {
  const [path, query] = location.hash.slice(2).split("?");
  const seat = new URLSearchParams(query).get("seat");
  return await (await fetch(`api/${path.replace("table", "tables")}?seat=${seat}`)).json();
})()"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("runs")
    leduc = ludus.PSRO(env="openspiel/leduc_poker", algorithm="exact", generations=1)
    ludus.run(leduc, run_dir=root / "leduc", report=False)
    four = ludus.PSRO(env="openspiel/connect_four", generations=1, response={"episodes": 16})
    ludus.run(four, run_dir=root / "four", report=False)
    with Server(root) as started:
        yield started


def _lay(page: Any, run: str, query: str) -> None:
    """A table of a run, laid at once."""
    address = f"#/run/{run_ids(page)[run]}/play?{query}&start=1"
    page.evaluate("to => { location.hash = to; }", address)
    page.wait_for_selector(".board, .cover:not([hidden])")


def _state(page: Any) -> dict[str, Any]:
    """What the seat is told."""
    found: dict[str, Any] = page.evaluate(_SEAT)
    return found


def _moved(page: Any, number: int) -> None:
    """Waits until the game has gone on since a frame."""
    wait_until(
        page,
        f"async number => {{ const now = await {_SEAT}; return now.over || now.frame.number > number; }}",
        arg=number,
    )
    page.wait_for_selector(".turn-line:not(.waits)")


def _line(page: Any) -> str:
    """What is said of the turn, once it is not the other's."""
    text: str = page.locator(".turn-line:not(.waits)").inner_text()
    return text


def test_connect_four_is_won_and_lost_by_clicks(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        _lay(page, "four", "seats=person,random&name=Ada&seed=0")
        board = page.get_by_role("grid", name="Connect four, 6 by 7")
        for turn in range(4):  # four in the third column, before chance has put anything on them
            assert _line(page) == "Your turn"
            board.get_by_role("gridcell", name=f"row {6 - turn} column 3, empty, legal").click()
            wait_until(page, "many => document.querySelectorAll('.grid .body').length >= many", arg=2 * turn + 1)
        page.wait_for_selector(".turn-line.won")
        assert page.locator("#announcer").inner_text().startswith("You won.")
        assert page.locator(".grid .at.won").count() == 4
        assert [page.locator(".score").nth(k).inner_text() for k in (0, 1)] == ["1", "0"]

        page.get_by_role("button", name="Play again").click()
        page.wait_for_selector(".turn-line.mine")
        assert page.locator(".grid .body").count() == 0
        page.get_by_role("button", name="Leave the table").click()
        page.wait_for_selector("form.lay")

        _lay(page, "four", "seats=bot:mcts-50,person&name=Ada&seed=1")
        for _ in range(21):  # always the first column that is open: tree search wins against that
            if _state(page)["over"]:
                break
            before = _state(page)["frame"]["number"]
            page.locator(".cell.legal").first.click()
            _moved(page, before)
        page.wait_for_selector(".turn-line.lost")
        assert _line(page) == "You lost"
        page.get_by_role("link", name="Step through it").click()
        page.wait_for_selector(".transport")
        assert page.messages == []


def test_leduc_hides_the_other_card_until_the_end(browser: Any, server: Server) -> None:
    with opened(browser, server, viewport={"width": 390, "height": 844}, color_scheme="dark") as page:
        _lay(page, "leduc", "seats=person,@meta&name=Ada&seed=3")
        told = page.locator(".card-face")
        while not (state := _state(page))["over"]:
            seats = state["frame"]["board"]["seats"]
            assert seats[1]["cards"] == [{"text": "", "rank": "", "suit": "", "hidden": True, "die": None}]
            assert "board_of" not in state["frame"] or state["frame"]["board_of"] is None
            assert told.first.get_attribute("aria-label") == "a card face down"
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.evaluate("document.activeElement.closest('.bets') !== null")  # keys stay where moves are made
            page.get_by_role("button", name=re.compile("Call|Check")).press("Enter")
            _moved(page, state["frame"]["number"])
        shown = state["frame"]["board"]["seats"][1]["cards"]
        assert len(shown) == 1
        assert not shown[0]["hidden"]
        page.wait_for_selector(".again:not([hidden])")
        assert page.evaluate("document.activeElement.textContent") == "Play again"
        assert page.locator(".card-face.hidden").count() == 0
        assert page.messages == []


def test_no_move_goes_unheard(browser: Any, server: Server) -> None:
    moves = [{"number": number, "player": number % 2, "label": f"move {number}"} for number in range(1, 5)]
    shown = [{**moves[1], "number": 4}, moves[2], {**moves[3], "number": 4}]  # of a game that hid them
    with opened(browser, server, "#/people") as page:
        page.wait_for_selector("h1")
        for known, heard, labels in (
            (moves, {"round": 1, "number": 0}, ["move 2", "move 4"]),  # two frames were passed over
            (moves, {"round": 1, "number": 3}, ["move 4"]),
            (moves, {"round": 1, "number": 4}, []),
            (moves, {"round": 0, "number": 9}, ["move 2", "move 4"]),  # another game
            (shown, {"round": 1, "number": 3}, ["move 4"]),
        ):
            state = {"round": 1, "you": [1], "moves": known, "frame": {"number": 4, "last": [moves[3]]}}
            said = page.evaluate("async all => (await import('/page/table.js')).unheard(...all)", [state, heard])
            assert [move["label"] for move in said] == labels
        assert page.messages == []


def test_two_at_one_screen_have_one_stream_and_the_list_survives_a_reload(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        streams = list[str]()
        page.on("request", lambda request: streams.append(request.url) if "/live?seat=" in request.url else None)
        _lay(page, "four", "seats=person,person&name=Ada&seed=0")
        for turn in range(5):
            wait_until(page, "n => document.querySelectorAll('.move-list li').length === n", arg=turn)
            page.locator(".cell.legal").nth(turn % 2).click()
        wait_until(page, "() => document.querySelectorAll('.move-list li').length === 5")
        assert len(streams) == 1
        listed = page.locator(".move-list li").all_inner_texts()
        page.reload()
        page.wait_for_selector(".move-list li")
        assert page.locator(".move-list li").all_inner_texts() == listed
        assert page.evaluate("document.querySelector('.move-list').start") == 1
        wait_until(page, "() => document.getElementById('announcer').textContent.includes('Player 2, it is your turn')")
        assert page.messages == []


def test_two_people_at_one_screen_take_turns_at_looking(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        _lay(page, "leduc", "seats=person,person&name=Ada&seed=3")
        page.get_by_role("button", name="I am Ada").click()
        page.get_by_text("Ada, it is your turn", exact=True).wait_for()
        page.get_by_role("button", name="Check").click()
        cover = page.get_by_role("button", name="I am Player 2")
        cover.wait_for()
        assert page.locator(".card-face:visible").count() == 0
        assert page.evaluate("document.activeElement.textContent") == "I am Player 2"
        tokens = page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('seat').split(',')")
        assert not any(
            url.endswith(f"seat={tokens[1]}") for url in asked
        )  # its view is not here before it is asked for
        cover.press("Enter")
        page.get_by_text("Player 2, it is your turn", exact=True).wait_for()
        assert any(url.endswith(f"seat={tokens[1]}") for url in asked)
        names = page.locator(".felt .card-face").evaluate_all("all => all.map(card => card.getAttribute('aria-label'))")
        assert names[0] == "a card face down"
        assert "of" in names[1]
        assert page.messages == []


def test_a_replay_is_stepped_by_keys(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        page.evaluate("to => { location.hash = to; }", f"#/run/{run_ids(page)['leduc']}/show?seats=@best,random&seed=2")
        page.wait_for_selector(".transport")
        where, slider = page.locator(".where"), page.get_by_role("slider", name="Move")
        last = int(slider.get_attribute("max"))
        assert where.inner_text() == f"0 of {last}"
        page.keyboard.press("ArrowRight")
        assert where.inner_text() == f"1 of {last}"
        page.keyboard.press("ArrowLeft")
        assert where.inner_text() == f"0 of {last}"
        assert page.locator(".card-face.hidden").count() == 0  # everything is seen
        page.get_by_role("combobox", name="Show").select_option(
            label=page.locator(".viewing option").nth(2).inner_text()
        )
        assert page.locator(".card-face.hidden").count() == 1
        page.keyboard.press("Tab")
        page.keyboard.press("End")
        assert where.inner_text() == f"{last} of {last}"
        page.keyboard.press("Home")
        page.keyboard.press(" ")
        wait_until(page, "() => document.querySelector('.where').textContent.startsWith('1 ')")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Saved to the recorded games.").wait_for()
        page.evaluate("to => { location.hash = to; }", f"#/run/{run_ids(page)['leduc']}/play")
        page.locator(".replay-list a", has_text="0/0-1 against random").click()
        page.wait_for_selector(".transport")
        assert page.locator(".slider").get_attribute("max") == str(last)
        assert page.messages == []


def test_the_tree_is_opened_by_keys(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        page.evaluate("to => { location.hash = to; }", f"#/run/{run_ids(page)['leduc']}/tree")
        page.wait_for_selector("[role=tree] [aria-expanded=true]")
        page.locator("[role=treeitem]").first.focus()
        depth = "document.activeElement.getAttribute('aria-level')"
        for level in (2, 3, 4):  # two cards, then the first player's decision; one key goes there, one opens it
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowRight")
            wait_until(page, f"() => {depth} === '{level}'")
            page.wait_for_selector("[aria-selected=true]:focus")
        assert page.locator(".crumbs li").count() == 4
        assert page.locator(".turn-line").count() == 0
        value = page.locator("[role=treeitem]:focus").get_attribute("aria-label")
        assert "worth" in value or "pays" in value
        page.keyboard.press("ArrowLeft")  # shuts what the last key has opened
        page.keyboard.press("ArrowLeft")
        wait_until(page, f"() => {depth} === '3'")
        page.wait_for_selector("[aria-selected=true]:focus")
        actions = page.locator("section[aria-label='The node'] th[scope=row] button").all_inner_texts()
        assert actions == ["Check", "Raise"]
        page.set_viewport_size({"width": 390, "height": 844})
        wait_until(page, "() => document.documentElement.scrollWidth <= innerWidth")
        assert page.messages == []


_DRAW = """async ([board, view]) => {
  const { showBoard } = await import("/page/boards.js");
  const place = document.createElement("div");
  document.getElementById("main").replaceChildren(place);
  window.chosen = null;
  const shown = showBoard(place, { choose: action => { window.chosen = action; } });
  const names = ["Ada", "Bo"];
  const usual = { can: true, mine: 0, names, turn: [0], weights: null, chosen: null, over: false, box: null, keys: null, legal: [] };
  shown.set(board, { ...usual, ...view });
  shown.focus();
}"""


_AT_BOARD = """async ([seats, looks]) => (await import("/page/boards.js")).atBoard(seats, looks)"""


def _chess(*moves: tuple[int, str, tuple[int, int], tuple[int, int]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A board of chess with a white pawn before its last row, and moves (action, label, from, to)."""
    cells = [[""] * 8 for _ in range(8)]
    cells[1][0], cells[7][4], cells[0][4] = "P", "K", "k"
    labels = {"rows": list("87654321"), "columns": list("abcdefgh")}
    board = {
        "kind": "grid",
        "game": "chess",
        "rows": 8,
        "columns": 8,
        "cells": cells,
        "shape": "square",
        "last": [],
        "labels": labels,
    }
    legal = [{"action": action, "label": label, "from": old, "cell": new} for action, label, old, new in moves]
    return {**board, "drop": False}, {"legal": legal, "mine": 1}


def _cards(game: str, hands: list[list[str]], labels: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """A board of cards, a hand for each seat, and what may be done."""
    seats = [
        {"player": p, "name": f"player {p}", "cards": [{"text": text, "rank": text} for text in hand]}
        for p, hand in enumerate(hands)
    ]
    legal = [{"action": action, "label": label, "cell": None, "from": None} for action, label in enumerate(labels)]
    return {"kind": "cards", "game": game, "seats": seats}, {"legal": legal}


def test_who_plays_two_of_a_boards_seats_sits_where_it_decides(browser: Any, server: Server) -> None:
    held = [(0, 0, "@0/0-3 1"), (0, 1, "@0/0-3 2"), (1, 0, "Ada")]
    seats = [{"player": player, "agent": agent, "name": name} for player, agent, name in held]
    board, view = _cards("kuhn_poker", [["J"], ["Q"], ["K"]])
    second = {"player": 0, "agent": 1}
    team, ada = ["0/0-3 1", "0/0-3 2"], "Ada"
    for looks, labels, turn in (
        ({"player": 1, "decision": None, "turn": [0], "decisions": []}, [*team, f"{ada}, you"], 2),
        ({"player": 0, "decision": second, "turn": [0], "decisions": [second]}, [team[0], ada, f"{team[1]}, you"], 1),
        ({"player": None, "decision": None, "turn": [1], "decisions": []}, [*team, ada], 1),
    ):
        with opened(browser, server, "#/people") as page:
            page.wait_for_selector("h1")
            seen = page.evaluate(_AT_BOARD, [seats, {**looks, "names": ["0/0-3", "Ada"]}])
            page.evaluate(_DRAW, [board, {**view, **seen, "can": False}])
            said = page.locator(".seat").evaluate_all("all => all.map(seat => seat.getAttribute('aria-label'))")
            assert said == labels
            assert page.locator(".seat.turn").count() == turn
            assert page.messages == []


def test_boards_take_moves_by_keys(browser: Any, server: Server) -> None:
    actions = [{"action": 10 * k, "label": f"move {k}", "cell": None, "from": None} for k in range(300)]
    text: tuple[Any, Any] = {"kind": "text", "text": "somewhere"}, {"legal": actions}
    rows = [{**one, "label": label} for one, label in zip(actions[:2], ("Cooperate", "Defect"), strict=True)]
    payoffs = [[[5, 0], [10, 1]], [[5, 10], [0, 1]]]
    labels = ["Cooperate", "Defect"]
    matrix: tuple[Any, Any] = (
        {"kind": "matrix", "actions": [labels, labels], "payoffs": payoffs, "chosen": [None, None]},
        {"legal": rows},
    )
    numbers: tuple[Any, Any] = (
        {"kind": "text", "text": ""},
        {"box": {"low": [-2.0, None], "high": [2.0, 1.0], "names": []}},
    )
    whole: tuple[Any, Any] = (
        {"kind": "text", "text": ""},
        {"box": {"low": [0, 0], "high": [1, 3], "names": [], "whole": True}},
    )
    promotion = _chess(
        *((k, f"a8={kind}", (1, 0), (0, 0)) for k, kind in enumerate("QRBN")), (9, "Kd1", (7, 4), (7, 3))
    )
    for drawn, keys, chosen in (
        (text, ["2", "9", "7", "Enter"], 2970),
        (matrix, ["Tab", "Enter"], 10),
        (numbers, ["Tab", "ArrowRight", "Enter"], [0, 0.01]),
        (whole, ["ArrowRight", "Tab", "ArrowRight", "Enter"], [1, 2]),
        (promotion, [*["ArrowUp"] * 2, *["ArrowLeft"] * 4, "Enter", "ArrowUp", "Enter", "Tab", "Enter"], 1),
        (promotion, [*["ArrowDown"] * 4, "Enter", "ArrowLeft", "Enter"], 9),
        (_cards("goofspiel", [["1"], ["2"]], ["bid 1", "bid 3"]), ["Tab", "Enter"], 1),  # no card shows a 3
    ):
        with opened(browser, server, "#/people") as page:
            page.wait_for_selector("h1")
            page.evaluate(_DRAW, list(drawn))
            for key in keys:
                page.keyboard.press(key)
            assert page.evaluate("window.chosen") == chosen
            assert page.messages == []


def test_everybody_who_played_stands_among_the_people(browser: Any, server: Server) -> None:
    with opened(browser, server, "#/people") as page:
        page.wait_for_selector(".game-list, .empty")
        rows = page.evaluate("fetch('api/people').then(r => r.json())")
        names = page.locator("tbody td:first-child").all_inner_texts()
        assert sorted(person["name"] for person in rows["people"]) == sorted(names)
        assert page.locator(".of-game").count() == len({person["game"] for person in rows["people"]})
        assert page.locator(".game-list li").count() == len(rows["games"])
        assert json.dumps(rows).count("Ada") >= 1
        links = page.locator(".game-list").get_by_role("link", name="Replay")
        assert links.count() == len(rows["games"])
        rows["games"][0]["has_replay"] = False
        page.route("**/api/people", lambda route: route.fulfill(json=rows))
        page.reload()
        links.first.wait_for()
        assert links.count() == len(rows["games"]) - 1
        assert page.messages == []
