"""A bot that searches with a trained policy, with as many simulations as one likes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError
from ludus.core.types import Array
from ludus.policies.file import load_policy
from ludus.policies.registry import build_policy
from ludus.policies.search.policy import SearchingPolicy


@dataclass(slots=True)
class SearchBot:
    """Plays by the search of an AlphaZero policy. policy: its file. simulations: per move. (`mode: search` plays
    `play_simulations`, many games together.)"""

    policy: str
    simulations: int = 200
    _policy: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for a policy that does not search, PolicyError for a file that is none."""
        if self.simulations < 1:
            raise ConfigError(f"SearchBot: simulations is {self.simulations}; at least 1 is needed.")
        loaded = load_policy(self.policy)
        if not isinstance(loaded, SearchingPolicy):
            raise ConfigError(
                f"SearchBot: {self.policy} is a policy of kind {loaded.spec.kind!r}, which does not search; give one of AlphaZero."
            )
        spec = replace(loaded.spec, config={**loaded.spec.config, "play": self.simulations})
        self._policy = build_policy(spec, loaded.weights())

    def restart(self, player: int, seed: int) -> None:
        """Do nothing: no state is kept between moves."""

    def act(self, observation: Array, mask: NDArray[np.bool_] | None) -> int:
        none = np.zeros((1, self._policy.noise_width), np.float32)
        legal = None if mask is None else mask[None]
        return int(self._policy.act(observation[None], legal, None, none, mode="search").action[0])
