"""The address of a server: its tokens, the socket that it listens at, and links. Light, since a run that opens its page needs these, and
not the server itself.

A token is 256 bits; it opens the page once, by /enter, and lives on as an http-only, same-site cookie. There is one token for each set of
rights, all made from one secret, so that a server that was given the same secret keeps its addresses.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from ludus.core.errors import ConfigError

Rights = frozenset[str]

WATCH: Final = frozenset({"watch"})
PLAY: Final = frozenset({"watch", "play"})
STEER: Final = frozenset({"watch", "play", "steer"})

LOOPBACK = "127.0.0.1"
PORT = 8300
_LAST = 65535
_NEXT = 50  # ports that are tried from there on


@dataclass(frozen=True, slots=True)
class Tokens:
    """One for each set of rights; all of them from one secret of at least 128 bits."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def of(self, rights: Rights) -> str:
        """Return 64 hexadecimal digits."""
        return hmac.new(self.secret, " ".join(sorted(rights)).encode(), hashlib.sha256).hexdigest()

    @property
    def door(self) -> str:
        """Return below which path the page lies, and the cookie is sent: browsers send a cookie to all ports of a host, and another server
        of this machine must not be told the token by who looks at it. 32 hexadecimal digits."""
        return hmac.new(self.secret, b"door", hashlib.sha256).hexdigest()[:32]

    def rights(self, token: str, granted: Iterable[Rights]) -> Rights:
        """Return what a token is good for, of what may be granted; nothing for one that is not ours."""
        presented = token.encode("utf-8", "replace")
        result: Rights = frozenset()
        for rights in granted:  # all of them, so that the time tells nothing
            if hmac.compare_digest(presented, self.of(rights).encode()):
                result = rights
        return result


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server. host: a name or number, of this machine where the server listens at all of its addresses."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def link(self, tokens: Tokens, rights: Rights, to: str = "") -> str:
        """Return the address that lets its user do this. to: a place on the page, such as "#/people"."""
        more = f"&to={quote(to, safe='')}" if to else ""
        return f"{self}/enter?token={tokens.of(rights)}{more}"


def listen(host: str = LOOPBACK, port: int | None = None) -> socket.socket:
    """Return a socket; with port None at 8300 or the next that is free. Raises ConfigError."""
    if port is not None and port > _LAST:
        raise ConfigError(f"port {port} was given; a number from 0 to {_LAST} was expected.")
    wanted = range(PORT, PORT + _NEXT) if port is None else [port]
    which = f"any port from {PORT} to {PORT + _NEXT - 1}" if port is None else f"port {port}"
    why = ""
    for number in wanted:
        try:
            return _bound(host, number)
        except OSError as error:
            why = error.strerror or str(error)
    raise ConfigError(
        f"nothing can listen at {which} of {host!r}: {why}. Give another --port (0 takes any that is free) or --host."
    )


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    one = socket.socket(family, kind, protocol)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(place)
        one.listen(128)
    except BaseException:
        one.close()
        raise
    return one


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens there."""
    number = number_of(host)
    return host.lower() == "localhost" if number is None else number.is_loopback


def is_any(host: str) -> bool:
    """Return whether it stands for all addresses of the machine."""
    number = number_of(host)
    return not host if number is None else number.is_unspecified


def number_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
