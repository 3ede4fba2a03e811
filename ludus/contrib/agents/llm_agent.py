"""Language models behind an OpenAI-compatible endpoint: asked in words for one of the legal actions."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ludus.contrib.agents import protocol
from ludus.contrib.agents.answers import (
    Episode,
    Episodes,
    Judge,
    NoAnswer,
    Rule,
    append_line,
    log_name,
    require_positive,
)
from ludus.core.errors import ConfigError, PolicyError
from ludus.policies.agents import TRANSCRIPT, AgentContext, AgentGame, AgentRequests

PROMPT = """You play the game $game as player $player of $players (players are numbered from 0).

What you know:
$text

Legal actions:
$legal

Think as briefly as you can. End your answer with a line "ACTION: N", where N is the number of one legal action."""
"""The template, if nothing else is said: `string.Template`'s."""
AGAIN = 'That is no legal action. End your answer with a line "ACTION: N"; the legal actions are: $legal'
_ANSWER = re.compile(r"ACTION\s*:\s*\**\s*(-?\d+)", re.IGNORECASE)
_LOOK = 0.5  # seconds between two heartbeats
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
_FAILED = 400


@dataclass
class LLMAgent:
    """`llm:MODEL,url=http://HOST/v1`, what a language model answers.

    Attributes:
        what: Name of the model, as the endpoint knows it.
        url: The endpoint's address, to which /chat/completions is added; default: OPENAI_BASE_URL of the environment.
        token_env: Variable of the environment with the token.
        prompt: File of a template with $game, $player, $players, $text and $legal; default: `PROMPT`.
        temperature: Of the model.
        max_tokens: Of an answer.
        retries: How often it is asked again after an answer that names no legal action.
        attempts: How often a request is sent where the endpoint is busy or not reached, after 0.5, 1, 2 … seconds.
        timeout: Seconds for an answer.
        tokens: Budget of one process of the agent; None: none. What comes after counts as a fault.
        seconds: As `tokens`, of waiting for answers.
        parallel: Requests at a time.
        illegal: What is done where there is no legal answer: random, a legal action is played, and counted; error.
        faults: How many such answers one process may give before it is an error all the same; None: any number.
    """

    what: str
    url: str = ""
    token_env: str = "OPENAI_API_KEY"
    prompt: str = ""
    temperature: float = 0.0
    max_tokens: int = 512
    retries: int = 2
    attempts: int = 4
    timeout: float = 60.0
    tokens: int | None = None
    seconds: float | None = None
    parallel: int = 4
    illegal: Rule = "random"
    faults: int | None = None
    scheme: ClassVar[str] = "llm"
    wants_states: ClassVar[bool] = True
    _judge: Any = field(default=None, init=False, repr=False)
    _episodes: Any = field(default_factory=Episodes, init=False, repr=False)

    def __post_init__(self) -> None:
        require_positive(timeout=self.timeout)
        if not self.what:
            raise ConfigError("llm: the name of a model was expected after it, as in llm:MODEL,url=http://HOST/v1.")
        if min(self.parallel, self.attempts, self.max_tokens) < 1 or self.retries < 0:
            raise ConfigError(
                "llm: parallel, attempts and max_tokens of at least 1 and retries of at least 0 were expected."
            )
        base = self.url or os.environ.get("OPENAI_BASE_URL", "")
        address = urlsplit(base)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(
                f"llm: url={base!r} was given; http://HOST/v1 was expected (or OPENAI_BASE_URL in the environment)."
            )
        self._address = address
        self._template = Template(self._text() if self.prompt else PROMPT)
        self._lock = threading.Lock()
        self._spent_tokens, self._spent_seconds = 0, 0.0

    def _text(self) -> str:
        try:
            return Path(self.prompt).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"llm: the template prompt={self.prompt!r} cannot be read: {error}") from error

    def check(self, game: Any) -> None:
        """Allow all games: of a state the model only hears what its player knows."""

    def begin(self, game: AgentGame, context: AgentContext) -> None:
        """See `ExternalAgent`."""
        try:
            self._template.substitute(game="", player="", players="", text="", legal="")
        except (KeyError, ValueError) as error:
            raise PolicyError(
                f"agent {context.name!r}: the template has {error}; $game, $player, $players, $text and $legal were expected."
            ) from error
        self._game, self._context = game, context
        self._writer = protocol.MessageWriter(game, text=True)
        self._judge = Judge(game, context, rule=self.illegal, most=self.faults)
        self._transcript = Path(context.folder) / log_name(context.name).replace(".log", TRANSCRIPT)

    def act(self, requests: AgentRequests) -> list[Any]:
        """See `ExternalAgent`. Rows are asked in parallel, and each of them without what was said before."""
        episodes = self._episodes.of(requests)
        with ThreadPoolExecutor(min(self.parallel, len(episodes)), "ludus llm") as threads:
            futures = [threads.submit(self._one, requests, k, episode) for k, episode in enumerate(episodes)]
            pending = set(futures)
            while pending:
                _, pending = wait(pending, _LOOK)
                self._context.heartbeat()
        played: list[Any] = self._judge.actions(requests, episodes, [future.result() for future in futures])
        return played

    def _one(self, requests: AgentRequests, k: int, episode: Episode) -> Any:
        """Return the action of row k, or why there is none. In a thread."""
        state, player = requests.states[k], requests.player
        known = protocol.text_of(state, player)
        legal = self._writer.legal(requests, k)
        names = {action: protocol.move_name(state, player, action) for action in legal}
        listing = "\n".join(f"{action}: {name}" for action, name in names.items())
        facts = {"game": self._game.id.removeprefix("openspiel/"), "player": player, "players": len(self._game.action)}
        text = self._template.substitute(facts, text=known, legal=listing)
        messages = [{"role": "user", "content": text}]
        answer: Any = NoAnswer("late", "nothing was asked.")
        for attempt in range(self.retries + 1):
            if over := self._budget():
                answer = NoAnswer("budget", over)
                break
            reply, tokens, seconds = self._completed(
                messages, seed=(episode.seed + 7919 * episode.decision + attempt) % 2**31
            )
            answer = self._read(reply, names)
            self._write(requests, k, episode, messages, reply, answer, tokens=tokens, seconds=seconds)
            if not isinstance(answer, NoAnswer) or isinstance(reply, NoAnswer):
                break
            again = Template(AGAIN).substitute(legal=", ".join(f"{action}: {name}" for action, name in names.items()))
            messages = [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": again}]
        return answer

    def _budget(self) -> str:
        """Return what is used up."""
        with self._lock:
            if self.tokens is not None and self._spent_tokens >= self.tokens:
                return f"{self._spent_tokens:,} tokens were used, of {self.tokens:,}."
            if self.seconds is not None and self._spent_seconds >= self.seconds:
                return f"{self._spent_seconds:.0f} seconds were used, of {self.seconds:g}."
        return ""

    def _read(self, reply: Any, names: Mapping[int, str]) -> Any:
        """Return the legal action that an answer names last; else what it is."""
        if isinstance(reply, NoAnswer):
            return reply
        if (numbers := _ANSWER.findall(reply)) and int(numbers[-1]) in names:
            return int(numbers[-1])
        last = reply.strip().rpartition("\n")[2].strip(" .*`\"'").lower()
        for action, name in names.items():
            if last in (name.lower(), str(action), f"{action}: {name}".lower(), f"action: {name}".lower()):
                return action
        return NoAnswer("illegal", reply.strip()[-200:] or "an empty answer")

    def _completed(self, messages: list[dict[str, str]], *, seed: int) -> tuple[Any, int, float]:
        """Return (what the model says, tokens, seconds)."""
        body = {
            "model": self.what,
            "messages": messages,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": seed,
        }
        begun = time.monotonic()
        reply, tokens = self._posted(json.dumps(body).encode())
        seconds = time.monotonic() - begun
        with self._lock:
            self._spent_tokens += tokens
            self._spent_seconds += seconds
        return reply, tokens, seconds

    def _posted(self, body: bytes) -> tuple[Any, int]:
        token = os.environ.get(self.token_env, "") if self.token_env else ""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        why = ""
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(0.5 * 2 ** (attempt - 1))
            try:
                status, data = self._sent(body, headers)
            except (OSError, http.client.HTTPException) as error:
                why = f"{type(error).__name__}: {error}"
                continue
            if status >= _FAILED:
                why = f"status {status}: {data.decode(errors='replace')[:200]}"
                if status not in _BUSY:
                    break
                continue
            try:
                answer = json.loads(data)
                content = answer["choices"][0]["message"]["content"] or ""
                return str(content), int((answer.get("usage") or {}).get("total_tokens") or 0)
            except (ValueError, KeyError, IndexError, TypeError, AttributeError):
                return NoAnswer("malformed", data.decode(errors="replace")[:200]), 0
        return NoAnswer("late", why), 0

    def _sent(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
        assert self._address.hostname is not None
        connection = kind(self._address.hostname, self._address.port, timeout=self.timeout)
        try:
            connection.request("POST", f"{self._address.path.rstrip('/')}/chat/completions", body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _write(
        self,
        requests: AgentRequests,
        k: int,
        episode: Episode,
        messages: list[dict[str, str]],
        reply: Any,
        answer: Any,
        *,
        tokens: int,
        seconds: float,
    ) -> None:
        """Write a line of the transcript."""
        if not self._context.folder:
            return
        line = {
            "player": requests.player,
            "body": requests.body[k],
            "seed": episode.seed,
            "decision": episode.decision,
            "messages": messages,
            "reply": reply.text if isinstance(reply, NoAnswer) else reply,
            "action": None if isinstance(answer, NoAnswer) else answer,
            "tokens": tokens,
            "seconds": round(seconds, 3),
        }
        append_line(self._transcript, json.dumps(line))

    def identity(self) -> Mapping[str, Any]:
        """See `ExternalAgent`: the digest of its template."""
        return {"prompt": hashlib.sha256(self._template.template.encode()).hexdigest()}

    def close(self) -> None:
        """See `ExternalAgent`."""
        self._episodes.forget()
