"""What is refused, case by case."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Refusal = tuple[str, dict[str, Any], type[Exception], str]
"""An environment, its options, the error, and a regular expression of what it says."""


def check_refusals(make: Callable[..., Any], cases: Iterable[Refusal]) -> None:
    for name, options, error, message in cases:
        try:
            said = f"made {make(name, **options)}"
        except error as refused:
            said = str(refused)
        assert re.search(message, said), f"{name} {options}: {said}"
