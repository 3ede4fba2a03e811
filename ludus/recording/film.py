"""What an environment shows while it is played.

A `Filmed` vector of one environment is played by the rollout worker, as in an evaluation; it keeps a picture of every state, or the moves
from which OpenSpiel's episodes are told again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus import seeding
from ludus.envs.base import VectorEnv
from ludus.envs.wrappers.base import Wrapper
from ludus.envs.wrappers.registry import wrap
from ludus.errors import EnvError, LudusError, ScenarioError
from ludus.policies.base import Policy
from ludus.recording.pictures import Pictures
from ludus.rollout.base import RolloutOrder
from ludus.rollout.draws import mixture_refs
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.types import Array, Mixture, PolicyRef, Timestep

MOST_STEPS = 1000
MOST_PIXELS = 10**9  # of all images together; a GIF takes about a byte of memory for each while it is written
_OPENSPIEL = "openspiel/"

Tell = Callable[[int, int], None]
"""(number of the episode, its steps so far); called after each step."""
Shown = Callable[[bool], None]
"""Called once, before the first step, with whether the environment shows itself as text; it may raise what is wrong with that."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Episodes that were played, one after the other.

    frames: images uint8[height, width, 3], the state after each reset and each step; empty where the environment shows itself as text.
    text: what it shows then. returns: float64[n, P] of the n whole episodes. length: int32[n], their steps. cut: why the last episode was
    not played to its end, and is not in `returns`; "" if all were.
    """

    frames: Sequence[NDArray[np.uint8]]
    text: str
    returns: NDArray[np.float64]
    length: NDArray[np.int32]
    cut: str = ""


class _Full(Exception):
    """As much as was wanted, or as can be kept; the message says so."""


class Filmed(Wrapper):
    """A vector of one environment that keeps what it shows. steps: of an episode, then `_Full` is raised."""

    def __init__(self, env: VectorEnv, *, steps: int, tell: Tell | None = None, shown: Shown | None = None) -> None:
        super().__init__(env, env.spec)
        if env.num_envs != 1:
            raise EnvError(f"{env.num_envs} environments were given to be recorded; one is needed.")
        self.frames = Pictures()
        self.texts: list[str] = []
        self.episode = 0
        self._replays = env.spec.id.startswith(_OPENSPIEL)
        self._seed = 0
        self._moves: list[int] = []
        self._length, self._most, self._tell, self._shown = 0, steps, tell, shown

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`."""
        self._seed, self._moves, self._length = int(seeds[0]), [], 0
        return super().reset(seeds, episodes=episodes)

    def end(self) -> None:
        """An episode is over, or is to be: tell what cannot be shown as it goes."""
        if self._replays:
            from ludus.envs.openspiel_replay import replay

            self.texts.append(replay(self.spec.id, self._moves, seed=self._seed))
        self.episode += 1

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        if self._length >= self._most:
            raise _Full(f"cut after {self._most} steps")
        if self.frames.pixels >= MOST_PIXELS:
            raise _Full(f"cut after {len(self.frames)} images, which are as many as one file is to have")
        self._length += 1
        if self._replays:
            several = sum(len(given) > 0 for given in actions) > 1
            chosen = (int(given[0]) if len(given) else -1 for given in actions)
            self._moves += [action for action in chosen if several or action >= 0]
        return actions

    def _see(self, timestep: Timestep) -> Timestep:
        if not self._replays:
            self._show()
        if self._shown is not None:
            self._shown(not self.frames)
            self._shown = None
        if self._tell is not None:
            self._tell(self.episode, self._length)
        return timestep

    def _show(self) -> None:
        try:
            shown: object = self.render(0)
        except LudusError:
            raise
        except Exception as error:
            raise EnvError(f"{self.spec.id} could not be rendered: {type(error).__name__}: {error}") from error
        if isinstance(shown, str):
            self.texts.append(f"episode {self.episode}, step {self._length}\n{shown.rstrip()}\n")
            return
        image = np.asarray(shown)
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise EnvError(
                f"{self.spec.id} rendered {image.dtype}{list(image.shape)}; an image uint8[height, width, 3] or text is needed."
            )
        self.frames.append(image)


def record(
    env: VectorEnv,
    players: Mixture | Sequence[Policy],
    policy: Callable[[PolicyRef], Policy] | None = None,
    *,
    episodes: int = 1,
    seed: int = 0,
    steps: int = MOST_STEPS,
    wrappers: Sequence[Mapping[str, object]] = (),
    tell: Tell | None = None,
    shown: Shown | None = None,
) -> Recording:
    """Play `episodes` episodes in `env`, a vector of one environment that can render, and keep what it shows. Closes it in the end.

    players: one policy per player, or a mixture from which each episode's are drawn, with `policy` to find them by their refs.
    steps: of an episode at most; a longer one is cut, and the last, as is one that would take the images beyond `MOST_PIXELS`.
    wrappers: put around the filmed environment, for policies that were trained with them. Raises EnvError if the environment cannot be
    rendered, and whatever playing raises.
    """
    if episodes < 1 or steps < 1:
        raise ScenarioError(f"episodes={episodes}, steps={steps} were given to be recorded; at least 1 is needed.")
    filmed = Filmed(env, steps=steps, tell=tell, shown=shown)
    mixture, find = _players(players, policy)
    played = wrap(filmed, wrappers)
    try:
        worker = RolloutWorker(played, LocalBank(played.spec, played.num_envs))
        policies = [(ref, find(ref)) for ref in mixture_refs(mixture)]
        returns, length = [], []
        cut = ""
        while filmed.episode < episodes and not cut:
            order = RolloutOrder(
                learner=None,
                seats=(),
                opponents=mixture,
                unit="episodes",
                amount=1,
                seed=seeding.key(seed, "record", filmed.episode),
            )
            try:
                found = worker.play(order, policies).episodes
            except _Full as full:
                cut = str(full)
            else:
                returns.append(found.returns)
                length.append(found.length)
            filmed.end()
    finally:
        played.close()
    return Recording(
        filmed.frames,
        "\n".join(filmed.texts),
        np.concatenate(returns) if returns else np.empty((0, played.spec.num_players)),
        np.concatenate(length) if length else np.empty(0, np.int32),
        cut,
    )


def _players(
    players: Mixture | Sequence[Policy], policy: Callable[[PolicyRef], Policy] | None
) -> tuple[Mixture, Callable[[PolicyRef], Policy]]:
    if isinstance(players, Mixture):
        if policy is None:
            raise ScenarioError("a mixture was given to be recorded without `policy`, which finds its policies.")
        return players, policy
    known = {PolicyRef(p, f"player_{p}"): given for p, given in enumerate(players)}
    mixture = Mixture.product({ref.population: ([ref], [1.0]) for ref in known})
    return mixture, known.__getitem__
