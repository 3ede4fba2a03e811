"""What a user's object itself answers: its `step` and `observe` are listened to while a vector plays it.

Ludus copies and converts what it is answered. What is wrong before that is wrong for
other programs, and often a sign of a fault after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ludus.testing.detector.finding import Finding
from ludus.testing.detector.session import Session
from ludus.testing.ledger import Actor

BUFFERS, DTYPES, VECTORS, DEAD, AFTER, VIEWS = (
    "own buffers",
    "dtypes",
    "vector rewards",
    "agents that are gone",
    "steps after the end",
    "views",
)
_STEPS = 60
_EPISODES = 4


class Spy:
    """Listens to one object with Gymnasium's or PettingZoo's interface.

    Attributes:
        findings: By check, the first of each.
        episode: Number of episodes that began before.
        step: Steps of the present episode.
    """

    def __init__(self, game: Any, seed: int) -> None:
        self.findings: dict[str, Finding] = {}
        self.episode, self.step = 0, 0
        self._game, self._seed = game, seed
        self._answers: list[tuple[str, Any, Any]] = []  # (where it was answered, an array, a copy of it)
        self._dead: set[Any] = set()
        self._probed = False  # whether a step after an end was tried
        self._aec = callable(getattr(game, "observe", None)) and callable(getattr(game, "last", None))
        self._several = hasattr(game, "possible_agents")
        self._step, self._reset = game.step, game.reset
        game.step, game.reset = self.on_step, self.on_reset
        if self._aec:
            self._observe = game.observe
            game.observe = self.on_observe

    def release(self) -> None:
        """Stop to listen."""
        for name in ("step", "reset", "observe"):
            with suppress(AttributeError):
                delattr(self._game, name)

    # ------------------------------------------------------------------------------------------ what is listened to

    def on_reset(self, *args: Any, **options: Any) -> Any:
        """Reset, and note what it answers."""
        answer = self._reset(*args, **options)
        self._compare()
        self._answers.clear()
        self._dead.clear()
        self.episode, self.step = self.episode + 1, 0
        if isinstance(answer, tuple) and answer:
            self._note(answer[0])
        return answer

    def on_step(self, action: Any) -> Any:
        """Step, and note what it answers."""
        alive = list(getattr(self._game, "agents", ()))
        answer = self._step(action)
        self.step += 1
        self._compare()
        if self._aec and action is not None:  # with None the dead leave
            self._check_dead(getattr(self._game, "rewards", {}), alive)
        elif isinstance(answer, tuple) and len(answer) == 5:
            self._hear(action, alive, answer)
        return answer

    def on_observe(self, agent: Any) -> Any:
        """Observe, and note it."""
        observation = self._observe(agent)
        self._note({agent: observation})
        if agent == getattr(self._game, "agent_selection", None) and VIEWS not in self.findings:
            with suppress(Exception):  # `last` is not needed for anything else
                self._check_view(agent, observation)
        return observation

    # ------------------------------------------------------------------------------------------ what is checked

    def _hear(self, action: Any, alive: list[Any], answer: tuple[Any, ...]) -> None:
        observation, rewards, terminated, truncated, _ = answer
        self._note(observation)
        if self._several:
            self._check_dead(rewards, alive)
            for agent, reward in rewards.items():
                self._check_reward(agent, reward)
            return
        if not isinstance(observation, tuple | list):  # of several agents
            self._check_reward("agent", rewards)
        if terminated is True and not truncated and not self._probed:
            self._probed = True
            self._step_again(action)

    def _check_reward(self, agent: Any, reward: Any) -> None:
        if np.ndim(reward) > 0 and np.size(reward) > 1:
            self._report(
                VECTORS,
                "error",
                f"rewards are vectors of {np.size(reward)} numbers, and Ludus takes one number.",
                "Give their weighted sum; names and values of the parts may be `info['statistics']`.",
                agent=str(agent),
                reward=np.ravel(reward).tolist(),
            )

    def _check_dead(self, rewards: Mapping[Any, Any], alive: Sequence[Any]) -> None:
        """Look for rewards of agents that were dead before the step."""
        if isinstance(rewards, Mapping):
            for agent, reward in rewards.items():
                if agent in self._dead and np.size(reward) == 1 and float(np.ravel(reward)[0]) != 0:
                    self._report(
                        DEAD,
                        "warning",
                        f"agent {agent!r} had left, and the step's rewards have {float(np.ravel(reward)[0]):g} for it.",
                        "Pay an agent until the step in which it ends, and leave it out of `rewards` afterwards.",
                        agent=str(agent),
                        reward=float(np.ravel(reward)[0]),
                    )
        now = set(getattr(self._game, "agents", ()))
        self._dead |= set(alive) - now
        self._dead -= now

    def _step_again(self, action: Any) -> None:
        with suppress(Exception):  # it refuses
            _, reward, terminated, truncated, _ = self._step(action)
            if not (terminated or truncated):
                self._report(
                    AFTER,
                    "note",
                    f"a step after its end continues as if nothing had ended (reward {reward}).",
                    "Raise, or answer `terminated` again; Ludus never makes such a step.",
                    reward=str(reward),
                )

    def _check_view(self, agent: Any, observation: Any) -> None:
        other = self._game.last()[0]
        if not _equal(observation, other):
            self._report(
                VIEWS,
                "error",
                f"`last()` shows the agent in turn, {agent!r}, something else than `observe` does.",
                "Let `observe(agent)` depend on its argument, and `last` answer `observe(agent_selection)`.",
                agent=str(agent),
            )

    def _compare(self) -> None:
        """Look whether arrays that were answered before have changed."""
        for where, array, copy in self._answers:
            if not np.array_equal(array, copy, equal_nan=array.dtype.kind == "f"):
                at = int(np.flatnonzero(np.ravel(array) != np.ravel(copy))[0])
                self._report(
                    BUFFERS,
                    "warning",
                    "an observation that it had answered changed when it stepped on: it answers one buffer again and again.",
                    "Answer a copy. Ludus copies observations itself; programs that hold them learn from the wrong ones.",
                    observation=where,
                    entry=at,
                    values=[float(np.ravel(copy)[at]), float(np.ravel(array)[at])],
                )
                break
        del self._answers[:-16]

    def _note(self, observation: Any) -> None:
        spaces = getattr(self._game, "observation_space", None)
        for path, array in _arrays(observation):
            if array.dtype.kind in "biuf":
                self._answers.append((f"of step {self.step}{path}", array, array.copy()))
        if isinstance(observation, np.ndarray) and not callable(spaces):
            declared = getattr(spaces, "dtype", None)
            if declared is not None and np.dtype(declared) != observation.dtype:
                self._report(
                    DTYPES,
                    "note",
                    f"observations are {observation.dtype}, and their space is {np.dtype(declared)}.",
                    "Answer what the space says; Ludus converts it.",
                )

    def _report(self, check: str, severity: Any, sentence: str, advice: str, **evidence: Any) -> None:
        place = {"seed": self._seed, "episode": self.episode - 1, "step": self.step, **evidence}
        self.findings.setdefault(check, Finding(check, severity, sentence, advice, place))


def listen(session: Session) -> Iterator[Finding]:
    """Yield what is wrong in the answers of the first environment's own object."""
    seeds = session.seeds("spy")
    timestep = session.env.reset(seeds)
    game: Any = None if session.python is None else session.game()
    if not all(callable(getattr(game, name, None)) for name in ("step", "reset")):
        return
    try:
        spy = Spy(game, session.reset_seed(int(seeds[0])))
    except (AttributeError, TypeError):  # it has no place for attributes
        return
    actor = Actor(session.spec, seeds)
    try:
        timestep = session.env.reset(seeds)
        while session.left() and (spy.step < _STEPS or spy.episode <= 1) and spy.episode <= _EPISODES:
            timestep = session.env.step(actor.actions(timestep))
    except Exception:  # noqa: BLE001  the recording has it
        session.renew()
    else:
        spy.release()
    yield from spy.findings.values()


def _arrays(value: Any, path: str = "") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _arrays(one, f"{path}, {key}")
    elif isinstance(value, tuple | list):
        for k, one in enumerate(value):
            yield from _arrays(one, f"{path}, {k}")


def _equal(one: Any, other: Any) -> bool:
    pairs: Callable[[Any], dict[str, Any]] = lambda value: dict(_arrays(value))  # noqa: E731
    a, b = pairs(one), pairs(other)
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key], equal_nan=a[key].dtype.kind == "f") for key in a)
