"""`gymnasium.Env` of one player."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ludus.apps.interfaces.opponents import Opponents
from ludus.apps.interfaces.player_games import IllegalActions, PlayerGames, environment_of
from ludus.core import seeding
from ludus.core.errors import ConfigError, EnvError
from ludus.core.trust import trusting
from ludus.envs.config import Environment
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED

MASK = "action_mask"
RENDER_FPS = 4
_ONE = np.zeros(1, np.int64)
_NONE = np.zeros(0, np.int64)
_SEED_BITS = 63


def seed_key(seed: int) -> int:
    """Return the 64-bit key of a seed, which is the same in a single environment and in a vector."""
    return seeding.key(seed, "gymnasium")


def render_modes(settings: Environment) -> list[str]:
    """Return how an environment may show itself."""
    return ["ansi"] if settings.id.startswith("openspiel/") else ["rgb_array", "ansi"]


def check_render_mode(mode: str | None, settings: Environment) -> None:
    """Raise ConfigError for a mode that the environment does not have."""
    known = render_modes(settings)
    if mode is not None and mode not in known:
        raise ConfigError(f"render_mode={mode!r} was given; {settings.id} has {', '.join(known)}.")


def picture_in_mode(picture: NDArray[np.uint8] | str, mode: str, what: str) -> NDArray[np.uint8] | str:
    """Return a picture. Raises EnvError if it is not what the mode says."""
    if isinstance(picture, str) != (mode == "ansi"):
        other = "ansi" if mode == "rgb_array" else "rgb_array"
        raise EnvError(f"{what} does not show itself as {mode}; give render_mode={other!r}.")
    return picture


class GymnasiumEnv(gymnasium.Env[NDArray[Any], Any]):
    """One player's side of any environment, with Gymnasium's interface. `ludus.gymnasium_env` makes it, and has its arguments.

    `info["action_mask"]` and `action_masks()` are the legal actions, where there are masks. The last `info` of an episode has `returns`
    of all players, `length` in steps of the environment, and `opponents`, by player. A copy, or a pickle, is a new environment of the
    same arguments.

    Attributes:
        games: What plays.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"]}  # noqa: RUF012  as Gymnasium has it

    def __init__(
        self,
        env: Any = None,
        *,
        player: int | str = 0,
        opponents: Opponents = "random",
        seed: int | None = None,
        illegal_actions: IllegalActions = "random",
        render_mode: str | None = None,
        trust: bool = False,
        **options: Any,
    ) -> None:
        self._arguments = {
            "env": env,
            "player": player,
            "opponents": opponents,
            "seed": seed,
            "illegal_actions": illegal_actions,
            "render_mode": render_mode,
            "trust": trust,
            **options,
        }
        with trusting(trust):
            settings = environment_of(env, opponents, options)
            check_render_mode(render_mode, settings)
            self.metadata = {"render_modes": render_modes(settings), "render_fps": RENDER_FPS}
            self.games = PlayerGames(
                settings,
                1,
                player=player,
                opponents=opponents,
                illegal_actions=illegal_actions,
                rendering=render_mode is not None,
            )
        self.render_mode = render_mode
        self.observation_space, self.action_space = self.games.observation_space, self.games.action_space
        self._first_seed, self._seeded = seed, False

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode, whose opponents are drawn.

        Args:
            seed: Of this and the following episodes, their chance and that of the opponents; None: continue with the last seed.
            options: Ignored.

        Returns:
            (observation, info).
        """
        if seed is None and not self._seeded:
            seed = self._first_seed
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            key = int(self.np_random.integers(2**_SEED_BITS)) if seed is None else seed_key(seed)
            self.games.seed(_ONE, np.array([key], np.uint64))
            self._seeded = True
        self.games.begin(_ONE)
        return self.games.observation[0].copy(), self._info()

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Act, and play until the player is due again or the episode is over.

        Args:
            action: In `action_space`.

        Returns:
            (observation, reward, terminated, truncated, info). At a game's end without a last observation, the observation is zeros.

        Raises:
            EnvError: The episode is over, or the action is none.
        """
        games = self.games
        games.play(_ONE, np.asarray(action)[None], _NONE)
        over = int(games.over[0])
        info = self._info()
        if games.illegal[0]:
            info["illegal_action"] = True
        if over != GOES_ON:
            info |= {
                "returns": games.returns[0].copy(),
                "length": int(games.length[0]),
                "opponents": games.opponents(0),
            }
        observation = games.observation[0].copy()
        return observation, float(games.reward[0]), over == TERMINATED, over == TRUNCATED, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the legal actions, bool[width], as sb3-contrib's algorithms ask for them.

        Raises:
            EnvError: The action space has no masks.
        """
        if self.games.mask is None:
            raise EnvError(f"{self.games.spec.id} acts in {self.action_space}, which has no masks.")
        return np.array(self.games.mask[0])

    def render(self) -> Any:
        """Return an image uint8[height, width, 3] (`rgb_array`) or text (`ansi`); None without a render mode.

        Raises:
            EnvError: The environment cannot be rendered so.
        """
        if self.render_mode is None:
            return None
        return picture_in_mode(self.games.render(0), self.render_mode, self.games.spec.id)

    def close(self) -> None:
        """Release the environment. Closing twice is harmless."""
        self.games.close()

    def __str__(self) -> str:
        return f"<{type(self).__name__} {self.games.spec.id}, player {self.games.player}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self._arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> GymnasiumEnv:
        return type(self)(**self._arguments)

    def _info(self) -> dict[str, Any]:
        mask = self.games.mask
        return {MASK: mask[0].astype(np.int8)} if mask is not None and self.games.masked else {}


def _made_again(kind: type[GymnasiumEnv], arguments: dict[str, Any]) -> GymnasiumEnv:
    return kind(**arguments)
