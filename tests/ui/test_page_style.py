"""The page's style sheet: no rule of a class that nothing has."""

from __future__ import annotations

import re
from pathlib import Path

from ludus.apps import ui

PAGE = Path(ui.__file__).parent / "page"
NUMBERED = re.compile(r"p[0-7]|on1")
"""Classes of a player, which the modules put together."""
OF_UPLOT = {"u-select", "u-cursor-x"}
OF_A_PART = {"alive", "busy", "silent", "dead"}
"""States of `ludus.runtime.base.PartState`."""


def test_each_class_is_in_a_module() -> None:
    rules = re.sub(r"/\*.*?\*/", "", (PAGE / "style.css").read_text(encoding="utf-8"), flags=re.DOTALL)
    classes = {
        name for selector in re.findall(r"([^{}]+)\{", rules) for name in re.findall(r"\.([A-Za-z_][\w-]*)", selector)
    }
    text = "".join(path.read_text(encoding="utf-8") for path in PAGE.glob("*.[jh]*") if path.name != "uplot.js")
    unused = classes - set(re.findall(r"[A-Za-z_][\w-]*", text)) - OF_UPLOT - OF_A_PART
    assert [name for name in sorted(unused) if not NUMBERED.fullmatch(name)] == []
