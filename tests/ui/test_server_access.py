"""Who is let in, with what, and who is not."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from server_tools import HOST, Asker, asking

from ludus.apps.ui.server import serving
from ludus.apps.ui.server.access import (
    LONGEST_BODY,
    POLICY,
    Access,
    Bucket,
    Buckets,
    Hosts,
    Password,
    host_of,
)
from ludus.apps.ui.server.address import LOOPBACK, PLAY, STEER, WATCH, Tokens, listen
from ludus.apps.ui.server.known_runs import KnownRuns

SECRET = bytes(range(32))


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    with asking(tmp_path_factory.mktemp("runs"), rights=None) as asker:
        yield asker


def cookie(asker: Asker, token: str) -> dict[str, str]:
    return {"cookie": f"{asker.access.cookie}={token}"}


def steering(asker: Asker) -> dict[str, str]:
    return cookie(asker, asker.access.tokens.of(STEER))


# ---------------------------------------------------------------------------------------------- connections


def rest_of(line: socket.socket) -> bytes:
    """What comes until the other side closes it."""
    parts = []
    while part := line.recv(4096):
        parts.append(part)
    return b"".join(parts)


def test_a_connection_on_which_no_request_comes_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.2)
    served = serving.serve(KnownRuns(root=tmp_path), listen(port=0), access=Access(), host=LOOPBACK)
    thread = threading.Thread(target=served.server.run, kwargs={"sockets": [served.socket]})
    thread.start()
    try:
        whole = f"GET /login HTTP/1.1\r\nHost: localhost:{served.address.port}\r\n\r\n".encode()
        for answered in (b"", whole):
            for half in (whole[:30],) if answered else (b"", whole[:30]):
                with socket.create_connection((LOOPBACK, served.address.port), timeout=20) as line:
                    line.sendall(answered)
                    assert not answered or line.recv(1 << 16).startswith(b"HTTP/1.1 404")
                    line.sendall(half)
                    assert b"HTTP" not in rest_of(line)
    finally:
        served.end()
        thread.join()


# ---------------------------------------------------------------------------------------------- tokens and cookies


def test_tokens_are_of_rights_and_of_a_secret() -> None:
    tokens = Tokens(SECRET)
    granted = (WATCH, PLAY, STEER)
    assert [tokens.rights(tokens.of(rights), granted) for rights in granted] == [*granted]
    assert tokens.rights(tokens.of(STEER), (WATCH,)) == frozenset()
    assert tokens.rights(Tokens().of(STEER), granted) == tokens.rights("", granted) == frozenset()
    assert len({tokens.of(rights) for rights in granted}) == 3
    assert len(bytes.fromhex(tokens.of(WATCH))) == 32
    assert Tokens(SECRET).of(WATCH) == tokens.of(WATCH)
    assert str(SECRET) not in repr(tokens)


def test_the_token_is_shown_once_and_lives_on_as_a_cookie(asker: Asker) -> None:
    token = asker.access.tokens.of(PLAY)
    reply = asker.get("/enter", params={"token": token, "to": "#/run/ab/play?seats=person,@best"})
    assert (reply.status_code, reply.headers["location"]) == (
        303,
        f"{asker.access.home}#/run/ab/play?seats=person,@best",
    )
    assert reply.headers["set-cookie"] == f"ludus-8300={token}; Path={asker.access.home}; HttpOnly; SameSite=Strict"
    asker.cookies.clear()
    may = asker.get("/api/session", headers=cookie(asker, token)).json()["may"]
    assert may == {"watch": True, "play": True, "steer": False}


def test_the_cookie_is_sent_below_a_path_that_other_servers_of_the_machine_do_not_know(asker: Asker) -> None:
    home, mine = asker.access.home, cookie(asker, asker.access.tokens.of(PLAY))
    assert len(bytes.fromhex(home.strip("/"))) == 16
    assert asker.access.tokens.of(PLAY) not in home
    assert Tokens(SECRET).door == Tokens(SECRET).door != Tokens().door
    assert asker.get(f"{home}api/session", headers=mine).json() == asker.get("/api/session", headers=mine).json()
    assert asker.get(home).text == asker.get("/").text
    assert asker.get(f"{home}api/session").status_code == 401  # the path alone opens nothing
    assert asker.get(f"/{'0' * 32}/api/session", headers=mine).status_code == 404


def test_a_cookie_over_tls_is_for_tls_alone() -> None:
    access = Access(secure=True, port=443)
    assert access.set_cookie("t") == f"__Secure-ludus-443=t; Path={access.home}; HttpOnly; SameSite=Strict; Secure"


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "#", "#/" + 500 * "x"])
def test_nobody_is_led_elsewhere(asker: Asker, to: str) -> None:
    reply = asker.get("/enter", params={"token": asker.access.tokens.of(WATCH), "to": to})
    asker.cookies.clear()
    assert reply.headers["location"] == asker.access.home


@pytest.mark.parametrize("token", ["", "x", 64 * "0", "é", 5000 * "a"])
def test_a_wrong_token_opens_nothing(asker: Asker, token: str) -> None:
    reply = asker.get("/enter", params={"token": token})
    assert reply.status_code == 401
    assert "set-cookie" not in reply.headers
    assert "ludus ui" in reply.json()["error"]
    headers = {"cookie": f"{asker.access.cookie}={token}".encode()}
    assert asker.get("/api/session", headers=headers).status_code == 401  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["/api/session", "/api/runs", "/api/live", "/api/openapi.json", "/nothing", "/api/runs/x/overview"]
)
def test_a_stranger_sees_the_empty_page_and_nothing_else(asker: Asker, path: str) -> None:
    reply = asker.get(path)
    assert reply.status_code == 401
    assert [*reply.json()] == ["error"]
    assert asker.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert asker.get("/page/app.js").headers["content-type"] == "text/javascript; charset=utf-8"


def test_the_openapi_description_is_for_those_who_are_in(asker: Asker) -> None:
    paths = asker.get("/api/openapi.json", headers=steering(asker)).json()["paths"]
    assert {"/api/runs", "/api/live", "/api/runs/{run}/{panel}", "/api/runs/{run}/order"} <= paths.keys()


@pytest.mark.parametrize(
    "name", ["..%2fserver%2fapp.py", "../app.js", ".hidden", "README.md", "%2e%2e", "app.js%00", "nothing.js"]
)
def test_files_have_names_and_no_paths(asker: Asker, name: str) -> None:
    assert asker.get(f"/page/{name}").status_code in (401, 404)


def test_answers_have_safe_headers_whatever_they_are(asker: Asker) -> None:
    for reply in (
        asker.get("/"),
        asker.get("/api/runs"),
        asker.get("/page/none"),
        asker.get("/", headers={"host": "evil"}),
    ):
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["cross-origin-opener-policy"] == "same-origin"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert reply.headers["cache-control"] in ("no-store", "private, no-cache")
        assert not [name for name in reply.headers if name.startswith("access-control")]
        assert "server" not in reply.headers
    assert "unsafe" not in POLICY


# ---------------------------------------------------------------------------------------------- hosts and origins


@pytest.mark.parametrize(
    ("listens", "header", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1:8300", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "LOCALHOST:9000", True),  # a tunnel has another port
        ("127.0.0.1", "[::1]:8300", True),
        ("127.0.0.1", "evil.example:8300", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "192.168.0.7:8300", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "a@localhost", False),
        ("127.0.0.1", "localhost/x", False),
        ("127.0.0.1", "[::1", False),
        ("0.0.0.0", "192.168.0.7:8300", True),
        ("0.0.0.0", "[fe80::1]:8300", True),
        ("0.0.0.0", "box.example", True),  # known as
        ("0.0.0.0", "evil.example", False),
        ("box", "BOX:8300", True),
        ("box", "0x7f.1", False),
    ],
)
def test_hosts(listens: str, header: str, allowed: bool) -> None:
    names = ["Box.example"] if listens == "0.0.0.0" else []
    assert Hosts.of(listens, names).allow(header) == allowed


def test_a_name_that_leads_here_is_refused_even_with_the_cookie(asker: Asker) -> None:
    reply = asker.get("/api/runs", headers={**steering(asker), "host": "evil.example:8300"})
    assert reply.status_code == 403
    assert host_of("LocalHost:1") == "localhost"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin", "origin": f"http://{HOST}"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),  # another port of this machine
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:8301"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[::1"}, 403),
    ],
)
def test_other_sites_are_told_nothing(asker: Asker, headers: dict[str, str], status: int) -> None:
    assert asker.get("/api/session", headers={**steering(asker), **headers}).status_code == status


def test_a_link_from_elsewhere_opens_the_page(asker: Asker) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert asker.get("/", headers=headers).status_code == 200
    assert asker.get("/page/app.js", headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-ludus": "1"}, 404),
        ({}, 403),
        ({"x-ludus": "1", "content-type": "text/plain"}, 400),
        ({"x-ludus": "1", "sec-fetch-site": "same-site"}, 403),
        ({"x-ludus": "1", "origin": "http://evil.example"}, 403),
    ],
)
def test_state_changing_requests_need_the_page_origin(asker: Asker, headers: dict[str, str], status: int) -> None:
    content = json.dumps({"do": "stop"})
    every = {"content-type": "application/json", **steering(asker), **headers}
    assert asker.post("/api/runs/none/order", content=content, headers=every).status_code == status


# ---------------------------------------------------------------------------------------------- rights and limits


def test_rights_are_apart(asker: Asker) -> None:
    for rights, status in ((WATCH, 403), (PLAY, 403), (STEER, 404)):
        headers = cookie(asker, asker.access.tokens.of(rights))
        assert asker.order("/api/runs/none/order", {"do": "stop"}, **headers).status_code == status


def test_ungranted_access_is_denied(tmp_path: Path) -> None:
    with asking(tmp_path, Access(granted=(WATCH,), port=8300), rights=STEER) as asker:
        assert asker.get("/api/session").status_code == 401
        assert asker.access.most == WATCH


def test_a_long_body_is_refused_before_it_is_read(asker: Asker) -> None:
    headers = {**steering(asker), "x-ludus": "1", "content-type": "application/json"}
    long = b'"' + LONGEST_BODY * b"x" + b'"'
    assert asker.post("/api/runs/a/order", content=long, headers=headers).status_code == 413
    assert (
        asker.post("/api/runs/a/order", content=iter([long[:40_000], long[40_000:]]), headers=headers).status_code
        == 413
    )
    assert asker.post("/api/runs/a/order", content=b"{", headers={**headers, "content-length": "-1"}).status_code == 413


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "HEAD", "OPTIONS"])
def test_methods_that_nobody_offers(asker: Asker, method: str) -> None:
    reply = asker.request(method, "/api/session", headers={**steering(asker), "x-ludus": "1"})
    assert reply.status_code == 405


def test_a_bucket_fills_with_time() -> None:
    now = [0.0]
    bucket = Bucket(2.0, 3.0, clock=lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    now[0] = 0.25
    assert bucket.take() == pytest.approx(0.25)
    now[0] = 0.5
    assert bucket.take() == 0.0
    now[0] = 1000.0
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_clients_have_buckets_of_their_own_and_old_ones_are_forgotten() -> None:
    buckets = Buckets(1.0, 1.0, most=2, clock=lambda: 0.0)
    assert [buckets.take(who) for who in ("a", "a", "b", "c", "a")] == [0.0, 1.0, 0.0, 0.0, 0.0]


def test_who_asks_too_often_waits(tmp_path: Path) -> None:
    access = Access(port=8300, strangers=Buckets(0.1, 2.0, clock=lambda: 0.0))
    with asking(tmp_path, access, rights=None) as asker:
        assert [asker.get("/").status_code for _ in range(3)] == [200, 200, 429]
        assert asker.get("/").headers["retry-after"] == "10"
        assert asker.get("/api/session", headers=steering(asker)).status_code == 200


def test_internal_errors_are_not_disclosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise RuntimeError("a secret place")

    with asking(tmp_path) as asker:
        monkeypatch.setattr(asker.state.watcher, "lines", broken)
        browser = TestClient(asker.app, f"http://{HOST}", raise_server_exceptions=False, headers=dict(asker.headers))
        reply = browser.get("/api/runs")
    assert (reply.status_code, "secret" in reply.text, [*reply.json()]) == (500, False, ["error"])
    assert reply.headers["content-security-policy"] == POLICY


# ---------------------------------------------------------------------------------------------- the password


def test_a_password_lets_in_and_guesses_are_few(tmp_path: Path) -> None:
    access = Access(passwords=(Password.of("correct horse"),), port=8300, guesses=Buckets(0.2, 3.0, clock=lambda: 0.0))
    with asking(tmp_path, access, rights=None) as asker:
        assert asker.get("/").headers["location"] == "login"
        linked = asker.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
        assert linked.headers["location"] == "login?again"
        assert "<form " in asker.get("/login").text
        assert "password at /login" in asker.get("/api/session").json()["error"]
        wrong = asker.order("/enter", {"password": "correct hors"})
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        right = asker.order("/enter", {"password": "correct horse"})
        assert right.status_code == 204
        asker.headers["cookie"] = right.headers["set-cookie"].partition(";")[0]
        assert asker.get("/").status_code == 200
        assert asker.get("/api/session").json()["may"]["steer"] is True
        assert [asker.order("/enter", {"password": "x"}).status_code for _ in range(2)] == [401, 429]
        assert asker.post("/enter", json={"password": "correct horse"}).status_code == 403


def test_without_a_password_there_is_no_login(asker: Asker) -> None:
    assert asker.get("/login").status_code == 404
    assert asker.order("/enter", {"password": "x"}).status_code == 405
    assert "digest" not in repr(Password.of("x"))


WATCHING, STEERING = "of a watcher", "of a driver"


def two_passwords(**settings: Any) -> Access:
    return Access(passwords=(Password.of(STEERING), Password.of(WATCHING, WATCH)), port=8300, **settings)


def test_the_password_for_watching_watches_and_does_nothing_else(tmp_path: Path) -> None:
    with asking(tmp_path, two_passwords(), rights=None) as asker:
        reply = asker.order("/enter", {"password": WATCHING})
        token, attributes = reply.headers["set-cookie"].split("; ", 1)
        assert (reply.status_code, attributes) == (204, f"Path={asker.access.home}; HttpOnly; SameSite=Strict")
        assert token == f"{asker.access.cookie}={asker.access.tokens.of(WATCH)}"
        watcher = {"cookie": token}
        may = asker.get("/api/session", headers=watcher).json()["may"]
        assert may == {"watch": True, "play": False, "steer": False}
        assert asker.get("/api/runs", headers=watcher).status_code == 200
        paths = asker.get("/api/openapi.json", headers=watcher).json()["paths"]
        changing = [
            path for path, methods in paths.items() for method in methods if method in ("post", "put", "delete")
        ]
        assert {"/api/runs/{run}/order", "/api/runs/{run}/notes"} <= {*changing}
        for path in changing:  # whatever its body is, and for methods that it does not have too
            for method in ("POST", "PUT", "DELETE"):
                headers = {**watcher, "x-ludus": "1", "content-type": "application/json"}
                reply = asker.request(method, path.replace("{", "").replace("}", ""), headers=headers, content=b"{}")
                assert reply.status_code in (403, 405), (method, path, reply.text)
        for stolen in (asker.access.tokens.of(WATCH).replace("0", "1"), asker.access.tokens.of(WATCH) + "x", WATCHING):
            assert asker.get("/api/session", headers=cookie(asker, stolen)).status_code == 401


def test_each_password_gives_its_rights_and_every_wrong_one_the_same_error(tmp_path: Path) -> None:
    with asking(tmp_path, two_passwords(guesses=Buckets(1.0, 100.0)), rights=None) as asker:
        reply = asker.order("/enter", {"password": STEERING})
        assert asker.access.tokens.of(STEER) in reply.headers["set-cookie"]
        wrong = [
            "",
            "x",
            WATCHING[:-1],
            STEERING[:-1],
            f"{STEERING}{WATCHING}",
            WATCHING.upper(),
            f"{WATCHING} ",
            "é" * 9,
        ]
        replies = [asker.order("/enter", {"password": text}) for text in wrong]
        assert {(reply.status_code, reply.text, "set-cookie" in reply.headers) for reply in replies} == {
            (401, replies[0].text, False)
        }


def test_guesses_at_both_passwords_are_counted_together(tmp_path: Path) -> None:
    access = two_passwords(guesses=Buckets(0.2, 4.0, clock=lambda: 0.0))
    with asking(tmp_path, access, rights=None) as asker:
        tried = [f"{text}{k}" for k in range(2) for text in (WATCHING, STEERING)]
        assert [asker.order("/enter", {"password": text}).status_code for text in tried] == 4 * [401]
        assert asker.order("/enter", {"password": WATCHING}).status_code == 429  # the right one, too late
        assert asker.order("/enter", {"password": STEERING}).status_code == 429


def test_every_digest_is_compared_for_every_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    access, compared = two_passwords(), list[bytes]()
    fits = Password.fits

    def counting(self: Password, text: str) -> bool:
        compared.append(self.digest)
        return fits(self, text)

    monkeypatch.setattr(Password, "fits", counting)
    rights = [access.rights_of_password(text) for text in (STEERING, WATCHING, "neither")]
    assert rights == [STEER, WATCH, frozenset()]
    assert compared == 3 * [password.digest for password in access.passwords]
    access.granted = (WATCH,)
    assert [access.rights_of_password(text) for text in (STEERING, WATCHING)] == [frozenset(), WATCH]
