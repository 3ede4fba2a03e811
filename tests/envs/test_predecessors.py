"""The page about other systems' environments: every id that it names is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ludus.envs.families import FAMILIES
from ludus.envs.registry import list_envs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "environments" / "predecessors.md"
NEEDS_MORE = (
    "mlagents/",
    "smac/",
    "gymnasium/gym_super_mario_bros:",
)  # packages that cannot be here; tests of their families play stand-ins


@pytest.mark.slow
def test_every_id_is_known() -> None:
    ids = set(re.findall(r"`([a-z][a-z0-9]*/[^`\s]+)`", PAGE.read_text()))
    assert len(ids) > 80
    wrong = set()
    listed: dict[str, set[str]] = {}
    for id in ids - {"gymnasium/ID", "mlagents/PATH"}:
        family = id.partition("/")[0]
        if id.startswith(NEEDS_MORE):
            continue
        if family not in FAMILIES:
            wrong.add(id)
        elif FAMILIES[family].installed or family == "smacv2":
            if family not in listed:
                listed[family] = set(_listed(family))
            wrong |= {id} - listed[family]
    assert wrong == set()
    assert {"openspiel", "gymnasium", "pettingzoo", "mpe2"} <= set(listed)


def _listed(family: str) -> list[str]:
    if family == "smacv2":  # lists what was published, with or without its package
        from ludus.contrib.envs.smacv2 import names

        return [f"smacv2/{name}" for name in names()]
    return list_envs(family)
