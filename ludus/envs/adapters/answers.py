"""What resets and steps of environments return, and what is said where it is something else. Looked at where something went wrong, and
after resets: steps are not slowed down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ludus.envs.python_loop import Flaw

RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")
RESET_ALL = ("observations", "infos")
STEP_ALL = ("observations", "rewards", "terminations", "truncations", "infos")
_SHOWN = 60  # characters of a value in a message


def check_answer(call: str, answer: Any, names: Sequence[str]) -> None:
    """Raise Flaw for an answer that is no tuple of these. call: "reset" or "step"."""
    if not isinstance(answer, tuple | list) or len(answer) != len(names):
        given = f"{len(answer)} values" if isinstance(answer, tuple) else _short(answer)
        raise Flaw(f"returned {given} from {call}; expected the tuple ({', '.join(names)})")


def check_mapping(call: str, given: Any, name: str) -> None:
    """Raise Flaw for something that should be a mapping, and is none."""
    if not isinstance(given, Mapping):
        raise Flaw(f"returned the {name} {_short(given)} from {call}; expected a mapping")


def check_mappings(call: str, answer: Any, names: Sequence[str]) -> None:
    """Raise Flaw for an answer that is no tuple of mappings of agents."""
    check_answer(call, answer, names)
    for given, name in zip(answer, names, strict=True):
        check_mapping(call, given, name)


def check_flags(terminated: Any, truncated: Any) -> None:
    """Raise Flaw for an end that is no truth: [False], say, counts as true."""
    for name, given in (("terminated", terminated), ("truncated", truncated)):
        if isinstance(given, list | tuple | Mapping) or np.size(given) != 1:
            raise Flaw(f"returned {name}={_short(given)} from step; expected true or false")


def one_flag(given: Any, name: str) -> bool:
    """Whether an episode ended, of a flag, or of one flag per agent if they agree. Raises Flaw for anything else."""
    flags = np.asarray(list(given.values()) if isinstance(given, Mapping) else given)
    if flags.dtype.kind not in "biu" or not flags.size:
        raise Flaw(f"returned {name}={_short(given)} from step; expected true or false")
    if flags.any() != flags.all():
        raise Flaw(
            f"returned {name}={_short(given)} from step; expected one end for all agents (PettingZoo's interface is for those that "
            "leave one by one)"
        )
    return bool(flags.any())


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
