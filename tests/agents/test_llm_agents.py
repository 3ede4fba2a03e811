"""Language models as agents, against a server of these tests that says what a test wants."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyspiel
import pytest
from gymnasium.spaces import Discrete

import ludus
from ludus.apps.episodes.played_episode import PlayedEpisode
from ludus.core.errors import ConfigError, PolicyError
from ludus.envs.config import Environment
from ludus.envs.registry import make_env
from ludus.policies.agents import AgentGame, AgentRequests, count_faults
from ludus.policies.bots import BotPolicy, parse_bot
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from tests.agents.agent_games import begun

Say = Callable[[dict[str, Any]], Any]


class Model(ThreadingHTTPServer):
    """An endpoint. say: (body of a request) -> what the model says, or a status."""

    daemon_threads = True

    def __init__(self, say: Say) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.say, self.requests = say, list[dict[str, Any]]()
        self.tokens = set[str | None]()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Model

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self.server.tokens.add(self.headers["Authorization"])
        said = self.server.say(body)
        data = json.dumps(
            {"error": "no"}
            if isinstance(said, int)
            else {
                "choices": [{"message": {"role": "assistant", "content": said}}],
                "usage": {"total_tokens": 10},
            }
        ).encode()
        self.send_response(said if isinstance(said, int) else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def first_legal(body: dict[str, Any]) -> str:
    """A model that takes the first action of the list in its prompt."""
    text = body["messages"][0]["content"].partition("Legal actions:")[2]
    found = re.search(r"^(\d+): ", text, re.MULTILINE)
    assert found is not None
    return f"I think.\nACTION: {found[1]}"


@pytest.fixture
def model() -> Iterator[Model]:
    with Model(first_legal) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def named(model: Model, options: str = "") -> str:
    return f"llm:stub,url=http://127.0.0.1:{model.server_port}/v1{options}"


KUHN = AgentGame.of(make_env("openspiel/kuhn_poker", num_envs=1, tree="off").spec)


def asked(n: int = 1, seed: int = 5) -> AgentRequests:
    state = pyspiel.load_game("kuhn_poker").new_initial_state()
    for action in (2, 0):
        state.apply_action(action)
    rows = np.zeros((n, *KUHN.observation[0].shape), np.float32)
    slots = [("w", 0, k) for k in range(n)]
    return AgentRequests(0, slots, [0] * n, seed + np.arange(n), rows, np.ones((n, 2), np.bool_), [state] * n)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("ACTION: 1", 1),
        ("First ACTION: 0, no:\n**ACTION: 1**", 1),
        ("action:1.", 1),
        ("I fold.\nPass", 0),
        ("Bet", 1),
        ("1", 1),
        ("`1: Bet`", 1),
    ],
)
def test_answers_are_read(said: str, action: int, model: Model, tmp_path: Path) -> None:
    model.say = lambda _: said
    with begun(named(model), tmp_path, KUHN) as agent:
        assert [int(one) for one in agent.act(asked())] == [action]
    assert len(model.requests) == 1


def test_the_prompt_has_what_the_player_knows(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_TOKEN", "secret")
    template = tmp_path / "prompt.txt"
    template.write_text("$game $player/$players knows $text of\n$legal\n{}$$")
    with begun(named(model, f",prompt={template},token_env=STUB_TOKEN"), tmp_path, KUHN) as agent:
        model.say = lambda _: "ACTION: 0"
        agent.act(asked())
    (request,) = model.requests
    assert request["messages"] == [{"role": "user", "content": "kuhn_poker 0/2 knows 2 of\n0: Pass\n1: Bet\n{}$"}]
    assert (request["model"], request["temperature"], request["seed"]) == ("stub", 0.0, 5)
    assert model.tokens == {"Bearer secret"}
    template.write_text("$know")
    with (
        pytest.raises(PolicyError, match=r"'know'; \$game"),
        begun(named(model, f",prompt={template}"), tmp_path, KUHN),
    ):
        pass


def test_it_is_asked_again_and_then_counted(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    says = iter(["ACTION: 7", "no idea", "ACTION: 1", *["ACTION: 9"] * 3])
    model.say = lambda _: next(says)
    with begun(named(model), folder, KUHN) as agent:
        assert [int(one) for one in agent.act(asked())] == [1]
        assert [len(request["messages"]) for request in model.requests] == [1, 3, 5]
        assert "0: Pass, 1: Bet" in model.requests[1]["messages"][-1]["content"]
        agent.act(asked(seed=6))
    (counts,) = count_faults(tmp_path).values()
    assert counts == {"illegal": 1}
    (path,) = folder.glob("*.transcript.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["action"] for line in lines] == [None, None, 1, None, None, None]
    assert lines[2]["reply"] == "ACTION: 1"
    assert lines[2]["tokens"] == 10


def test_a_busy_endpoint_is_asked_again(model: Model, tmp_path: Path) -> None:
    says = iter([503, "ACTION: 1", *[400] * 1])
    model.say = lambda _: next(says)
    with begun(named(model, ",illegal=error"), tmp_path, KUHN) as agent:
        assert [int(one) for one in agent.act(asked())] == [1]
        with pytest.raises(PolicyError, match="late answer as player 0: status 400"):
            agent.act(asked())


def test_budgets(model: Model, tmp_path: Path) -> None:
    with begun(named(model, ",tokens=25,parallel=1"), tmp_path / "agents", KUHN) as agent:
        agent.act(asked(5))
    assert len(model.requests) == 3
    (counts,) = count_faults(tmp_path).values()
    assert counts == {"budget": 2}


def test_names_that_are_wrong(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="http://HOST/v1 was expected"):
        parse_bot("llm:stub").make()
    with pytest.raises(ConfigError, match="cannot be read"):
        parse_bot(named(model, ",prompt=no-such-file")).make()


class Words:
    """The object of an environment with words."""

    move_names = ("[fold]", "[raise 10]")

    def text(self, player: int) -> str:
        return f"You are player {player}."


def test_environments_with_words_of_their_own(model: Model, tmp_path: Path) -> None:
    model.say = lambda _: "[Raise 10]"
    with begun(named(model), tmp_path, KUHN) as agent:
        assert [int(one) for one in agent.act(asked()._replace(states=[Words()]))] == [1]
        with pytest.raises(PolicyError, match=r"object, have no method text\(player\)"):
            agent.act(asked()._replace(states=[object()]))
    assert (
        "You are player 0.\n\nLegal actions:\n0: [fold]\n1: [raise 10]" in model.requests[0]["messages"][0]["content"]
    )


@pytest.mark.slow
def test_models_in_a_tournament(model: Model, tmp_path: Path) -> None:
    """On a compiled tree, too, whose states are followed."""
    entrants = [named(model), named(model, ",retries=0,illegal=error"), "random"]
    played = []
    for name, tree in (("cup", "on"), ("again", "off")):
        env = Environment(id="openspiel/kuhn_poker", num_envs=4, tree=tree)
        options = ludus.TournamentOptions(episodes=6, num_envs=4)
        report = ludus.play_tournament(entrants, tmp_path / name, env=env, options=options)
        played.append([(s.name, s.episodes, s.mean) for s in report.standings])
        assert len(list((tmp_path / name / "agents").glob("*.transcript.jsonl"))) == 2
    assert played[0] == played[1]


@pytest.mark.slow
def test_a_replay_shows_what_was_asked_and_answered(model: Model) -> None:
    policies = [BotPolicy.of(parse_bot(named(model))), build_policy(random_spec(Discrete(3)), {})]
    with PlayedEpisode(lambda: make_env("openspiel/leduc_poker", num_envs=1, tree="off"), policies) as episode:
        for seed in (0, 1):
            episode.restart(seed)
            episode.go(20)
            made = [one for k in range(len(episode.episode.steps)) for one in episode.decisions(k)]
            mine = [one.information for one in made if one.player == 0]
            assert mine
            for one in mine:
                known, *_ = one.partition("\n\n")
                assert known.startswith("[Observer: 0]")
                assert "user: You play the game leduc_poker as player 0 of 2" in one
                assert one.count(known) == 2, "as the debugger writes it, and as the model was asked"
                assert "answer: I think.\nACTION: " in one
            assert not any("answer:" in one.information for one in made if one.player == 1)
        folder = Path(episode._transcripts.name)  # type: ignore[union-attr]
    assert not folder.exists()
