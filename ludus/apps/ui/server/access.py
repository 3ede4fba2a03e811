"""Access control: tokens, the cookie, host names, origins, and limits. All of it stands before the first route.

request --> Gate: host? origin? rate? cookie? header, size --> route (with `rights`)
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ludus.apps.ui.server.address import PLAY, STEER, WATCH, Rights, Tokens, is_loopback, number_of

COOKIE = "ludus"
LONGEST_BODY = 64 * 1024  # bytes
MOST_REQUESTS = 64  # that are answered at a time, beside the streams
MOST_STREAMS = 200  # of events that are open, tables' included
BODY_SECONDS = 10.0  # in which a body has to come

OPEN_PATHS = ("/", "/enter", "/login")
"""What needs no cookie, beside the page's own files."""
PAGE = "/page/"

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class AccessDenied(Exception):
    """Response of the middleware instead of a route. A value, never shown as an error."""

    def __init__(self, status: int, sentence: str, *, wait: float = 0.0) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.wait = status, sentence, wait


# ---------------------------------------------------------------------------------------------- the password


@dataclass(frozen=True, slots=True)
class Password:
    """Password for people without a token; stored as scrypt's digest (RFC 7914; 16 MiB and some 50 ms for a guess). rights: what it
    gives."""

    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    rights: Rights = STEER

    @staticmethod
    def of(text: str, rights: Rights = STEER) -> Password:
        """Of a password as it was typed."""
        salt = secrets.token_bytes(16)
        return Password(salt, _scrypt(text, salt), rights)

    def fits(self, text: str) -> bool:
        """Return whether it is this one."""
        return hmac.compare_digest(self.digest, _scrypt(text, self.salt))


def _scrypt(text: str, salt: bytes) -> bytes:
    return hashlib.scrypt(text.encode("utf-8", "replace"), salt=salt, n=2**14, r=8, p=1, dklen=32)


# ---------------------------------------------------------------------------------------------- limits


class Bucket:
    """Lets `rate` requests a second through, and `burst` of them at once."""

    __slots__ = ("_at", "_clock", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst = rate, burst
        self._clock, self._tokens, self._at = clock, burst, clock()

    def take(self) -> float:
        """Return 0 if one more may pass; else the seconds until it may."""
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self.rate


class Buckets:
    """One for each client; the ones that have not been used for longest are forgotten."""

    def __init__(
        self, rate: float, burst: float, *, most: int = 1024, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._max_clients = most
        self._of: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, client: str) -> float:
        """As `Bucket.take`."""
        bucket = self._of.get(client) or Bucket(self._rate, self._burst, clock=self._clock)
        self._of[client] = bucket
        self._of.move_to_end(client)
        while len(self._of) > self._max_clients:
            self._of.popitem(last=False)
        return bucket.take()


# ---------------------------------------------------------------------------------------------- hosts


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names under which the server may be asked: a page of another site whose name leads here (DNS rebinding) is none of them.

    names: allowed beside numbers, to which no name can lead. numbers: whether any IP address is, or this machine's loopback alone."""

    names: frozenset[str] = frozenset({"localhost"})
    numbers: bool = False

    @staticmethod
    def of(host: str, names: Iterable[str] = ()) -> Hosts:
        """host: what the server listens at. names: others that it is known by."""
        if is_loopback(host):
            return Hosts(frozenset({"localhost", host.lower(), *(name.lower() for name in names)}))
        known = {"localhost", socket.gethostname(), socket.getfqdn(), *names, *([] if number_of(host) else [host])}
        return Hosts(frozenset(name.lower() for name in known), numbers=True)

    def allow(self, header: str) -> bool:
        """header: a request's `Host`."""
        name = host_of(header)
        if not name:
            return False
        number = number_of(name)
        return name in self.names if number is None else number.is_loopback or self.numbers


def host_of(header: str) -> str:
    """Without the port, in lower case; empty if it is no host."""
    try:
        parts = urlsplit(f"//{header}")
        return "" if parts.path or parts.query or parts.username is not None else (parts.hostname or "").lower()
    except ValueError:
        return ""


# ---------------------------------------------------------------------------------------------- the gate


@dataclass(slots=True)
class Access:
    """Settings of the middleware. granted: the sets of rights that this server gives at all. passwords: the first that fits counts. port:
    of the address, for the cookie's name, as browsers keep cookies for all ports of a host together. secure: whether it is served by TLS.
    strangers, known: of one address, behind which many may watch: a hundred of them ask for all that a page shows some 1,000 times a
    second."""

    tokens: Tokens = field(default_factory=Tokens)
    granted: tuple[Rights, ...] = (WATCH, PLAY, STEER)
    hosts: Hosts = field(default_factory=Hosts)
    passwords: tuple[Password, ...] = ()
    port: int = 0
    secure: bool = False
    strangers: Buckets = field(default_factory=lambda: Buckets(rate=50, burst=300))
    known: Buckets = field(default_factory=lambda: Buckets(rate=2000, burst=8000))
    guesses: Buckets = field(default_factory=lambda: Buckets(rate=0.2, burst=5))
    all_guesses: Bucket = field(default_factory=lambda: Bucket(rate=2, burst=20))

    @property
    def most(self) -> Rights:
        """Return the largest set of rights that is given."""
        return max(self.granted, key=len)

    @property
    def cookie(self) -> str:
        """Return its name."""
        return f"{'__Secure-' if self.secure else ''}{COOKIE}-{self.port}"

    def set_cookie(self, token: str) -> str:
        """Return a `Set-Cookie` header."""
        secure = "; Secure" if self.secure else ""
        return f"{self.cookie}={token}; Path={self.home}; HttpOnly; SameSite=Strict{secure}"

    @property
    def home(self) -> str:
        """Return the path of the page for those who have been let in; what lies below it is the same as below /."""
        return f"/{self.tokens.door}/"

    def enter(self, token: str) -> Rights:
        """Return the rights of a token that was shown; none if it is not ours."""
        return self.tokens.rights(token, self.granted)

    def rights_of_password(self, text: str) -> Rights:
        """Return the rights of a password that was typed; none if it is not one of ours. Every digest is compared for every guess, so that
        the time does not tell how near it was. Takes some 50 ms a password."""
        fits = [password.rights for password in self.passwords if password.fits(text)]
        return fits[0] if fits and fits[0] in self.granted else frozenset()

    def guess(self, client: str) -> float:
        """Return 0 if this client may try a password now, whichever it is meant to be; else the seconds until it may."""
        return self.guesses.take(client) or self.all_guesses.take()

    def needs(self, right: str) -> Any:
        """Return a dependency of routes that only those may use who have this right."""

        def check(request: Request) -> None:
            if right not in request.scope["rights"]:
                raise HTTPException(403, f"this address does not let you {right}. {_MORE[right]}")

        return Depends(check)


_MORE: Mapping[str, str] = {
    "steer": "Open the address for steering that `ludus ui` printed where it was started without --watch-only.",
    "play": "Open the first address that `ludus ui` printed, where it was started without --watch-only.",
    "watch": "Open the address that `ludus ui` printed.",
}
_STRANGER = "this needs the address with its token that `ludus ui` printed where it was started: open that one"


class AccessMiddleware:
    """ASGI middleware: what is let through has its host, origin, cookie, headers and size checked, and is answered with safe headers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access
        self._busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, _with_headers(send))

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(self._access.home):
            scope = {**scope, "path": scope["path"][len(self._access.home) - 1 :]}
        try:
            self._let_in(scope)
            if scope["method"] not in SAFE:
                receive = await _whole_body(scope, receive)
        except AccessDenied as refusal:
            await _refuse(refusal, send)
            return
        self._busy += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._busy -= 1

    def _let_in(self, scope: Scope) -> None:
        """Raise AccessDenied, or puts the client's rights into the scope."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._access.hosts.allow(headers.get("host", "")):
            raise AccessDenied(
                403, "this server does not answer under that host name. Use the address that `ludus ui` printed."
            )
        check_origin(scope["method"], scope["path"], headers)
        rights = self._access.enter(cookies(headers.get("cookie", "")).get(self._access.cookie, ""))
        client = (scope.get("client") or ("", 0))[0]
        wait = self._access.known.take(client) if rights else self._access.strangers.take(client)
        if wait or self._busy >= MOST_REQUESTS + MOST_STREAMS:
            raise AccessDenied(429, "too many requests at a time. Wait a moment, then try again.", wait=max(wait, 1.0))
        path = scope["path"]
        if not rights and path not in OPEN_PATHS and not path.startswith(PAGE):
            other = ", or give the password at /login" if self._access.passwords else ""
            raise AccessDenied(401, f"{_STRANGER}{other}.")
        scope["rights"] = rights


def check_origin(method: str, path: str, headers: Mapping[str, str]) -> None:
    """Raise AccessDenied for a request of another site's page, or of another port of this machine. headers: names in lower case."""
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    opened = method == "GET" and path in OPEN_PATHS and headers.get("sec-fetch-mode") == "navigate"
    if site not in ("same-origin", "none") and not opened:
        raise AccessDenied(403, "another site's page asked for this, and only Ludus's own page may.")
    if origin is not None and netloc_of(origin) != headers.get("host", "").lower():
        raise AccessDenied(403, "another site's page asked for this, and only Ludus's own page may.")
    if method in SAFE:
        return
    if headers.get("x-ludus") != "1":
        raise AccessDenied(
            403, "what changes something needs the header `X-Ludus: 1`, which only Ludus's own page sends."
        )
    if method == "POST" and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise AccessDenied(400, "the body has to be JSON, with `Content-Type: application/json`.")


def netloc_of(origin: str) -> str:
    """Return host and port of an origin, in lower case; empty for "null" and what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def cookies(header: str) -> dict[str, str]:
    """Name -> value."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, mark, value in pairs if mark}


async def _whole_body(scope: Scope, receive: Receive) -> Receive:
    """The body is read before anybody sees it, up to the limit. Raises Refusal."""
    try:
        body = await asyncio.wait_for(_body(scope, receive), BODY_SECONDS)
    except TimeoutError:
        raise AccessDenied(413, f"the body did not come within {BODY_SECONDS:g} seconds.") from None
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


async def _body(scope: Scope, receive: Receive) -> bytes:
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    too_long = AccessDenied(413, f"the body is longer than {LONGEST_BODY:,} bytes, and nothing here needs so many.")
    if not declared.isdigit() or int(declared) > LONGEST_BODY:
        raise too_long
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise AccessDenied(400, "the connection closed before the body had come.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LONGEST_BODY:
            raise too_long
    return body


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ())]
            named = {name.lower() for name, _ in headers}
            headers += [(name, value) for name, value in HEADERS if name not in named]
            if b"cache-control" not in named:
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await send(message)

    return wrapped


async def _refuse(refusal: AccessDenied, send: Send) -> None:
    body = json.dumps({"error": refusal.sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.wait:
        headers.append((b"retry-after", str(max(1, round(refusal.wait))).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
