"""What watchers are answered, and told: once for all of them, also of runs that come, change and go."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import synthetic_run as synthetic
from server_tools import Asker, asking

from ludus.apps.common.experiments import Experiment
from ludus.apps.ui.server import streams, watcher
from ludus.apps.ui.server.answer_cache import AnswerCache
from ludus.apps.ui.server.known_runs import KnownRuns, known_run
from ludus.apps.ui.server.live_status import FRESH, read_live
from ludus.apps.ui.server.streams import Stream, StreamCount
from ludus.apps.ui.server.watcher import RunUpdate, WatchedRun, Watcher, look
from ludus.core.errors import RunError
from ludus.runs.control import STATUS_FILE, Status, write_live_file
from ludus.runtime.base import PartState
from ludus.storage.database import FILE
from ludus.storage.run_dirs import EXPERIMENT, RunLock
from ludus.storage.store import Store


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("template") / "try1", generations=3)


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "runs" / "try1")
    return tmp_path / "runs"


@pytest.fixture
def asker(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    monkeypatch.setattr(watcher, "LOOK", 0.0)
    monkeypatch.setattr(watcher, "LIST", 0.0)
    with asking(root) as asker:
        yield asker


def grow(run_dir: Path) -> None:
    """A generation more."""
    with Store.open(run_dir) as store:
        store.generation_done(synthetic.generation(4, (4, 4), nash_conv=0.25))
        store.commit("g4")


def status(host: str = "", **changes: Any) -> Status:
    facts = {
        "session": "s",
        "host": host or socket.gethostname(),
        "pid": 1,
        "version": "0",
        "began": 0.0,
        "written": 0.0,
    }
    return Status(**{**facts, **changes})


# ---------------------------------------------------------------------------------------------- the list


def test_the_list_tells_of_all_runs_and_of_no_place(root: Path, asker: Asker) -> None:
    (root / "exp").mkdir()
    (root / "exp" / EXPERIMENT).write_text("{}")
    shutil.copytree(root / "try1", root / "exp" / "seed0")
    broken = root / "broken"
    broken.mkdir()
    (broken / FILE).write_text("no database")
    shutil.copytree(root / "try1", root / "odd")
    with closing(sqlite3.connect(root / "odd" / FILE)) as odd, odd:
        odd.execute("UPDATE generations SET seconds = 'soon'")
    text = asker.get("/api/runs").text
    lost = {line["name"]: line["why"] for line in json.loads(text)["unreadable"]}
    assert (lost.keys(), "not a database" in lost["broken"]) == ({"broken", "odd"}, True)
    assert "its database is damaged: TypeError" in lost["odd"]
    lines = {line["name"]: line for line in json.loads(text)["runs"]}
    assert {name: line["group"] for name, line in lines.items()} == {"exp/seed0": "exp", "try1": None}
    assert (lines["try1"]["state"], lines["try1"]["policies"], lines["try1"]["seed"]) == ("finished", 8, 7)
    assert str(root.parent) not in text
    assert len({line["id"] for line in lines.values()}) == 2
    assert all(len(bytes.fromhex(line["id"])) == 16 for line in lines.values())


def test_runs_that_come_and_go_show(root: Path, asker: Asker) -> None:
    before = asker.get("/api/runs").json()
    assert asker.get("/api/runs").json() == before
    (root / "try1").rename(root / "try2")
    after = asker.get("/api/runs").json()
    assert [run["name"] for run in after["runs"]] == ["try2"]
    assert after["version"] > before["version"]


def test_the_list_changes_when_the_process_of_an_experiment_ends(root: Path, asker: Asker) -> None:
    shutil.copytree(root / "try1", root / "exp" / "seed-0")
    Experiment(root / "exp", {}, {"seed-0": (), "seed-1": ()}).save()
    with RunLock(root / "exp"):
        before = asker.get("/api/runs").json()
    after = asker.get("/api/runs").json()
    assert [(one["states"]["not begun"], one["at_work"]) for one in before["experiments"]] == [(1, True)]
    assert [(one["states"]["not begun"], one["at_work"]) for one in after["experiments"]] == [(1, False)]
    assert after["version"] > before["version"]


def test_runs_by_name_path_and_experiment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    (root / "exp").mkdir()
    (root / "exp" / EXPERIMENT).write_text("{}")
    shutil.copytree(root / "try1", root / "exp" / "seed0")
    elsewhere = root.parent / "copied"
    shutil.copytree(root / "try1", elsewhere)
    known = KnownRuns(["exp", str(elsewhere), "try1"])
    assert [run.name for run in known.all()] == ["exp/seed0", "copied", "try1"]
    with pytest.raises(RunError, match="there is no run 'try9'; did you mean 'try1'"):
        KnownRuns(["try9"])
    entry = root / "entry"
    entry.mkdir()
    (entry / "manifest.json").write_text("{}")
    played = KnownRuns(["entry"])
    assert (played.all(), [one.name for one in played.entries()]) == ((), ["entry"])
    [below] = KnownRuns(root=root).entries()
    assert below.id == played.entries()[0].id
    assert played.playable(below.id).entry
    assert KnownRuns(root=root / "none").all() == ()


def test_an_id_outlives_a_restart_and_says_nothing(root: Path) -> None:
    one, other = known_run(root / "try1"), known_run(root / ".." / "runs" / "try1")
    assert one.id == other.id != known_run(root / "try2").id
    assert (
        one.without_paths(f"the database '{root}/try1/ludus.db' is damaged")
        == "the database 'try1/ludus.db' is damaged"
    )


def test_a_run_of_a_later_moment_is_found_by_its_id(root: Path) -> None:
    now = [0.0]
    known = KnownRuns(root=root, clock=lambda: now[0])
    later = known_run(root / "later").id
    shutil.copytree(root / "try1", root / "later")
    assert known.get(later) is None  # asked at once
    now[0] = 5.0
    found = known.get(later)
    assert found is not None
    assert found.name == "later"


# ---------------------------------------------------------------------------------------------- panels


def test_panels_answer_and_are_not_sent_twice(asker: Asker) -> None:
    run = asker.run_id("try1")
    for path in ("overview", "convergence", "events?limit=1", "payoffs?order=age"):
        reply = asker.get(f"/api/runs/{run}/{path}")
        assert reply.status_code == 200, (path, reply.text)
        again = asker.get(f"/api/runs/{run}/{path}", headers={"if-none-match": reply.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert asker.get(f"/api/runs/{run}/convergence").json()["generation"] == [0, 1, 2, 3]


@pytest.mark.parametrize("first", ["/api/runs/{run}/overview", "/api/runs"])
def test_slow_figures_are_precomputed(asker: Asker, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that somebody looks at, and of the largest on the list, if it is large."""
    monkeypatch.setattr("ludus.apps.ui.server.watcher.MANY", 4 if first == "/api/runs" else 1000)
    run = asker.run_id("try1")
    for _ in range(2):
        assert asker.get(first.format(run=run)).status_code == 200
    for _ in range(100):
        if any(key[:2] == (run, "payoffs") for key in asker.state.watcher.answers._bodies):  # type: ignore[index]
            break
        asker.get("/api/session")
        time.sleep(0.05)
    else:
        pytest.fail("it was not made")


def test_a_run_that_grows_has_new_panels(root: Path, asker: Asker) -> None:
    path = f"/api/runs/{asker.run_id('try1')}/convergence"
    tag = asker.get(path).headers["etag"]
    grow(root / "try1")
    reply = asker.get(path, headers={"if-none-match": tag})
    assert (reply.status_code, reply.json()["generation"]) == (200, [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("none/overview", 404),
        ("RUN/nothing", 404),
        ("RUN/events?limit=x", 400),
        ("RUN/events?reader=1", 400),
        ("RUN/events?self=1", 400),
        ("RUN/overview?x=1", 400),
        ("RUN/payoffs?order=../..", 400),
    ],
)
def test_watching_rejects_invalid_queries(asker: Asker, path: str, status: int) -> None:
    reply = asker.get(f"/api/runs/{path.replace('RUN', asker.run_id('try1'))}")
    assert (reply.status_code, [*reply.json()]) == (status, ["error"])


def test_a_run_that_is_deleted_is_gone_and_breaks_nothing(root: Path, asker: Asker) -> None:
    path = f"/api/runs/{asker.run_id('try1')}/overview"
    assert asker.get(path).status_code == 200
    shutil.rmtree(root / "try1")
    reply = asker.get(path)
    assert (reply.status_code, "error" in reply.json()) == (404, True)
    assert asker.get("/api/runs").json()["runs"] == []


def test_a_damaged_database_is_said_without_its_place(root: Path, asker: Asker) -> None:
    run = asker.run_id("try1")
    file = root / "try1" / FILE
    file.write_bytes(file.read_bytes()[:4096] + bytes(file.stat().st_size - 4096))
    reply = asker.get(f"/api/runs/{run}/convergence")
    assert (reply.status_code, str(root) in reply.text) == (409, False)


def test_a_cell_of_another_type_is_said(root: Path, asker: Asker) -> None:
    with closing(sqlite3.connect(root / "try1" / FILE)) as database, database:
        database.execute("UPDATE generations SET nash_conv = 'far' WHERE number = 1")
    reply = asker.get(f"/api/runs/{asker.run_id('try1')}/convergence")
    assert reply.status_code == 409
    assert "convergence cannot be shown" in reply.json()["error"]


def test_nothing_is_written_beside_a_run(root: Path, asker: Asker) -> None:
    def held() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (root / "try1").iterdir()}

    before = held()
    for name in ("overview", "payoffs", "events"):
        assert asker.get(f"/api/runs/{asker.run_id('try1')}/{name}").status_code == 200
    assert held() == before


def test_a_driver_can_tidy_up_behind_those_who_watched(root: Path, asker: Asker) -> None:
    with Store.open(root / "try1"):
        for panel in ("overview", "payoffs"):  # the second is made while the first is looked at, and waited for here
            assert asker.get(f"/api/runs/{asker.run_id('try1')}/{panel}").status_code == 200
    with sqlite3.connect(root / "try1" / FILE) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


@pytest.mark.slow
def test_a_run_on_a_read_only_file_system(root: Path) -> None:
    """What a run that was killed has left, copied without all of its files."""
    with Store.open(root / "try1"):
        shutil.copytree(root / "try1", root / "killed")  # in the write-ahead mode
    for left in (root / "killed").glob("ludus.db-*"):
        left.unlink()
    shutil.copytree(root / "killed", root / "rows")
    (root / "rows" / f"{FILE}-wal").write_bytes(b"rows")
    read = (
        "import sys; from pathlib import Path; from ludus.storage.reader import Reader\n"
        "with Reader(Path(sys.argv[1])) as reader: print(len(reader.generations()))"
    )
    mounted = (
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" 2>/dev/null && shift && exec "$@"'
    )

    def seen(name: str) -> subprocess.CompletedProcess[str]:
        line = ["unshare", "-rm", "sh", "-c", mounted, "sh", str(root), sys.executable, "-c", read, str(root / name)]
        return subprocess.run(line, capture_output=True, text=True)

    if "unshare" in (killed := seen("killed")).stderr:
        pytest.skip("this machine lets nobody mount anything")
    assert (killed.stdout, killed.stderr) == ("4\n", "")
    assert "Copy the whole directory to where it may." in seen("rows").stderr


def test_large_answers_are_packed_for_those_who_can(asker: Asker) -> None:
    path = "/page/app.js"
    plain = asker.get(path, headers={"accept-encoding": "identity"})
    packed = asker.get(path, headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert plain.content == packed.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])


def test_runs_are_compared(root: Path, asker: Asker) -> None:
    shutil.copytree(root / "try1", root / "try2")
    asker.get("/api/runs")
    runs = f"{asker.run_id('try1')},{asker.run_id('try2')}"
    reply = asker.get("/api/compare", params={"runs": runs})
    assert [group["name"] for group in reply.json()["groups"]] == ["try1", "try2"]
    assert asker.get("/api/compare", params={"runs": "none"}).status_code == 404
    assert asker.get("/api/compare", params={"runs": ""}).status_code == 422
    assert asker.get("/api/compare", params={"runs": ",".join(map(str, range(65)))}).status_code == 422
    assert asker.get("/api/compare", params={"runs": runs, "metric": "nothing"}).status_code == 400


def test_concurrent_figure_requests_compute_once() -> None:
    computed = list[str]()

    async def many() -> list[bytes]:
        answers = AnswerCache(most=4096)

        def compute() -> bytes:
            computed.append("a")
            return b"[1]"

        bodies = await asyncio.gather(*(answers.get("a", "00", compute) for _ in range(100)))
        for k in range(10):
            await answers.get(k, "ff", lambda: 1000 * b"x")
        assert answers.size <= 4096
        before = answers.size
        for state in range(9):
            body = await answers.get(2, "ff", lambda: 1000 * b"y", state=state)
            assert body is await answers.get(2, "ff", compute, state=state)
        assert answers.size == before  # what a run was like before is not kept
        await answers.get("a", "00", compute)
        answers.close()
        return [body.content for body in bodies]

    assert asyncio.run(many()) == 100 * [b"[1]"]
    assert len(computed) == 2  # the first was forgotten for the sake of others


def test_failed_figures_are_not_cached() -> None:
    async def twice() -> bytes:
        answers, turns = AnswerCache(), iter([ValueError("no"), b"yes"])

        def compute() -> bytes:
            turn = next(turns)
            if isinstance(turn, Exception):
                raise turn
            return turn

        with pytest.raises(ValueError, match="no"):
            await answers.get("a", "", compute)
        body = await answers.get("a", "", compute)
        answers.close()
        return body.content

    assert asyncio.run(twice()) == b"yes"


# ---------------------------------------------------------------------------------------------- what changes


def test_a_look_tells_what_is_new(root: Path) -> None:
    watched = WatchedRun(known_run(root / "try1"))
    assert look(watched) == RunUpdate()
    assert look(watched) == RunUpdate()
    grow(root / "try1")
    news = look(watched)
    assert {"convergence", "strategies"} <= news.panels
    with RunLock(root / "try1"):
        write_live_file(root / "try1", status(generation=3))
        assert look(watched) == RunUpdate(frozenset({"overview", "events"}), status=True)
        assert watched.live is not None
        assert (watched.live.state, watched.live.generation) == ("running", 3)
        for seen, told in ((100.0, True), (102.0, False), (106.0, True)):
            write_live_file(
                root / "try1", status(generation=3, parts=(PartState("worker", "rollout worker 0", seen=seen),))
            )
            assert look(watched) == RunUpdate(frozenset({"parts"} if told else ()), status=True)
        write_live_file(root / "try1", status(generation=3))
        look(watched)
        write_live_file(root / "try1", status(generation=3, paused=True))
        assert look(watched) == RunUpdate(status=True)
    assert look(watched) == RunUpdate(
        frozenset({"overview", "events"}), status=True
    )  # killed: its status lies there still
    assert watched.live is None


def test_a_run_in_anothers_place_is_another(root: Path, template: Path) -> None:
    watched = WatchedRun(known_run(root / "try1"))
    look(watched)
    (root / "try1" / FILE).rename(root / "try1" / "old")
    assert look(watched) == RunUpdate(gone=True)
    shutil.copyfile(template / FILE, root / "try1" / FILE)
    assert look(watched) == RunUpdate(gone=True)


def test_the_word_of_a_driver_elsewhere_is_taken_while_it_is_new(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    write_live_file(root / "try1", status("elsewhere", written=1000.0 - FRESH / 2))
    assert read_live(root / "try1") is not None
    write_live_file(root / "try1", status("elsewhere", written=1000.0 - 2 * FRESH))
    assert read_live(root / "try1") is None
    (root / "try1" / STATUS_FILE).write_text(json.dumps({"format": 99}))
    assert read_live(root / "try1") is None


class Browser:
    """Takes what a stream sends, while it reads. gone: once it has closed the page."""

    def __init__(self) -> None:
        self.sent, self.reads, self.gone = b"", asyncio.Event(), asyncio.Event()
        self.reads.set()

    async def receive(self) -> dict[str, str]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.sent += message.get("body", b"")

    @property
    def events(self) -> list[tuple[str, Any]]:
        blocks = [block.split("\ndata: ") for block in self.sent.decode().split("\n\n") if "\ndata: " in block]
        return [(name.removeprefix("event: "), json.loads(data)) for name, data in blocks]


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_stream_sends_the_newest_and_waits_for_nobody() -> None:
    async def scene() -> Sequence[tuple[str, Any]]:
        count, browser = StreamCount(most=1), Browser()
        stream = Stream(count)
        open_ = asyncio.ensure_future(stream({}, browser.receive, browser.send))
        stream.put("a", 1)
        await settled()
        browser.reads.clear()  # it is busy
        stream.put("a", 2)
        await settled()
        for k in range(3, 1000):
            stream.put("a", k)
            stream.put("b", {"n": [k]}, key="x", merge=lambda waiting, new: {"n": waiting["n"][:1] + new["n"]})
        stream.put("b", b'{"n":0}', key="y")
        assert len(stream._waiting) == 3
        browser.reads.set()
        await settled()
        with pytest.raises(Exception, match="1 pages are open already"):
            Stream(count)
        browser.gone.set()
        await open_
        assert count.open == 0
        return browser.events

    assert asyncio.run(scene()) == [("a", 1), ("a", 2), ("a", 999), ("b", {"n": [3, 999]}), ("b", {"n": 0})]


def test_a_stream_says_that_it_is_there_and_drops_who_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.0)
    monkeypatch.setattr(streams, "PATIENCE", 0.05)

    async def scene() -> bytes:
        count, browser, closed = StreamCount(), Browser(), list[str]()
        stream = Stream(count, closed=lambda: closed.append("closed"))
        open_ = asyncio.ensure_future(stream({}, browser.receive, browser.send))
        await settled()
        browser.reads.clear()  # it is gone without a word
        await open_
        assert (closed, count.open) == (["closed"], 0)
        return browser.sent

    assert b": here\n\n" in asyncio.run(scene())


def test_the_end_of_the_server_ends_streams() -> None:
    async def scene() -> list[tuple[str, Any]]:
        count, browser = StreamCount(), Browser()
        open_ = asyncio.ensure_future(Stream(count)({}, browser.receive, browser.send))
        await settled()
        count.close()
        await open_
        return browser.events

    assert asyncio.run(scene()) == [("bye", {})]


def test_viewers_are_told_together(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "LOOK", 0.0)
    monkeypatch.setattr(watcher, "LIST", 0.0)
    looks = list[str]()

    def counted(watched: WatchedRun) -> RunUpdate:
        looks.append(watched.run.name)
        return look(watched)

    monkeypatch.setattr(watcher, "look", counted)

    async def scene() -> list[dict[tuple[str, str], Any]]:
        watching = Watcher(KnownRuns(root=root))
        run = watching.runs.all()[0].id
        viewers = [watching.stream([run, "none"]) for _ in range(50)]
        await watching._look_at_all()
        for viewer in viewers:
            assert viewer._waiting.pop(("gone", "none")) == {"run": "none"}
            viewer._waiting.clear()
        grow(root / "try1")
        looks.clear()
        await watching._look_at_all()
        assert looks == ["try1"]
        told = [dict(viewer._waiting) for viewer in viewers]
        shutil.rmtree(root / "try1")
        await watching._look_at_all()
        told.append(dict(viewers[0]._waiting))
        await watching.close()
        told[0]["id", ""] = run
        return told

    told = asyncio.run(scene())
    run = told[0].pop(("id", ""))
    assert told[0] == told[49]
    assert {"convergence", "strategies"} <= {*told[0]["changed", run]["panels"]}
    assert told[0]["runs", ""]["version"] < told[50]["runs", ""]["version"]
    assert told[50]["gone", run] == {"run": run}


def test_who_asks_while_the_list_is_looked_at_is_told_what_that_finds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a run was found gone after that look had begun: what it saw before is not told to whoever was sent to the list."""
    begun, goes_on = threading.Event(), threading.Event()

    async def scene() -> list[list[str]]:
        watching = Watcher(KnownRuns(root=root))
        run = watching.runs.all()[0].id
        told = [await watching.lines()]
        look_at_list = watching._look_at_list

        def slow() -> bool:
            found = look_at_list()
            begun.set()
            goes_on.wait(30.0)
            return found

        monkeypatch.setattr(watching, "_look_at_list", slow)
        watching._listed = -1e9
        first = asyncio.ensure_future(watching.lines())
        await asyncio.to_thread(begun.wait, 30.0)
        shutil.rmtree(root / "try1")
        watching._forget(run)
        others = [asyncio.ensure_future(watching.lines()) for _ in range(3)]
        await settled()
        assert not any(other.done() for other in others)
        goes_on.set()
        told += await asyncio.gather(first, *others)
        await watching.close()
        return [[line["name"] for line in json.loads(body.content)["runs"]] for body in told]

    before, _, *others = asyncio.run(scene())
    assert (before, others) == (["try1"], [[], [], []])


def test_page_shows_the_status_of_drivers(root: Path) -> None:
    with RunLock(root / "try1"):
        write_live_file(root / "try1", status(speed=0.5, doing="payoffs", fraction=0.5, checkpoints=2))
        shown = read_live(root / "try1")
    assert shown is not None
    assert asdict(shown) | {"session": ""} == {
        "state": "running at 50%",
        "doing": "payoffs",
        "fraction": 0.5,
        "generation": 0,
        "generations": None,
        "pace": 0.5,
        "session": "",
        "seconds": 0.0,
        "checkpoints": 2,
        "parts": [],
        "points": [],
        "usage": {},
        "seconds_left": None,
        "tasks_left": None,
    }
    assert os.listdir(root / "try1")
