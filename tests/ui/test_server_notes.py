"""Tags and notes that the page keeps, and the settings that it shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import synthetic_run as synthetic
from server_tools import Asker, asking

from ludus.apps.ui.figures import run_lines
from ludus.apps.ui.server import watcher
from ludus.apps.ui.server.address import PLAY, WATCH
from ludus.cli.main import main
from ludus.storage.database import FILE as DATABASE
from ludus.storage.reader import Reader
from ludus.storage.run_notes import FILE
from ludus.storage.store import Store


@pytest.fixture
def asker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    monkeypatch.setattr(watcher, "LIST", 0.0)
    synthetic.write(tmp_path / "runs" / "try1", generations=1)
    with asking(tmp_path / "runs") as asker:
        yield asker


def keep(asker: Asker, tags: list[Any], notes: Any = "", **headers: str) -> Any:
    return asker.order(f"/api/runs/{asker.run_id('try1')}/notes", {"tags": tags, "notes": notes}, **headers)


def line(asker: Asker) -> dict[str, Any]:
    (line,) = asker.get("/api/runs").json()["runs"]
    return dict(line)


def test_notes_are_kept_beside_the_database_which_stays_as_it_was(tmp_path: Path, asker: Asker) -> None:
    folder = tmp_path / "runs" / "try1"
    before = (folder / DATABASE).read_bytes()
    assert (line(asker)["tags"], line(asker)["notes"]) == ([], "")
    reply = keep(asker, [" b", "a", "a"], "why\n")
    assert (reply.status_code, reply.json()) == (200, {"tags": ["a", "b"], "notes": "why"})
    assert (line(asker)["tags"], line(asker)["notes"]) == (["a", "b"], "why")
    assert json.loads((folder / FILE).read_text()) == reply.json()
    assert (folder / DATABASE).read_bytes() == before
    assert sorted(path.name for path in folder.glob("*notes*")) == [FILE]


@pytest.mark.parametrize("rights", [WATCH, PLAY])
def test_notes_are_written_by_those_who_steer(asker: Asker, tmp_path: Path, rights: frozenset[str]) -> None:
    cookie = f"{asker.access.cookie}={asker.access.tokens.of(rights)}"
    assert keep(asker, ["mine"], cookie=cookie).status_code == 403
    assert keep(asker, ["mine"], cookie="").status_code == 401
    assert keep(asker, ["mine"], origin="http://evil.example").status_code == 403
    assert not (tmp_path / "runs" / "try1" / FILE).exists()


@pytest.mark.parametrize(
    ("tags", "notes", "status"),
    [
        (["a,b"], "", 400),
        (["a\x1b]0;x\x07"], "", 400),
        (17 * ["a"], "", 200),  # one tag, seventeen times
        ([f"t{k}" for k in range(17)], "", 400),
        (101 * ["a"], "", 422),
        ([201 * "x"], "", 422),
        ([], 4001 * "x", 400),
        ([], 8001 * "x", 422),
        ([{"a": 1}], "", 422),
        ([], None, 422),
        (["<img src=x onerror=alert(1)>"], "</script><script>alert(1)</script>", 200),  # text, and text it stays
    ],
)
def test_notes_have_bounds(asker: Asker, tags: list[Any], notes: Any, status: int) -> None:
    reply = keep(asker, tags, notes)
    assert reply.status_code == status, reply.text
    if status != 200:
        assert (line(asker)["tags"], line(asker)["notes"]) == ([], "")
        assert [*reply.json()] == ["error"]


def test_the_list_has_new_notes_at_once(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "LIST", 1e9)
    assert line(asker)["tags"] == []
    assert keep(asker, ["new"]).status_code == 200
    assert line(asker)["tags"] == ["new"]


def test_notes_of_no_run_and_with_more_in_them_are_refused(asker: Asker) -> None:
    assert asker.order("/api/runs/none/notes", {"tags": [], "notes": ""}).status_code == 404
    extra = {"tags": [], "notes": "", "path": "/etc/passwd"}
    assert asker.order(f"/api/runs/{asker.run_id('try1')}/notes", extra).status_code == 422


def test_a_directory_that_cannot_be_written_is_said_without_its_place(
    asker: Asker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("ludus.storage.run_notes.os.open", refused)
        reply = keep(asker, ["a"])
    assert (reply.status_code, "Permission denied" in reply.text) == (409, True)
    assert str(tmp_path) not in reply.text


def test_settings_are_read_once_while_runs_get_on(
    asker: Asker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    settings_of = run_lines.settings_of

    def counting(text: str) -> Any:
        read.append(text)
        return settings_of(text)

    monkeypatch.setattr(watcher.figures, "settings_of", counting)
    run = asker.run_id("try1")
    wanted = {"scenario": "psro", "env.id": "openspiel/leduc_poker", "seed": 7}
    assert asker.get("/api/settings").json() == {run: wanted}
    with Store.open(tmp_path / "runs" / "try1") as store:
        store.generation_done(synthetic.generation(2, (2, 2), nash_conv=0.25))
        store.commit("g2")
    assert line(asker)["generation"] == 2
    assert asker.get("/api/settings").json() == {run: wanted}
    assert len(read) == 1
    synthetic.write(tmp_path / "runs" / "try2", generations=0)
    assert len(asker.get("/api/settings").json()) == 2
    assert len(read) == 2


def test_lines_of_500_runs_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = synthetic.write(tmp_path / "runs" / "run-0", generations=1)
    content = (first / DATABASE).read_bytes()
    for k in range(1, 500):
        folder = tmp_path / "runs" / f"run-{k}"
        folder.mkdir()
        (folder / DATABASE).write_bytes(content)
    made = list[Reader]()
    run_line = watcher.figures.run_line

    def counting(reader: Reader, *names: Any) -> Any:
        made.append(reader)
        return run_line(reader, *names)

    monkeypatch.setattr(watcher, "LIST", 0.0)
    monkeypatch.setattr(watcher.figures, "run_line", counting)
    with asking(tmp_path / "runs") as asker:
        assert len(asker.get("/api/runs").json()["runs"]) == 500
        assert keep_one(asker, "run-7").status_code == 200
        lines = {line["name"]: line["tags"] for line in asker.get("/api/runs").json()["runs"]}
    assert (len(lines), lines["run-7"]) == (500, ["seen"])
    assert len(made) == 501  # each once, and once more the one whose notes are new


def keep_one(asker: Asker, name: str) -> Any:
    return asker.order(f"/api/runs/{asker.run_id(name)}/notes", {"tags": ["seen"], "notes": ""})


def test_a_run_with_notes_can_be_removed(
    asker: Asker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keep(asker, ["final"]).status_code == 200
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert "final" in capsys.readouterr().out
    (tmp_path / "runs" / "try1" / f".{FILE}.0123abcd").write_text("")  # what a kill leaves
    assert main(["runs", "rm", "try1", "--yes"]) == 0
    assert not (tmp_path / "runs" / "try1").exists()
    capsys.readouterr()
