"""The page that asks for a password, by the keyboard alone."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import synthetic_run as synthetic
from page_tools import Server

from ludus.runs.control import Status, write_live_file
from ludus.storage.run_dirs import RunLock

pytestmark = pytest.mark.slow


def test_a_password_typed_wrong_and_right(browser: Any, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    synthetic.write(root / "try1", generations=1)
    (tmp_path / "password").write_text("correct horse\n")
    with (
        Server(root, options=("--password-file", str(tmp_path / "password"))) as server,
        browser.new_context() as context,
    ):
        page, messages = context.new_page(), list[str]()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(f"http://127.0.0.1:{server.port}/")
        assert page.get_by_label("Password").evaluate("(node) => node === document.activeElement")
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        page.get_by_role("alert").filter(has_text="This is not a password").wait_for()
        page.keyboard.type("correct horse")  # in the place of what was selected
        page.keyboard.press("Enter")
        page.get_by_role("link", name="try1").wait_for()
        assert all("401" in message for message in messages), messages
        assert len(messages) == 1
        assert page.evaluate("document.cookie") == ""


def test_the_password_for_watching_opens_a_page_that_only_watches(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs"
    folder = synthetic.write(root / "try1", generations=1, finished=False)
    write_live_file(folder, Status("s", socket.gethostname(), 1, "0.1.0", began=0.0, written=0.0))
    monkeypatch.setenv("LUDUS_UI_PASSWORD", "correct horse")
    monkeypatch.setenv("LUDUS_UI_WATCH_PASSWORD", "battery staple")
    with RunLock(folder), Server(root) as server:
        for password, steers in (("battery staple", False), ("correct horse", True)):
            with browser.new_context() as context:
                page = context.new_page()
                page.goto(f"http://127.0.0.1:{server.port}/")
                page.keyboard.type(password)
                page.keyboard.press("Enter")
                page.get_by_role("link", name="try1").click()
                page.get_by_role("heading", name="try1", level=1).wait_for()
                assert page.get_by_role("group", name="Steering").is_visible() == steers
                assert page.get_by_role("link", name="People").is_visible() == steers
                sent = "fetch('api/runs/x/order', {method: 'POST', headers: {'X-Ludus': '1', 'Content-Type': 'application/json'}, "
                status = page.evaluate(f'{sent} body: \'{{"do": "stop"}}\'}}).then(r => r.status)')
                assert status == (404 if steers else 403)  # there is no run x
