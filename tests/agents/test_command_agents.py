"""Agents behind a command: what they are told, what is played, and what happens when they misbehave."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.core.errors import ConfigError, PartDied, PolicyError
from ludus.policies.agents import FAULTS, agent_text, count_faults
from ludus.policies.bots import parse_bot
from tests.agents.agent_games import EXAMPLES, begun, game, requests, stub

PROGRAMS = [
    name
    for name, program in {"agent.js": "node", "agent.pl": "perl", "agent.py": "python3", "agent.sh": "sh"}.items()
    if shutil.which(program)
]


@pytest.mark.parametrize(
    ("text", "kind", "options"),
    [
        ("command:./a.py", "command:./a.py", {}),
        ("command:./a.py --x 1,timeout=2.5", "command:./a.py --x 1", {"timeout": 2.5}),
        ("command:'./a.py --set a,b',illegal=error", "command:./a.py --set a,b", {"illegal": "error"}),
        ("command:sh -c 'echo a,b'", "command:sh -c 'echo a,b'", {}),
        ("command:./a.py,env='A=1,2 B=3'", "command:./a.py", {"env": "A=1,2 B=3"}),
        ("sb3:a.zip,deterministic=true", "sb3:a.zip", {"deterministic": True}),
    ],
)
def test_names(text: str, kind: str, options: dict[str, Any]) -> None:
    spec = parse_bot(text)
    assert (spec.kind, dict(spec.options)) == (kind, options)
    assert parse_bot(spec.text) == spec
    assert spec.name == spec.text
    assert spec.own


def test_a_mapping_is_the_same_name() -> None:
    text = agent_text({"command": "./a.py --set a,b", "timeout": 2, "env": {"A": "1", "B": "2"}, "text": False})
    assert text == "command:'./a.py --set a,b',timeout=2,env=A=1 B=2,text=false"
    assert parse_bot(text).make().what == "./a.py --set a,b"  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="one of "):
        agent_text({"comand": "./a.py"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("command:./a.py,timout=2", "did you mean 'timeout'"),
        ("command:./a.py,b", "key=value"),
        ("command:", "a program was expected"),
        ("command:'./a.py", "does not end"),
        ("command:./a.py,timeout=0", "positive"),
        ("command:./a.py,env=A", "NAME=VALUE"),
        ("command:./a.py,illegal=maybe", "illegal"),
    ],
)
def test_names_that_are_wrong(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_bot(text).make()


@pytest.mark.parametrize("name", PROGRAMS)
def test_agents_in_several_languages(name: str, tmp_path: Path) -> None:
    program = EXAMPLES / name
    assert len(program.read_text(encoding="utf-8").splitlines()) <= 20
    played = []
    for _ in range(2):
        with begun(f"command:{program}", tmp_path) as agent:
            answers = [agent.act(requests([5, 6, 7, 8])), *(agent.act(requests([-1] * 4)) for _ in range(6))]
            played.append([[int(action) for action in row] for row in answers])
    assert played[0] == played[1]
    assert {action for row in played[0] for action in row} <= {0, 2}
    assert count_faults(tmp_path) == {}
    if name in ("agent.py", "agent.pl"):
        assert {action for row in played[0] for action in row} == {0, 2}


def test_all_ways_to_serve_play_the_same(tmp_path: Path) -> None:
    played = {}
    for serves in ("one", "many", "batch"):
        with begun(stub(serves, "well"), tmp_path) as agent:
            rows = [requests([5, 6, 7], value=0.1), requests([-1, -1, 9], value=0.2), requests([-1, -1, -1], value=0.3)]
            played[serves] = [[int(action) for action in agent.act(row)] for row in rows]
    assert played["one"] == played["many"] == played["batch"]


def test_one_serves_an_episode_at_a_time_and_nothing_is_left(tmp_path: Path) -> None:
    seen = tmp_path / "pids"
    with begun(stub("one", "pids", seen), tmp_path) as agent:
        agent.act(requests([5, 6, 7]))
        agent.act(requests([8, -1, -1]))
    lines = [line.split() for line in seen.read_text().splitlines()]
    by_slot = {slot: pid for pid, slot in lines if slot != "close"}
    assert len(set(by_slot.values())) == len(by_slot) == 3
    assert sorted(pid for pid, slot in lines if slot == "close") == sorted(by_slot.values())
    assert not any(Path(f"/proc/{pid}").exists() for pid in by_slot.values()) or os.name != "posix"


def test_illegal_answers_are_replaced_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    played = []
    for _ in range(2):  # the second time as after a restart
        with begun(stub("many", "illegal"), folder) as agent:
            played.append([int(a) for a in [*agent.act(requests([5, 6])), *agent.act(requests([-1, -1]))]])
    assert played[0] == played[1]
    assert set(played[0]) <= {0, 2}
    ((name, counts),) = count_faults(tmp_path).items()
    assert counts == {"illegal": 4}
    line = json.loads((folder / FAULTS).read_text().splitlines()[0])
    assert line["agent"] == name
    assert (line["answer"], line["why"]) == ("99", "99; legal are [0, 2]")
    assert line["played"] == played[0][0]


@pytest.mark.parametrize("how", ["illegal", "malformed"])
def test_faults_can_be_errors(how: str, tmp_path: Path) -> None:
    with begun(stub("many", how, options=",illegal=error"), tmp_path) as agent, pytest.raises(PolicyError, match=how):
        agent.act(requests([5]))
    with begun(stub("batch", how, options=",faults=1"), tmp_path) as agent:
        agent.act(requests([5]))
        with pytest.raises(PolicyError, match="It had 1 such answers before"):
            agent.act(requests([-1]))


def test_a_late_answer_is_replaced_and_dropped_when_it_comes(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    with begun(stub("many", "slow", options=",timeout=60"), folder) as agent:
        agent.act(requests([5]))
        agent.timeout = 0.1
        late = agent.act(requests([-1], value=0.5))
        agent.timeout = 60.0
        after = agent.act(requests([-1], value=0.25))
    with begun(stub("many", "well"), tmp_path) as agent:
        agent.act(requests([5]))
        agent.act(requests([-1], value=0.5))
        assert agent.act(requests([-1], value=0.25)) == after
    assert int(late[0]) in (0, 2)
    (counts,) = count_faults(tmp_path).values()
    assert counts == {"late": 1}


def test_answers_that_came_unasked_are_dropped_and_counted(tmp_path: Path) -> None:
    played = []
    for how in ("well", "twice"):
        with begun(stub("one", how), tmp_path / how / "agents") as agent:
            rows = [requests([5], value=0.1), requests([-1], value=0.2), requests([-1], value=0.3)]
            played.append([])
            for row in rows:
                played[-1].append([int(action) for action in agent.act(row)])
                for program in agent._programs.values():
                    while how == "twice" and not program._lines:  # until the second answer is there
                        program._exchange(0.1)
    assert played[0] == played[1]
    (counts,) = count_faults(tmp_path / "twice").values()
    assert counts == {"malformed": 2}
    assert count_faults(tmp_path / "well") == {}


def test_more_programs_than_are_allowed_are_refused(tmp_path: Path) -> None:
    with begun(stub("one", "well", options=",programs=2"), tmp_path) as agent:
        agent.act(requests([5, 6]))
        with pytest.raises(PolicyError, match=r"3 are open.*programs=2 allows fewer.*env\.num_envs"):
            agent.act(requests([7, 8, 9]))


def test_many_programs_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ludus.contrib.agents.command_agent._MANY", 1)
    with begun(stub("one", "well"), tmp_path) as agent:
        agent.act(requests([5, 6]))
    assert "more than 1 programs are started" in capfd.readouterr().err


def test_two_late_answers_are_a_death(tmp_path: Path) -> None:
    with begun(stub("many", "hang", options=",timeout=60"), tmp_path) as agent:
        agent.act(requests([5]))
        agent.timeout = 0.1
        agent.act(requests([-1]))
        with pytest.raises(PartDied, match=r"for two moves in a row within 0\.1 seconds"):
            agent.act(requests([-1]))


def test_what_is_no_json_is_passed_over(tmp_path: Path) -> None:
    with begun(stub("many", "chatty"), tmp_path) as agent:
        agent.act(requests([5, 6]))
    (log,) = tmp_path.glob("*.log")
    text = log.read_text(encoding="utf-8")
    assert "log line" in text
    assert text.count("(standard output) thinking …") == 2


def test_a_death_says_how_and_what_the_log_ends_with(tmp_path: Path) -> None:
    with begun(stub("many", "die"), tmp_path) as agent:
        agent.act(requests([5]))
        with pytest.raises(PartDied, match=r"ended with exit code 3.*ends with: log line"):
            agent.act(requests([-1]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (stub("many", "refuse"), "refuses the game: only chess"),
        (stub("several", "well"), "one of one, many, batch was expected"),
        (stub("many", "mute", options=",start=0.3"), "did not answer to hello within 0.3 seconds"),
        ("command:./no-such-agent", "could not be started: No such file"),
        ("command:true", "ended with exit code 0"),
        ("command:sh -c 'echo 1; cat'", 'answered 1 to "hello"'),
    ],
)
def test_commands_that_do_not_begin(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=message), begun(text, tmp_path):
        pass


def test_identity_has_the_digest_of_the_programs_files(tmp_path: Path) -> None:
    program = tmp_path / "a.py"
    program.write_text("1")
    one = parse_bot(f"command:{program} --depth 3").identity()
    program.write_text("2")
    assert one != parse_bot(f"command:{program} --depth 3").identity()


def test_vectors_and_several_numbers(tmp_path: Path) -> None:
    from gymnasium import spaces

    for space in (spaces.Box(-1, 1, (2,), np.float32), spaces.MultiDiscrete([2, 3])):
        played = game(action=space)
        with begun(stub("many", "malformed"), tmp_path, played) as agent:
            (action,) = agent.act(requests([5], mask=None, of=played))
        assert space.contains(np.asarray(action, space.dtype))
