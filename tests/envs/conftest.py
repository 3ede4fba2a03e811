from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ludus.envs.processes.vector import SubprocessVectorEnv


@pytest.fixture
def made() -> Iterator[Callable[..., SubprocessVectorEnv]]:
    """Makes vectors in subprocesses that are closed after the test."""
    vectors: list[SubprocessVectorEnv] = []

    def make(*arguments: Any, **options: Any) -> SubprocessVectorEnv:
        vectors.append(SubprocessVectorEnv(*arguments, **options))
        return vectors[-1]

    yield make
    for vector in vectors:
        vector.close()
