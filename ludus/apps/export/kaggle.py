"""A policy as an agent for kaggle-environments: one file without Ludus, whose last function is the agent.

kaggle-environments calls the last callable of the file with (observation, configuration). How a game's observation there becomes the one
that the policy was trained on is written down for each pair of games below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ludus.apps.export.formats import python_source
from ludus.apps.export.network import ExportedPolicy
from ludus.core.errors import PolicyError, join_or


@dataclass(frozen=True, slots=True)
class KaggleGame:
    """A game of kaggle-environments that an environment of Ludus is.

    Attributes:
        name: There.
        encode: Source of `encode(observation, configuration)`, which returns (observation, mask) as the policy was trained on.
    """

    name: str
    encode: str


_BOARD = """
    board = np.array(observation["board"]).reshape(configuration["rows"], configuration["columns"])
    mark = observation["mark"]
    mask = board[0] == 0
"""

# The planes are (the first player's, the second player's, empty) from the lowest row up, equal for both players.
_PLANES = KaggleGame(
    "connectx",
    _BOARD
    + "    planes = np.stack([board == 1, board == 2, board == 0])[:, ::-1]\n    return planes.astype(np.float32).reshape(-1), mask\n",
)

KAGGLE_GAMES: Final[Mapping[str, KaggleGame]] = {
    "kaggle/connectx": _PLANES,
    "openspiel/connect_four": _PLANES,
    # PettingZoo's last axis is (one's own, the other's), from the highest row down.
    "pettingzoo/connect_four_v3": KaggleGame(
        "connectx",
        _BOARD
        + "    planes = np.stack([board == mark, board == 3 - mark], axis=2)\n    return planes.astype(np.float32), mask\n",
    ),
}
"""By id of the environment that the policy was trained in."""


def agent_source(policy: ExportedPolicy, *, about: str) -> str:
    """Return the source of the agent's file.

    Args:
        policy: Of an environment in `KAGGLE_GAMES`.
        about: A sentence on where it comes from.

    Raises:
        PolicyError: If its game is none of kaggle-environments that is known here.
    """
    game = KAGGLE_GAMES.get(policy.signature.game)
    if game is None:
        raise PolicyError(
            f"a policy of {policy.signature.game or 'an unknown game'} is no agent of kaggle-environments; games that are known: "
            f"{join_or(KAGGLE_GAMES)}. Export --to python and write the encoding of observations yourself."
        )
    source = python_source(
        policy, about=f"{about}\n\nAn agent for {game.name} of kaggle-environments: `agent` is the last function."
    )
    return f"""{source}

POLICY = Policy()


def encode(observation, configuration):{game.encode}

def agent(observation, configuration):
    if observation.get("step", 0) < 2:  # of a new episode: one process may play several
        POLICY.reset()
    return POLICY.act(*encode(observation, configuration))
"""
