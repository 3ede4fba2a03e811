"""Packages that not everybody installs."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def require(package: str, reason: str = "") -> None:
    """Skips the test file of a package that is not there. It is not imported for that: every process collects every file, and some take
    seconds."""
    if find_spec(package) is None:
        pytest.skip(reason or f"{package} is not installed", allow_module_level=True)
