"""The routes of who plays: tables, replays, trees, people; what they refuse, and what they never show."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from ludus.apps.play.episodes import EpisodeCache, EpisodeLine
from ludus.apps.play.people import People
from ludus.apps.ui.server.access import PLAY, WATCH, Access
from ludus.apps.ui.server.address import listen
from ludus.apps.ui.server.app import make_app
from ludus.apps.ui.server.known_runs import KnownRuns
from ludus.apps.ui.server.serving import make_state, serve
from ludus.cli.main import main
from ludus.core.errors import RunError

HEADERS = {"X-Ludus": "1"}


class Served(NamedTuple):
    client: TestClient
    run: str
    folder: Path
    access: Access

    def get(self, path: str, **query: str) -> Any:
        return self.client.get(path, params=query)

    def post(self, path: str, **body: Any) -> Any:
        return self.client.post(path, json=body, headers=HEADERS)

    def table(self, *who: str, **more: Any) -> dict[str, Any]:
        seats = [{"who": name, "name": f"P{p}" if name == "person" else ""} for p, name in enumerate(who)]
        answer = self.post("/api/tables", run=self.run, seats=seats, **more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def move(self, table: dict[str, Any], player: int, action: int, number: int | None = None) -> Any:
        token = table["seats"][player]["token"]
        if number is None:
            number = self.get(f"/api/tables/{table['table']}", seat=token).json()["frame"]["number"]
        moves = [{"player": player, "agent": 0, "action": action}]
        return self.post(f"/api/tables/{table['table']}/move", seat=token, moves=moves, number=number)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the run `k`: Kuhn poker, exactly solved."""
    found = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        assert main(["train", "kuhn", "generations=2", "--run-dir", "runs/k"]) == 0
    return found


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    access = Access(port=80)
    state = make_state(access, KnownRuns(root=folder / "runs"), people=folder / "people.db")
    with TestClient(make_app(state), base_url="http://localhost") as client:
        client.cookies.set(access.cookie, access.tokens.of(PLAY))
        [line] = client.get("/api/runs").json()["runs"]
        yield Served(client, line["id"], folder, access)


def test_who_can_sit_where(served: Served) -> None:
    seats = served.get(f"/api/runs/{served.run}/seats").json()
    assert seats["run"] == "k"
    assert seats["players"] == [{"player": 0, "name": "player_0"}, {"player": 1, "name": "player_1"}]
    by_name = {one["name"]: one["players"] for one in seats["members"]}
    assert (by_name["@meta"], by_name["@0/0-2"], by_name["random"]) == ([0, 1], [0], [0, 1])
    assert (seats["defaults"], seats["human"], seats["keys"]) == (["person", "@meta"], True, None)
    assert served.get("/api/runs/nope/seats").status_code == 404


def test_a_game_is_played_to_its_end_and_kept_apart_from_the_run(served: Served) -> None:
    before = {path: path.read_bytes() for path in (served.folder / "runs" / "k").rglob("*") if path.is_file()}
    table = served.table("person", "@best", rated=True)
    assert table["seats"][1] == {"player": 1, "token": None}
    view = served.get(f"/api/tables/{table['table']}", seat=table["seats"][0]["token"]).json()
    while not view["over"]:
        view = served.move(table, 0, 0).json()
    assert not any(card["hidden"] for seat in view["frame"]["board"]["seats"] for card in seat["cards"])
    people = served.get("/api/people").json()
    assert [(one["name"], one["games"]) for one in people["people"]] == [("P0", 1)]
    assert people["games"][0]["id"] == view["replay"]
    replay = served.get(f"/api/runs/{served.run}/replays/{view['replay']}").json()
    assert replay["frames"][-1]["returns"] == view["frame"]["returns"]
    assert served.get(f"/api/replays/{view['replay']}.json").json() == replay
    again = served.post(f"/api/tables/{table['table']}/again", seat=table["seats"][0]["token"])
    assert again.json()["results"] == [{"returns": view["frame"]["returns"]}]
    assert {path: path.read_bytes() for path in before} == before
    gone = served.client.delete(
        f"/api/tables/{table['table']}", params={"seat": table["seats"][0]["token"]}, headers=HEADERS
    )
    assert gone.status_code == 200
    assert served.move(table, 0, 0, number=0).status_code == 404


def test_a_game_whose_result_cannot_be_kept_has_its_replay(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: People, game: object, replay: bytes) -> None:
        raise RunError("people.db: the disk is full.")

    monkeypatch.setattr(People, "add", full)
    table = served.table("person", "@best")
    view = served.get(f"/api/tables/{table['table']}", seat=table["seats"][0]["token"]).json()
    while not view["over"]:
        view = served.move(table, 0, 0).json()
    assert view["note"] == "people.db: the disk is full."
    replay = served.get(f"/api/runs/{served.run}/replays/{view['replay']}").json()
    assert replay["frames"][-1]["returns"] == view["frame"]["returns"]


def test_a_token_opens_one_seat(served: Served) -> None:
    table = served.table("person", "person")
    place = f"/api/tables/{table['table']}"
    views = [served.get(place, seat=seat["token"]).json() for seat in table["seats"]]
    watched = served.get(place, seat=table["watch"])
    hidden = [
        [seat["cards"][0]["hidden"] for seat in view["frame"]["board"]["seats"]] for view in (*views, watched.json())
    ]
    assert hidden == [[False, True], [True, False], [True, True]]
    for seat in table["seats"]:
        assert seat["token"] not in watched.text + json.dumps(views)
    assert served.get(place).status_code == 403
    assert served.get(place, seat="0" * 32).status_code == 403
    assert served.get(place, seat="é" * 32).status_code == 403
    own = table["seats"][0]["token"]
    assert served.get(f"{place}/live", seat=f"{own},{'0' * 32}").status_code == 403
    for many in (",".join([own] * 65), "x" * 10**4):
        assert served.get(f"{place}/live", seat=many).status_code == 422
    assert served.post(f"{place}/again", seat=table["watch"]).status_code == 409
    assert served.client.delete(place, params={"seat": table["watch"]}, headers=HEADERS).status_code == 403


def test_a_table_takes_the_place_of_another(served: Served) -> None:
    old = served.table("person", "person")
    watched = {"table": old["table"], "seat": old["watch"]}
    seats = [{"who": "person"}, {"who": "random"}]
    assert served.post("/api/tables", run=served.run, seats=seats, instead=watched).status_code == 403
    new = served.table("person", "random", instead={**watched, "seat": old["seats"][0]["token"]})
    asked = [served.get(f"/api/tables/{one['table']}", seat=one["watch"]).status_code for one in (old, new)]
    assert asked == [404, 200]


def test_moves_that_are_refused(served: Served) -> None:
    table = served.table("person", "person")
    token = table["seats"][0]["token"]
    place = f"/api/tables/{table['table']}/move"
    illegal = served.move(table, 0, 9)
    assert (illegal.status_code, "is not legal" in illegal.json()["error"]) == (422, True)
    assert served.move(table, 0, 0, number=5).status_code == 409
    assert served.move(table, 1, 0).status_code == 409
    for body in (
        {"seat": token, "moves": [], "number": 0},
        {"seat": token, "moves": [{"player": 0, "agent": 0, "action": "0"}], "number": 0},
        {"seat": token, "moves": [{"player": 0, "agent": 0, "action": True}], "number": 0},
        {"seat": token, "moves": [{"player": 0, "agent": 0, "action": 10**30}], "number": 0},
        {"seat": token, "moves": [{"player": 0, "agent": 0, "action": 0, "more": 1}], "number": 0},
        {"seat": "x" * 100, "moves": [{"player": 0, "agent": 0, "action": 0}], "number": 0},
    ):
        answer = served.post(place, **body)
        assert (answer.status_code, list(answer.json())) == (422, ["error"]), body
    vector = served.post(place, seat=token, moves=[{"player": 0, "agent": 0, "action": [0.5]}], number=0)
    assert vector.status_code == 422
    assert served.get(f"/api/tables/{table['table']}", seat=token).json()["frame"]["number"] == 0


@pytest.mark.parametrize(
    "who", ["/etc/passwd.safetensors", "os:system", "k@best", "bot:mcts,simulations=9", "@../x/y", "@0/x.safetensors"]
)
def test_a_page_names_policies_of_its_run_and_bots_only(served: Served, who: str) -> None:
    seats = [{"who": "person"}, {"who": who}]
    laid = served.post("/api/tables", run=served.run, seats=seats)
    shown = served.post(f"/api/runs/{served.run}/show", seats=["@best", who])
    opened = served.get(f"/api/runs/{served.run}/tree", seats=f"@best,{who}")
    for answer in (laid, shown, opened):
        assert answer.status_code == 422, answer.text
        assert str(served.folder) not in answer.text


def test_policies_show_a_game_and_it_can_be_kept(served: Served) -> None:
    seats = ["@0/0-2", "@1/1-1"]
    shown = served.post(f"/api/runs/{served.run}/show", seats=seats, seed=3).json()
    assert [seat["name"] for seat in shown["seats"]] == seats
    assert served.get(f"/api/runs/{served.run}/replays").json() == []
    kept = served.post(f"/api/runs/{served.run}/keep", replay=shown["id"]).json()
    assert kept == {"id": shown["id"]}
    [line] = served.get(f"/api/runs/{served.run}/replays").json()
    assert (line["id"], line["seats"]) == (kept["id"], seats)
    file = served.folder / "runs" / "k" / "replays" / f"{kept['id']}.json"
    assert {"id": kept["id"], "saves": True, **json.loads(file.read_text())} == shown  # not a game that is played anew
    file.unlink()
    assert served.post(f"/api/runs/{served.run}/keep", replay="1" * 16).status_code == 404
    assert served.get(f"/api/runs/{served.run}/replays/{kept['id']}").status_code == 200  # still held here
    for wrong in ("1" * 16, "x", "..%2f..%2fludus.db"):
        assert served.get(f"/api/runs/{served.run}/replays/{wrong}").status_code == 404
    assert served.get(f"/api/replays/{kept['id']}.exe").status_code == 404
    page = served.get(f"/api/replays/{kept['id']}.html")
    assert page.headers["content-disposition"] == 'attachment; filename="openspiel-kuhn_poker-0-0-2-1-1-1.html"'
    assert '"replay":{"game":"openspiel/kuhn_poker"' in page.text
    film = served.get(f"/api/replays/{kept['id']}.gif")
    assert (film.status_code, film.headers["content-type"], film.content[:6]) == (200, "image/gif", b"GIF89a")


def test_every_pair_has_episodes_which_a_seed_shows_again(served: Served) -> None:
    seats = ["@0/0-2", "random"]
    found = served.post(f"/api/runs/{served.run}/episodes", seats=seats, many=6).json()
    assert (found["zero_sum"], found["repeats"]) == (True, True)
    assert [one["seed"] for one in found["episodes"]] == list(range(6))
    for one in found["episodes"][::3]:
        shown = served.post(f"/api/runs/{served.run}/show", seats=seats, seed=one["seed"]).json()
        assert shown["frames"][-1]["returns"] == one["returns"]
        assert len(shown["frames"]) == one["steps"] + 1
    more = served.post(f"/api/runs/{served.run}/episodes", seats=seats, first=4, many=4).json()["episodes"]
    assert [one["seed"] for one in more] == [4, 5, 6, 7]
    assert more[:2] == found["episodes"][4:]
    for wrong in ({"many": 51}, {"first": -1}, {"seats": []}, {"seats": ["k@best", "random"]}):
        assert served.post(f"/api/runs/{served.run}/episodes", **{"seats": seats, **wrong}).status_code == 422


def test_no_more_episodes_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.apps.play.episodes.MOST_EPISODES", 3)
    monkeypatch.setattr("ludus.apps.play.episodes.MOST_PROFILES", 2)
    cache, asked = EpisodeCache(), list[int]()

    def play(seeds: Sequence[int]) -> list[EpisodeLine]:
        asked.extend(seeds)
        return [EpisodeLine(seed=seed, seats=(), returns=(), steps=1, over="terminated") for seed in seeds]

    cache.get("a", range(3), play)
    cache.get("a", range(1, 5), play)  # forgets 0 and 1
    cache.get("a", [4, 1], play)
    assert asked == [0, 1, 2, 3, 4, 1]
    for key in ("b", "c"):
        cache.get(key, [0], play)
    cache.get("a", [4], play)
    assert asked[-1] == 4


def test_one_film_is_made_at_a_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = served.post(f"/api/runs/{served.run}/show", seats=["@best"]).json()["id"]
    meanwhile = []

    def film(*_: object) -> bytes:
        meanwhile.append(served.get(f"/api/replays/{replay}.mp4").status_code)
        return b"a film"

    monkeypatch.setattr("ludus.apps.play.replays.film", film)
    for _ in range(2):
        assert served.get(f"/api/replays/{replay}.gif").content == b"a film"
    assert meanwhile == [429, 429]
    monkeypatch.setattr("ludus.apps.ui.server.replay_routes._MOST_FILMED", 1)
    assert served.get(f"/api/replays/{replay}.gif").status_code == 422


def test_the_tree_is_opened_node_by_node(served: Served) -> None:
    root = served.get(f"/api/runs/{served.run}/tree").json()
    assert (root["kind"], root["seats"], len(root["children"])) == ("chance", ["@meta", "@meta"], 3)
    node = served.get(f"/api/runs/{served.run}/tree", seats="@0/0-1,@1/1-1", node="0.1").json()
    assert (node["player"], node["information"], len(node["regret"])) == (0, "0", 2)
    assert served.get(f"/api/runs/{served.run}/tree", node="9").status_code == 422
    refused = served.get(
        f"/api/runs/{served.run}/tree", seats="person"
    )  # not a run of that name, nor a list of the runs there are
    assert (refused.status_code, refused.json()["error"]) == (
        422,
        "a person has no table of probabilities. Name a policy.",
    )


def test_who_may_only_watch_plays_nothing(served: Served) -> None:
    watcher = TestClient(served.client.app, base_url="http://localhost")
    watcher.cookies.set(served.access.cookie, served.access.tokens.of(WATCH))
    body = {"run": served.run, "seats": [{"who": "person"}, {"who": "@meta"}]}
    refused = [
        watcher.post("/api/tables", json=body, headers=HEADERS),
        watcher.post(f"/api/runs/{served.run}/show", json={"seats": ["@meta"]}, headers=HEADERS),
        watcher.post(f"/api/runs/{served.run}/keep", json={"replay": "1" * 16}, headers=HEADERS),
        watcher.get(f"/api/runs/{served.run}/seats"),
    ]
    assert [answer.status_code for answer in refused] == [403, 403, 403, 403]
    assert watcher.get("/api/people").status_code == 200
    table = served.table("person", "person")
    shown = watcher.get(f"/api/tables/{table['table']}", params={"seat": table["watch"]}).json()
    assert shown["you"] == []
    moves = [{"player": 0, "agent": 0, "action": 0}]
    moved = watcher.post(
        f"/api/tables/{table['table']}/move",
        json={"seat": table["seats"][0]["token"], "moves": moves, "number": 0},
        headers=HEADERS,
    )
    assert moved.status_code == 403


def test_hints_are_given_by_whom_one_chooses_with_values_from_the_tree(served: Served) -> None:
    seats = served.get(f"/api/runs/{served.run}/seats").json()
    assert seats["hints"] == ["@meta", "@meta"]
    assert {one["name"]: one["advises"] for one in seats["members"]}["random"] is False
    for who in ("@meta", "@0/0-2"):
        table = served.table("person", "@best", hints=who)
        view = served.get(f"/api/tables/{table['table']}", seat=table["seats"][0]["token"]).json()
        [due] = view["frame"]["decisions"]
        assert (view["hints"], due["hint"]["policy"]) == (who, who)
        card = "JQK".index(view["frame"]["board"]["seats"][0]["cards"][0]["rank"])
        reached = [f"{card}.{other}" for other in range(3) if other != card]  # equally likely
        nodes = [served.get(f"/api/runs/{served.run}/tree", seats=f"{who},@meta", node=node).json() for node in reached]
        worth = np.mean([[child["value"][0] for child in node["children"]] for node in nodes], axis=0)
        assert due["values"] == pytest.approx(worth)
        assert due["value"] == pytest.approx(np.mean([node["value"][0] for node in nodes]))
        assert due["value"] == pytest.approx(np.dot(due["probs"], due["values"]), abs=1e-5)
        assert "computed in the game's tree" in due["hint"]["values"]
        assert (due["hint"]["meta"] is None) == (who == "@meta")
    refused = served.post("/api/tables", run=served.run, seats=[{"who": "person"}, {"who": "random"}], hints="os:x")
    assert refused.status_code == 422


def _cards_seen(view: dict[str, Any]) -> list[bool]:
    """Of each seat, whether its card is seen."""
    return [not seat["cards"][0]["hidden"] for seat in view["frame"]["board"]["seats"]]


def test_seats_at_one_screen_are_sent_no_seat_s_view_together(served: Served) -> None:
    table = served.table("person", "person")
    place, tokens = f"/api/tables/{table['table']}", [seat["token"] for seat in table["seats"]]
    together = served.get(place, seat=",".join(tokens)).json()
    assert (together["here"], together["you"], together["waiting_for"]) == ([0, 1], [], [0])
    assert _cards_seen(together) == [False, False]
    assert together["frame"]["decisions"] == []
    watched = served.get(place, seat=table["watch"]).json()
    assert {name: value for name, value in together.items() if name != "here"} == watched
    moved = served.move(table, 0, 1).json()
    assert (moved["you"], _cards_seen(moved)) == ([0], [True, False])  # of who moved, not of who is to move
    ended = served.move(table, 1, 0).json()
    assert ended["over"]
    again = served.post(f"{place}/again", seat=",".join(tokens)).json()
    assert (again["round"], _cards_seen(again)) == (2, [False, False])


def test_a_table_s_page_hears_of_every_change(served: Served) -> None:
    """Over real connections: a seat's stream has that seat's view, one of several seats what everybody may see; both hear of the end."""
    known = KnownRuns(root=served.folder / "runs")
    access = Access()
    server = serve(known, listen("127.0.0.1", 0), access=access, host="127.0.0.1", people=served.folder / "other.db")
    thread = threading.Thread(target=server.server.run, kwargs={"sockets": [server.socket]})
    thread.start()
    try:
        cookie = {access.cookie: access.tokens.of(PLAY)}
        with httpx.Client(base_url=f"http://127.0.0.1:{access.port}", cookies=cookie, timeout=20) as client:
            body = {"run": served.run, "seats": [{"who": "person"}, {"who": "person"}]}
            table = client.post("/api/tables", json=body, headers=HEADERS).json()
            place, tokens = f"/api/tables/{table['table']}", [seat["token"] for seat in table["seats"]]
            live = [
                partial(client.stream, "GET", f"{place}/live", params={"seat": seats})
                for seats in (tokens[1], ",".join(tokens))
            ]
            with live[0]() as own, live[1]() as shared:
                streams = [
                    (line for line in stream.iter_lines() if line.startswith(("event:", "data:")))
                    for stream in (own, shared)
                ]

                def heard() -> list[Any]:
                    assert [next(lines) for lines in streams] == ["event: frame"] * 2
                    return [json.loads(next(lines)[6:]) for lines in streams]

                views = heard()
                moves = [{"player": 0, "agent": 0, "action": 1}]
                answer = client.post(
                    f"{place}/move", json={"seat": tokens[0], "moves": moves, "number": 0}, headers=HEADERS
                )
                assert answer.json()["waiting_for"] == [1]
                for waiting, (one, several) in (([0], views), ([1], heard())):
                    assert (one["waiting_for"], several["waiting_for"]) == (waiting, waiting)
                    assert (one["you"], several["you"], several["here"]) == ([1], [], [0, 1])
                    assert (_cards_seen(one), _cards_seen(several)) == ([False, True], [False, False])
                client.delete(place, params={"seat": tokens[0]}, headers=HEADERS)
                assert [next(lines) for lines in streams] == ["event: gone"] * 2
    finally:
        server.end()
        thread.join(20)


_LOOKS = """
import sys
from pathlib import Path
from starlette.testclient import TestClient
from ludus.apps.ui.server.access import Access
from ludus.apps.ui.server.address import WATCH
from ludus.apps.ui.server.app import make_app
from ludus.apps.ui.server.known_runs import KnownRuns
from ludus.apps.ui.server.serving import make_state

access = Access(port=80)
state = make_state(access, KnownRuns(root=Path("runs")), people=Path("people.db"))
with TestClient(make_app(state), base_url="http://localhost") as client:
    client.cookies.set(access.cookie, access.tokens.of(WATCH))
    run = client.get("/api/runs").json()["runs"][0]["id"]
    paths = "people", f"runs/{run}/replays", f"runs/{run}/replays/{'0' * 16}", "tables/x", f"replays/{'0' * 16}.json"
    print([client.get(f"/api/{path}").status_code for path in paths], "torch" in sys.modules)
"""


@pytest.mark.slow
def test_who_looks_at_results_and_replays_loads_no_torch(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOOKS], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[200, 200, 404, 404, 404] False\n"


def test_tables_that_nobody_uses_are_closed_though_none_is_laid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = threading.Event()
    monkeypatch.setattr("ludus.apps.ui.server.app._MINUTE", 0.01)
    monkeypatch.setattr("ludus.apps.ui.server.open_games.PlayRoom.sweep", lambda room: seen.set())
    with TestClient(make_app(make_state(Access(port=80), KnownRuns(root=tmp_path), people=tmp_path / "people.db"))):
        assert seen.wait(10)
