"""`gymnasium.vector.VectorEnv` of one player: the opponents of all environments answer in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ludus.apps.interfaces.gymnasium_env import (
    MASK,
    RENDER_FPS,
    check_render_mode,
    picture_in_mode,
    render_modes,
    seed_key,
)
from ludus.apps.interfaces.opponents import Opponents
from ludus.apps.interfaces.player_games import IllegalActions, Player, environment_of, games_of
from ludus.core.errors import ConfigError, EnvError
from ludus.core.trust import trusting
from ludus.core.types import Array
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED

_SEED_BITS = 63
_MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}


def autoreset_mode_of(mode: str | AutoresetMode) -> AutoresetMode:
    """Return Gymnasium's mode. Raises ConfigError for none."""
    if isinstance(mode, AutoresetMode):
        return mode
    if (known := _MODES.get(mode)) is not None:
        return known
    if mode in (values := [one.value for one in AutoresetMode]):
        return AutoresetMode(mode)
    raise ConfigError(
        f"autoreset_mode={mode!r} was given; expected one of {', '.join(_MODES)}, or {', '.join(values)}."
    )


class GymnasiumVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """One player's side of E environments, with the interface of Gymnasium's vectors. `ludus.gymnasium_vector_env` makes it, and has its
    arguments.

    `info["action_mask"]`, int8[E, width], and `action_masks()` are the legal actions, where there are masks. `info["returns"]` float64[E,
    P] and `info["length"]` are of the episodes that ended in a step, with SAME_STEP within `info["final_info"]`.

    Attributes:
        games: What plays.
    """

    def __init__(
        self,
        env: Any = None,
        *,
        num_envs: int,
        player: Player = 0,
        opponents: Opponents = "random",
        seed: int | None = None,
        illegal_actions: IllegalActions = "random",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        trust: bool = False,
        **options: Any,
    ) -> None:
        mode = autoreset_mode_of(autoreset_mode)
        with trusting(trust):
            settings = environment_of(env, opponents, options)
            check_render_mode(render_mode, settings)
            self.games = games_of(
                settings,
                num_envs,
                player=player,
                opponents=opponents,
                illegal_actions=illegal_actions,
                rendering=render_mode is not None,
            )
        self.num_envs, self.render_mode = num_envs, render_mode
        self.autoreset_mode = mode
        self.metadata = {
            "render_modes": render_modes(settings),
            "render_fps": RENDER_FPS,
            "autoreset_mode": mode,
        }
        self.single_observation_space = self.games.observation_space
        self.single_action_space = self.games.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._first_seed, self._seeded = seed, False
        self._everyone = np.arange(num_envs)
        self._over = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: Of environment 0, of which environment e has the e-th next; or one for each. The same as `GymnasiumEnv.reset(seed=…)`.
            options: `reset_mask` bool[E]: which environments; default: all.

        Returns:
            (observations, infos).
        """
        if seed is None and not self._seeded:
            seed = self._first_seed
        super().reset(seed=seed if isinstance(seed, int) else None)
        chosen = self._chosen(options)
        self._seed(seed, chosen)
        self.games.begin(chosen)
        self._over[chosen] = False
        return self.games.observation.copy(), self._infos()

    def step(
        self, actions: Array
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Act in all environments, and play until the player is due again or the episode is over.

        With NEXT_STEP, the action of an environment whose episode was over is ignored: its next one begins.

        Args:
            actions: In `action_space`.

        Returns:
            (observations, rewards float32[E], terminations, truncations, infos).

        Raises:
            EnvError: The actions are none, or with DISABLED, an episode is over.
        """
        games, actions = self.games, np.asarray(actions)
        if len(actions) != self.num_envs:
            raise EnvError(f"{len(actions)} actions were given for {self.num_envs} environments; one each is needed.")
        if self._over.any():
            if self.autoreset_mode == AutoresetMode.DISABLED:
                raise EnvError(
                    f"the episode of environment {self._over.argmax()} is over; reset it by options={{'reset_mask': …}}."
                )
            acting, begun = np.flatnonzero(~self._over), np.flatnonzero(self._over)
            games.play(acting, actions[acting], begun)
        else:
            games.play(self._everyone, actions, self._everyone[:0])
        rewards = games.reward.astype(np.float32)
        terminations, truncations = games.over == TERMINATED, games.over == TRUNCATED
        self._over = games.over != GOES_ON
        infos: dict[str, Any] = {}
        if games.illegal.any():
            infos["illegal_action"], infos["_illegal_action"] = games.illegal.copy(), games.illegal.copy()
        if self._over.any():
            self._end(infos)
        return games.observation.copy(), rewards, terminations, truncations, self._infos(infos)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the legal actions, bool[E, width].

        Raises:
            EnvError: The action space has no masks.
        """
        if self.games.mask is None:
            raise EnvError(f"{self.games.spec.id} acts in {self.single_action_space}, which has no masks.")
        return self.games.mask.copy()

    def opponents(self) -> list[dict[int, str]]:
        """Return who plays the other players of each environment in its present episode, by player."""
        return [self.games.opponents(e) for e in range(self.num_envs)]

    def render(self) -> tuple[Any, ...] | None:
        """Return what each environment shows; None without a render mode.

        Raises:
            EnvError: They cannot be rendered so.
        """
        mode = self.render_mode
        if mode is None:
            return None
        return tuple(picture_in_mode(self.games.render(e), mode, self.games.spec.id) for e in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Release the environments."""
        self.games.close()

    def _chosen(self, options: Mapping[str, Any] | None) -> NDArray[np.int64]:
        mask = None if options is None else options.get("reset_mask")
        if mask is None:
            return self._everyone
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise EnvError(
                f"reset_mask={mask!r} was given; expected bool[{self.num_envs}] with at least one environment to reset."
            )
        return np.flatnonzero(mask)

    def _seed(self, seed: int | Sequence[int | None] | None, chosen: NDArray[np.int64]) -> None:
        if isinstance(seed, int | np.integer):
            seeds: list[int | None] = [int(seed) + e for e in range(self.num_envs)]
        elif seed is not None:
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        elif self._seeded:
            return
        else:
            seeds = [None] * self.num_envs
            chosen = self._everyone
        first = not self._seeded
        random_keys = (
            self.np_random.integers(2**_SEED_BITS, size=self.num_envs).tolist() if None in seeds and first else []
        )
        named = [e for e in (range(self.num_envs) if first else chosen.tolist()) if random_keys or seeds[e] is not None]
        keys = [random_keys[e] if (one := seeds[e]) is None else seed_key(one) for e in named]
        self.games.seed(np.array(named, np.int64), np.array(keys, np.uint64))
        self._seeded = True

    def _end(self, infos: dict[str, Any]) -> None:
        """Note what has ended; with SAME_STEP, begin the next episodes."""
        games, over = self.games, self._over
        final = {
            "returns": np.where(over[:, None], games.returns, 0.0),
            "_returns": over.copy(),
            "length": np.where(over, games.length, 0),
            "_length": over.copy(),
        }
        if self.autoreset_mode != AutoresetMode.SAME_STEP:
            infos.update(final)
            return
        ended = np.flatnonzero(over)
        observations = np.full(self.num_envs, None, dtype=object)
        for e, row in zip(ended.tolist(), games.observation[ended], strict=True):
            observations[e] = row
        if MASK in (masks := self._infos()):
            final |= {MASK: masks[MASK] * over[:, None], f"_{MASK}": over.copy()}
        infos.update(final_obs=observations, _final_obs=over.copy(), final_info=final, _final_info=over.copy())
        games.begin(ended)
        self._over = np.zeros(self.num_envs, np.bool_)

    def _infos(self, infos: dict[str, Any] | None = None) -> dict[str, Any]:
        infos = {} if infos is None else infos
        if self.games.mask is not None and self.games.masked:
            infos[MASK] = self.games.mask.astype(np.int8)
            infos[f"_{MASK}"] = np.ones(self.num_envs, np.bool_)
        return infos
