"""Marks of what names code: who has made them, and what they cover."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.core import trust
from ludus.core.errors import TrustError

OWN = {"env": {"id": "my_envs:Maze", "options": {"size": 3}}}


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another user's, with nothing in it, and a process that has trusted nothing."""
    folder = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.setattr(trust, "_trusted", set())
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def check(folder: Path, *documents: Any) -> None:
    trust.require_trust(folder, documents, folder=folder)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another process."""
    monkeypatch.setattr(trust, "_trusted", set())


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({"kind": "my.net:Residual"}, ["my.net:Residual"]),
        ([{"opponents": ["bot:my_bot:Bot,depth=3"]}], ["my_bot:Bot"]),
        ("bot:mcts-1000", []),
        ("gymnasium/my_envs:Maze-v0", ["my_envs:Maze"]),
        ("gymnasium/ale_py:ALE/Pong-v5", []),
        ("openspiel/turns(game=my_games:auction())", ["my_games:auction"]),
        ({"import": "my_games"}, ["import: my_games"]),
        ({"my:key": 1}, ["my:key"]),
        (["changes=env=my_envs:make"], ["my_envs:make"]),
        ("ludus.testing.games:Race", []),
        ("ludusx.a:B", ["ludusx.a:B"]),
        ({"device": "cuda:0", "address": "head:6379", "start": "runs/one@0/0-1"}, []),
        ("a:b:c", ["a:b", "b:c"]),
        ({"opponents": ["command:/bin/agent"]}, ["command:/bin/agent"]),
        ({"opponents": [{"command": "./agent.py", "timeout": 2}]}, ["command:./agent.py"]),
        ({"bot": "sb3:./walker.zip", "options": {}}, ["sb3:./walker.zip"]),
        ("bot:command:./agent.py", ["bot:command:./agent.py"]),
        (["changes=opponents=[{command: ./agent.py}]"], ["changes=opponents=[{command: ./agent.py}]"]),
        ("http://127.0.0.1:8000/act", ["http://127.0.0.1:8000/act"]),
    ],
)
def test_names_of_code_in_data(data: Any, names: list[str]) -> None:
    assert list(trust.code_names(data)) == names


@given(
    module=st.from_regex(r"[a-z_]\w{0,8}(\.\w{1,8}){0,2}", fullmatch=True),
    name=st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True),
)
def test_each_name_that_can_be_resolved_is_one_that_is_seen(module: str, name: str) -> None:
    if module.partition(".")[0] not in ("ludus", "bot"):
        assert f"{module}:{name}" in trust.code_names({"x": [f"{module}:{name}"]})


@pytest.mark.parametrize(
    "text",
    [
        '{kind: "my\\x3aBot"}',
        '"my\\u003aBot"',
        "import: my",
        "{id: a:b}",
        "k: a:b",
        "o: [command:/x]",
        "o: {command: /x}",
        "o: {sb3: x.zip}",
        "o:\n- onnx : x",
    ],
)
def test_a_scenarios_text_is_read_before_its_names_are_looked_for(text: str) -> None:
    assert trust.code_names(trust.scenario_document(text))


def test_what_names_no_code_needs_no_mark_and_makes_no_secret(run: Path, config: Path) -> None:
    trust.mark(run, [{"env": {"id": "gymnasium/CartPole-v1"}}, None])
    check(run, {"env": {"id": "gymnasium/CartPole-v1"}}, None)
    assert not config.exists()
    assert not (run / trust.FILE).exists()


def test_a_mark_is_known_to_its_user_only(run: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.mark(run, [OWN])
    forget(monkeypatch)
    check(run, OWN)
    forget(monkeypatch)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config.with_name("other")))
    with pytest.raises(TrustError, match=r"names code, my_envs:Maze, and has no mark"):
        check(run, OWN)


def test_an_edited_document_has_no_mark(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.mark(run, [OWN])
    forget(monkeypatch)
    for edited in ({"env": {"id": "my_envs:Other"}}, {"env": {"id": "my_envs:Maze", "options": {"size": 4}}}):
        with pytest.raises(TrustError):
            check(run, OWN, edited)
    check(run, OWN)


def test_a_mark_holds_in_copies_and_for_several_documents(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = [trust.spec_document("my_nets:Net", {"width": width}) for width in range(3)]
    trust.mark(run, [OWN])
    trust.mark(run, policies)
    moved = run.rename(run.with_name("moved"))
    forget(monkeypatch)
    check(moved, OWN, *policies)


def test_marks_of_somebody_else_stay_when_ours_are_added(
    run: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust.mark(run, [OWN])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config.with_name("other")))
    forget(monkeypatch)
    with trust.trusting():
        check(run, OWN)
    for name in ("config", "other"):
        forget(monkeypatch)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(config.with_name(name)))
        check(run, OWN)


def test_trust_is_kept_and_ends_with_its_block(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with trust.trusting(False), pytest.raises(TrustError):
        check(run, OWN)
    with trust.trusting():
        check(run, OWN)
    forget(monkeypatch)
    check(run, OWN)
    with pytest.raises(TrustError):
        check(run, {"kind": "another:One"})


@pytest.mark.parametrize("answer", [True, False])
def test_the_question_has_the_names_and_its_answer_is_kept(
    run: Path, answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = []

    def ask(place: str, names: Any) -> bool:
        questions.append((place, list(names)))
        return answer

    for _ in range(2):
        forget(monkeypatch)
        with trust.asking(ask):
            if answer:
                check(run, OWN)
            else:
                with pytest.raises(TrustError):
                    check(run, OWN)
    assert questions == [(str(run), ["my_envs:Maze"])] * (1 if answer else 2)


def test_the_secret_is_the_users_alone(run: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.mark(run, [OWN])
    key = config / "ludus" / "trust.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert (config / "ludus").stat().st_mode & 0o777 == 0o700
    assert len(key.read_bytes()) == 32
    assert os.listdir(config / "ludus") == ["trust.key"]
    forget(monkeypatch)
    key.chmod(0o644)
    with pytest.raises(TrustError, match="others can read or write"):
        check(run, OWN)


def test_a_damaged_secret_is_none(run: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.mark(run, [OWN])
    (config / "ludus" / "trust.key").write_bytes(b"short")
    forget(monkeypatch)
    with pytest.raises(TrustError, match="damaged: delete it"):
        check(run, OWN)


def test_without_a_place_for_the_secret_trust_is_of_this_process(
    run: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("a file where the folder would be")
    trust.mark(run, [OWN])
    check(run, OWN)
    assert not (run / trust.FILE).exists()
    forget(monkeypatch)
    with pytest.raises(TrustError, match=re.escape("trust.key of this user cannot be used")):
        check(run, OWN)


def test_where_nothing_can_be_written_trust_is_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "not" / "there"
    with trust.trusting():
        check(missing, OWN)
    check(missing, OWN)
    forget(monkeypatch)
    with pytest.raises(TrustError):
        check(missing, OWN)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"marks": 3}', b'{"marks": [3, null]}', b"\xff", b"[" * 100_000, b'{"marks": {}}']
)
def test_a_damaged_file_of_marks_has_none(run: Path, content: bytes) -> None:
    (run / trust.FILE).write_bytes(content)
    with pytest.raises(TrustError):
        check(run, OWN)


def test_marks_are_not_what_a_stranger_can_compute(run: Path) -> None:
    trust.mark(run, [OWN])
    marks = json.loads((run / trust.FILE).read_text())["marks"]
    assert marks != [trust._digest(OWN)]
    assert all(re.fullmatch(r"[0-9a-f]{64}", one) for one in marks)
