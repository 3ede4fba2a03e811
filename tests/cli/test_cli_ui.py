"""ludus ui, and the page beside a run."""

from __future__ import annotations

import io
import logging
import os
import socket
import ssl
import stat
import subprocess
import sys
import time
import urllib.request
import webbrowser
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
import synthetic_run as synthetic

from ludus.apps.ui.server import serving
from ludus.apps.ui.server.address import PLAY, STEER, WATCH, Address, Tokens, is_any, is_loopback, listen
from ludus.cli import ui
from ludus.cli.background_page import open_page
from ludus.cli.main import main
from ludus.core.errors import ConfigError
from ludus.storage.base import NullObserver

_COMMAND = "import sys; from ludus.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", ui.SECRET, ui.PASSWORD, ui.WATCH_PASSWORD, "LUDUS_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:7]) == ("", 1, "error: ")
    return err


def test_lines_that_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic.write(here / "runs" / "try1", generations=0)
    assert "there is no run 'try2'; did you mean 'try1'" in refused(["ui", "try2"], capsys)
    assert "lets every machine that reaches this one" in refused(["ui", "--host", "0.0.0.0"], capsys)
    assert "belong together" in refused(["ui", "--certificate", "a.pem"], capsys)
    assert "cannot be used: No such file" in refused(["ui", "--certificate", "a.pem", "--key", "b.pem"], capsys)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert f"Set {ui.PASSWORD}" in refused(["ui", "--host", "0.0.0.0", "--password"], capsys)
    monkeypatch.setenv(ui.PASSWORD, "short")
    assert "the password has 5 characters; at least 10" in refused(["ui", "--password"], capsys)
    assert "No such file" in refused(["ui", "--password-file", "none"], capsys)
    monkeypatch.setenv(ui.PASSWORD, "correct horse")
    assert f"Set {ui.WATCH_PASSWORD}." in refused(["ui", "--watch-password"], capsys)
    monkeypatch.setenv(ui.WATCH_PASSWORD, "correct horse")
    assert "are the same" in refused(["ui"], capsys)
    monkeypatch.setenv(ui.WATCH_PASSWORD, "battery")
    assert "the password for watching has 7 characters" in refused(["ui"], capsys)
    monkeypatch.delenv(ui.WATCH_PASSWORD)
    monkeypatch.setenv(ui.SECRET, "too short")
    assert "at least 32 were expected" in refused(["ui"], capsys)
    assert "--ui is for one run" in refused(["train", "kuhn", "--seeds", "2", "--ui"], capsys)


def test_a_port_that_is_taken_is_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    with listen(port=0) as taken:
        port = taken.getsockname()[1]
        assert f"nothing can listen at port {port} of '127.0.0.1'" in refused(["ui", "--port", str(port)], capsys)
    with listen() as first, listen() as second:
        assert first.getsockname()[1] != second.getsockname()[1]
        assert first.getsockname()[0] == second.getsockname()[0] == "127.0.0.1"
    with pytest.raises(ConfigError, match="port 70000"):
        listen(port=70000)
    with pytest.raises(ConfigError, match="of 'no such host'"):
        listen("no such host")


def test_addresses() -> None:
    tokens = Tokens(bytes(32))
    link = Address("::1", 8300, tls=True).link(tokens, WATCH, "#/run/ab")
    assert link == f"https://[::1]:8300/enter?token={tokens.of(WATCH)}&to=%23%2Frun%2Fab"
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "Localhost", "0.0.0.0", "box")] == 3 * [True] + 2 * [
        False
    ]
    assert [is_any(host) for host in ("0.0.0.0", "::", "127.0.0.1", "box")] == [True, True, False, False]


def test_the_browser_is_led_there_by_a_file_that_others_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "some")
    monkeypatch.setattr(webbrowser, "get", lambda: None)
    seen = list[tuple[str, str, int]]()

    def open_(uri: str) -> bool:
        file = Path(uri.removeprefix("file://"))
        seen.append((uri, file.read_text(), stat.S_IMODE(file.parent.stat().st_mode)))
        return True

    monkeypatch.setattr(webbrowser, "open", open_)
    with ui.opened("http://127.0.0.1:8300/enter?token=abc") as is_open:
        assert is_open
    ((uri, content, mode),) = seen
    assert ("token" in uri, "token=abc" in content, mode) == (False, True, 0o700)
    assert not Path(uri.removeprefix("file://")).exists()
    with ui.opened("http://x", wanted=False) as is_open:
        assert not is_open


def test_the_page_is_served_as_it_was_asked_for(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic.write(here / "runs" / "try1", generations=0)
    other = logging.StreamHandler(io.StringIO())  # of another library: absl's closes its file with itself
    closed = list[logging.Handler]()
    monkeypatch.setattr(other, "close", lambda: closed.append(other))
    served = list[serving.Served]()
    monkeypatch.setattr(serving.Served, "run", lambda self: served.append(self))
    assert main(["ui", "--port", "0", "--watch-only"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{served[0].link(WATCH)}\n"
    assert err == "Open this address in a browser.\nCtrl-C ends the page; runs continue.\n"
    monkeypatch.setenv(ui.PASSWORD, "correct horse")
    monkeypatch.setenv(ui.SECRET, 32 * "s")
    assert main(["ui", "try1", "--port", "0", "--host", "0.0.0.0", "--password", "--known-as", "box"]) == 0
    out, err = capsys.readouterr()
    assert (
        out == served[1].link(STEER, f"#/run/{served[1].state.watcher.runs.all()[0].id}") + "\n"
    )  # the one that was named
    assert socket.gethostname() in out
    assert Tokens(32 * b"s").of(STEER) in out
    assert Tokens(32 * b"s").of(WATCH) in err
    assert "Without --certificate" in err
    assert served[1].state.access.hosts.allow("box:1")
    assert [run.name for run in served[1].state.watcher.runs.all()] == ["try1"]
    for one in served:
        one.socket.close()
    assert not closed


@pytest.mark.parametrize("typed", [False, True])
def test_passwords_of_the_environment_alone_are_enough(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: bool
) -> None:
    served = list[serving.Served]()
    monkeypatch.setattr(serving.Served, "run", lambda self: served.append(self))
    given = ["--password", "--watch-password"] if typed else []
    for name, other, rights in ((ui.PASSWORD, ui.WATCH_PASSWORD, STEER), (ui.WATCH_PASSWORD, ui.PASSWORD, WATCH)):
        monkeypatch.delenv(other, raising=False)
        monkeypatch.setenv(name, "correct horse")
        option = [text for text in given if (text == "--password") == (name == ui.PASSWORD)]
        assert main(["ui", "--port", "0", "--host", "0.0.0.0", *option]) == 0
        assert served[-1].state.access.rights_of_password("correct horse") == rights
        assert served[-1].state.access.rights_of_password("battery staple") == frozenset()
        served[-1].socket.close()
    monkeypatch.setenv(ui.PASSWORD, "battery staple")
    assert main(["ui", "--port", "0", "--no-steering"]) == 0
    assert served[-1].state.access.rights_of_password("battery staple") == PLAY
    assert served[-1].state.access.rights_of_password("correct horse") == WATCH
    served[-1].socket.close()
    capsys.readouterr()


# ---------------------------------------------------------------------------------------------- real servers


def opener(context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    handlers: list[Any] = [urllib.request.HTTPCookieProcessor(CookieJar()), urllib.request.ProxyHandler({})]
    return urllib.request.build_opener(*handlers, urllib.request.HTTPSHandler(context=context))


def home_of(browser: urllib.request.OpenerDirector, link: str) -> str:
    """Where a link leads, up to the path below which the cookie is sent."""
    with browser.open(link, timeout=60) as page:
        return str(page.url).partition("#")[0]


def wait_for(answer: Any) -> Any:
    for _ in range(600):
        if found := answer():
            return found
        time.sleep(0.1)
    raise AssertionError("it never came")


class Told(NullObserver):
    def __init__(self) -> None:
        self.texts = list[str]()

    def message(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.slow
def test_the_page_beside_a_run_ends_with_it_and_the_run_goes_on_without_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = synthetic.write(here / "elsewhere" / "try1", generations=1)
    told = Told()
    with open_page(told, wanted=True) as (observer, page):
        assert page is not None
        observer.run_started(synthetic.info(folder))
        assert told.texts == [f"the page of this run: {page.link}"]
        browser = opener()
        assert b'"try1"' in browser.open(f"{home_of(browser, page.link)}api/runs", timeout=60).read()
        process = page._process
        assert process is not None
        assert os.getsid(process.pid) != os.getsid(0)
        process.kill()
        wait_for(lambda: not page.is_running)
        observer.message("the run goes on")
    secret = "as `ludus ui` takes it, at least 32 characters"
    monkeypatch.setenv(ui.SECRET, secret)
    with open_page(told, wanted=True) as (observer, page):
        assert page is not None
        observer.run_started(synthetic.info(folder))
        process = page._process
        assert process is not None
        assert page.is_running
        assert page.link.endswith(f"token={Tokens(secret.encode()).of(STEER)}")
    assert process.returncode == 0  # it was told, and ended by itself
    with open_page(told, wanted=False) as (observer, none):
        assert (observer, none) == (told, None)


@pytest.mark.slow
def test_a_server_ends_at_ctrl_c_whoever_looks(here: Path) -> None:
    synthetic.write(here / "runs" / "try1", generations=1)
    line = [sys.executable, "-c", _COMMAND, "ui", "--no-open", "--port", "0"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here)
    assert process.stdout is not None
    link = process.stdout.readline().strip()
    browser = opener()
    stream = browser.open(f"{home_of(browser, link)}api/live", timeout=60)
    assert stream.readline() == b"retry: 2000\n"
    process.send_signal(2)
    rest = stream.read().decode()
    assert rest.endswith("event: bye\ndata: {}\n\n")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (0, False)


@pytest.mark.slow
def test_tls(here: Path) -> None:
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names]
    try:
        subprocess.run([*make, "-keyout", "key.pem", "-out", "cert.pem"], check=True, capture_output=True, cwd=here)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    synthetic.write(here / "runs" / "try1", generations=1)
    given = ["--host", "localhost", "--certificate", "cert.pem", "--key", "key.pem"]
    line = [sys.executable, "-c", _COMMAND, "ui", "--no-open", "--port", "0", *given]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here)
    try:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        assert link.startswith("https://localhost:")
        browser = opener(ssl.create_default_context(cafile=str(here / "cert.pem")))
        assert b'"try1"' in browser.open(f"{home_of(browser, link)}api/runs", timeout=60).read()
    finally:
        process.send_signal(2)
        process.communicate(timeout=60)
