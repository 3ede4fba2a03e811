"""What resets and steps of environments return, and what is said where it is something else. Looked at where something went wrong, and
after resets: steps are not slowed down."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ludus.core.errors import EnvError, LudusError
from ludus.core.packages import missing_package
from ludus.envs.python_vector import ONE_NUMBER, ContractViolation

RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")
RESET_ALL = ("observations", "infos")
STEP_ALL = ("observations", "rewards", "terminations", "truncations", "infos")
TRUTHS = frozenset((bool, np.bool_))  # what needs no second look
_SHOWN = 60  # characters of a value in a message


def check_answer(call: str, answer: Any, names: Sequence[str]) -> None:
    """Raise ContractViolation for an answer that is no tuple of these. call: "reset" or "step"."""
    if not isinstance(answer, tuple | list) or len(answer) != len(names):
        description = f"{len(answer)} values" if isinstance(answer, tuple) else _short(answer)
        raise ContractViolation(f"returned {description} from {call}; expected the tuple ({', '.join(names)})")


def check_mapping(call: str, value: Any, name: str, *, names: Sequence[str]) -> None:
    """Raise ContractViolation for something that should be a mapping, and is none. names: what the whole answer consists of."""
    if not isinstance(value, Mapping):
        raise ContractViolation(
            f"returned the {name} {_short(value)} from {call}; expected a mapping, as in the tuple ({', '.join(names)})"
        )


def check_mappings(call: str, answer: Any, names: Sequence[str]) -> None:
    """Raise ContractViolation for an answer that is no tuple of mappings of agents."""
    check_answer(call, answer, names)
    for value, name in zip(answer, names, strict=True):
        check_mapping(call, value, name, names=names)


def read_rewards(rewards: Mapping[Any, Any], seats: Any, *, acted: Iterable[Any] = ()) -> list[tuple[int, Any]]:
    """Return (index, reward) of the seats that earned something; None, say, is no reward and becomes a flaw. Raises ContractViolation if
    an agent that acted has no reward, not even 0, and for a reward of several numbers."""
    for agent in acted:
        if agent not in rewards:
            raise ContractViolation(
                f"gave no reward for the agent {agent!r}, which acted; expected one for each agent that did, 0 too"
            )
    try:
        return [(seats[agent].index, reward) for agent, reward in rewards.items() if reward != 0]
    except ValueError:  # several numbers are not 0 or not
        agent, reward = next(pair for pair in rewards.items() if np.size(pair[1]) != 1)
        raise ContractViolation(f"gave agent {seats[agent].name!r} the reward {_short(reward)}; {ONE_NUMBER}") from None


def check_flags(terminated: Any, truncated: Any) -> None:
    """Raise ContractViolation for an end that is no truth: [False] and "no", say, count as true."""
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if value.__class__ not in TRUTHS and not _is_flag(value):
            raise ContractViolation(f"returned {name}={_short(value)} from step; expected true or false")


def check_ends(terminations: Mapping[Any, Any], truncations: Mapping[Any, Any]) -> None:
    """Raise ContractViolation for an agent's end that is no truth."""
    if TRUTHS.issuperset(map(type, terminations.values())) and TRUTHS.issuperset(map(type, truncations.values())):
        return
    for name, ends in (("terminations", terminations), ("truncations", truncations)):
        for agent, value in ends.items():
            if not _is_flag(value):
                raise ContractViolation(
                    f"gave the agent {agent!r} {_short(value)} in its {name}; expected true or false"
                )


def _is_flag(value: Any) -> bool:
    """Whether it is one truth, or a whole number that stands for it."""
    return (
        not isinstance(value, list | tuple | Mapping) and np.size(value) == 1 and np.asarray(value).dtype.kind in "biu"
    )


def one_flag(value: Any, name: str) -> bool:
    """Whether an episode ended, of a flag, or of one flag per agent if they agree. Raises ContractViolation for anything else."""
    flags = np.asarray(list(value.values()) if isinstance(value, Mapping) else value)
    if flags.dtype.kind not in "biu" or not flags.size:
        raise ContractViolation(f"returned {name}={_short(value)} from step; expected true or false")
    if flags.any() != flags.all():
        raise ContractViolation(
            f"returned {name}={_short(value)} from step; expected one end for all agents (PettingZoo's interface is for those that "
            "leave one by one)"
        )
    return bool(flags.any())


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


# --------------------------------------------------------------------------------------------------------------------
# What is said where an environment cannot draw itself.

_SCREEN = re.compile(r"display|screen|window|opengl|egl|glx|x server|gl context", re.IGNORECASE)
_VIRTUAL = " Without a screen, run the command under `xvfb-run -a`, which starts a virtual one."
_MUJOCO = " Without a screen, MuJoCo draws with MUJOCO_GL=egl in the environment of the command."


def call_renderer(id: str, draw: Callable[[], Any]) -> Any:
    """Return what `draw` gives. Raises EnvError with advice where there is no screen, ConfigError with what to install for a missing
    package."""
    try:
        return draw()
    except LudusError:
        raise
    except (Exception, SystemExit) as error:
        if _missing(error):
            raise missing_package(f"drawing {id}", error) from error
        message = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".")
        advice = "" if not _SCREEN.search(message) else _MUJOCO if "mjr_" in message else _VIRTUAL
        raise EnvError(f"{id} cannot be drawn: {message}.{advice}") from error


def _missing(error: BaseException | None) -> bool:
    """Whether a module was missing, whatever was made of that."""
    while error is not None:
        if isinstance(error, ImportError):
            return True
        error = error.__cause__
    return False
