"""Agents behind a service: the messages of `ludus.contrib.agents.protocol` in POST requests, their replies in the responses."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ludus.contrib.agents import protocol
from ludus.contrib.agents.command_agent import CommandAgent
from ludus.core.errors import ConfigError, PartDied, PolicyError
from ludus.policies.agents import AgentContext

_LOOK = 0.5  # seconds between two heartbeats
_FAILED = 400  # statuses from here on are errors
_SHOWN = 200  # characters of an answer in a message


@dataclass
class HTTPAgent(CommandAgent):
    """`http://HOST:PORT/PATH`, what a service answers.

    Attributes:
        retries: How often a connection that is refused or lost is tried again for a message, after 0.1, 0.2, 0.4 … seconds.
        token_env: Variable of the environment that holds a token; it is sent as `Authorization: Bearer TOKEN`.
    """

    retries: int = 3
    token_env: str = ""
    scheme: ClassVar[str] = "http"

    def __post_init__(self) -> None:
        if self.cwd or self.env:
            raise ConfigError(f"{self.scheme}: cwd and env are of commands; leave them out.")
        super().__post_init__()
        if not urlsplit(self.url).hostname:
            raise ConfigError(f"{self.url!r} names no host; http://HOST:PORT/PATH was expected.")
        if self.token_env and not os.environ.get(self.token_env):
            raise ConfigError(f"token_env={self.token_env}: there is no such variable in the environment.")

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"{self.scheme}:{self.what}"

    def arguments(self) -> list[str]:
        """Return the address, as the one word."""
        return [self.url]

    def _started(self) -> Any:
        token = os.environ[self.token_env] if self.token_env else ""
        service = _Service(self.url, self._context, retries=self.retries, token=token)
        service.send(protocol.hello(self._game))
        return service

    def _served(self, answer: Any) -> str:
        if isinstance(answer, dict) and "serves" not in answer:
            answer = {**answer, "serves": "many"}
        serves = protocol.served(self._context.name, answer)
        if serves == "one":
            raise PolicyError(
                f"agent {self._context.name!r} serves one episode at a time; a service serves many or batch."
            )
        return serves

    def identity(self) -> Mapping[str, Any]:
        """See `ExternalAgent`: nothing is known of what a service plays by."""
        return {}


class HTTPSAgent(HTTPAgent):
    """`https://HOST/PATH`, as `HTTPAgent`."""

    scheme: ClassVar[str] = "https"


class _Service:
    """A connection to a service, as `CommandAgent` uses a program. greeted: whether it has answered."""

    def __init__(self, url: str, context: AgentContext, *, retries: int, token: str) -> None:
        self._url, self._context, self._retries = urlsplit(url), context, retries
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._client, self.greeted = secrets.token_hex(8), False
        self.strays = 0  # a response has one request
        self._waiting: list[dict[str, Any]] = []
        self._connection: http.client.HTTPConnection | None = None
        self._thread = ThreadPoolExecutor(1, "ludus agent")
        self._late: Future[Any] | None = None

    def send(self, message: dict[str, Any]) -> None:
        """Say it when the next answer is waited for."""
        self._waiting.append({**message, "client": self._client})

    def answer(self, seconds: float, *, starting: bool = False) -> Any:
        """Return the next answer. Raises TimeoutError where it does not come in time, and PartDied where none can come, or the last one
        is late, too."""
        until = time.monotonic() + seconds
        if self._late is not None:
            self._waited(self._late, until, seconds, starting)
            self._late = None
        while True:
            message = self._waiting.pop(0)
            future = self._thread.submit(self._posted, message, seconds)
            value = self._waited(future, until, seconds, starting)
            if message["type"] in ("hello", "act"):
                self.greeted = True
                return value

    def _waited(self, future: Future[Any], until: float, seconds: float, starting: bool) -> Any:
        """Return what a request has brought; meanwhile somebody hears that it is waited for."""
        while not future.done():
            left = until - time.monotonic()
            if left <= 0:
                if starting or self._late is not None:
                    what = "to hello" if starting else "for two moves in a row"
                    raise PartDied(f"agent {self._context.name!r} did not answer {what} within {seconds:g} seconds.")
                self._late = future
                raise TimeoutError
            self._context.heartbeat()
            try:
                future.exception(min(left, _LOOK))
            except TimeoutError:
                continue
        return future.result()

    def _posted(self, message: dict[str, Any], seconds: float) -> Any:
        """Return the answer to a message. In the thread."""
        body, path = protocol.encoded(message), self._url.path or "/"
        path += f"?{self._url.query}" if self._url.query else ""
        for attempt in range(self._retries + 1):
            try:
                connection = self._connected(seconds)
                connection.request("POST", path, body, self._headers)
                response = connection.getresponse()
                data = response.read()
                break
            except TimeoutError as error:  # it was heard, perhaps
                self._disconnect()
                raise PartDied(f"agent {self._context.name!r} did not answer: {error}.") from error
            except (OSError, http.client.HTTPException) as error:
                self._disconnect()
                if attempt == self._retries:
                    raise PartDied(
                        f"agent {self._context.name!r} could not be reached, {attempt + 1} times: {error or type(error).__name__}."
                    ) from error
                time.sleep(0.1 * 2**attempt)
        if response.status >= _FAILED:
            text = data.decode(errors="replace")[:_SHOWN]
            raise PartDied(f"agent {self._context.name!r} answered with status {response.status}: {text}")
        if message["type"] == "reset":
            return None
        try:
            return json.loads(data)
        except ValueError:
            return data.decode(errors="replace")[:_SHOWN]

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            assert self._url.hostname is not None
            self._connection = kind(self._url.hostname, self._url.port, timeout=2 * seconds + 1)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask_to_end(self) -> None:
        """Say `close`."""
        if self.greeted and self._late is None:
            self.send({"type": "close"})
            self._thread.submit(self._posted, self._waiting.pop(), 1.0)

    def end(self, until: float) -> None:
        """Close the connection."""
        self._thread.shutdown(wait=True, cancel_futures=False) if self._late is None else self._thread.shutdown(
            wait=False
        )
        self._disconnect()
