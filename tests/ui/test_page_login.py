"""The page that asks for a password, by the keyboard alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import synthetic_run as synthetic
from page_tools import Server

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
