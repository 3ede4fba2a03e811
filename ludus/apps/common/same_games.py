"""Games that several packages call by one name: what each plays under it, so that no two numbers are compared that are not of one game.
`docs/environments/same-games.md` has the details and how they were found out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ludus.core.errors import ConfigError

PAGE = "docs/environments/same-games.md"
_DRAWN = "the first player is drawn"
SAME_NAME: Final[Mapping[str, Mapping[str, str]]] = {
    "2048": {
        "openspiel/2048": "ends at tile 2048",
        "pgx/2048": "continues after tile 2048",
        "jumanji/Game2048-v1": "continues after tile 2048, begins with one tile",
    },
    "Asterix": {
        "pgx/minatar-asterix": "sticky actions, no step limit",
        "gymnax/Asterix-MinAtar": "no sticky actions, 1,000 steps",
    },
    "backgammon": {
        "openspiel/backgammon": "pays ±1, both dice must be played, doubles are two decisions",
        "pgx/backgammon": "pays up to ±3, a die may be left unplayed, doubles are four decisions",
        "envpool/Backgammon-v1": "pays up to ±3, doubles are four decisions",
    },
    "blackjack": {
        "gymnasium/Blackjack-v1": "a natural beats a dealer's 21 of three cards, cards are put back",
        "openspiel/blackjack": "a natural ties with a dealer's 21 of three cards, one deck",
    },
    "Breakout": {
        "pgx/minatar-breakout": "sticky actions, no step limit",
        "gymnax/Breakout-MinAtar": "no sticky actions, 1,000 steps",
    },
    "chess": {
        "openspiel/chess": "player 0 is Black, a third repetition is a draw",
        "pettingzoo/chess_v6": "player 0 is White, a draw that could be claimed ends the game",
        "pgx/chess": f"{_DRAWN}, the first position does not count for repetition, 512 moves",
        "envpool/Chess-v1": f"{_DRAWN}, a third repetition is a draw",
    },
    "connect four": {
        "openspiel/connect_four": "player 0 begins",
        "pettingzoo/connect_four_v3": "player 0 begins",
        "pgx/connect_four": _DRAWN,
        "envpool/ConnectFour-v1": _DRAWN,
    },
    "foraging": {
        "lbf/Foraging-8x8-2p-2f-v3": "50 steps, players may follow one another",
        "jumanji/LevelBasedForaging-v0": "100 steps, players may not follow one another, food is lifted together",
        "envpool/LevelBasedForaging-v0": "one start for all seeds, one number pays for all",
    },
    "Freeway": {
        "pgx/minatar-freeway": "sticky actions, terminates after 2,501 steps",
        "gymnax/Freeway-MinAtar": "no sticky actions, truncated after 1,000 steps",
    },
    "go": {
        "openspiel/go": "a repeated position is a draw, 19 × 19 unless board_size says otherwise",
        "pettingzoo/go_v5": "a repeated position changes nothing, 19 × 19 unless board_size says otherwise",
        "pgx/go_9x9": "a repeated position loses, 9 × 9",
        "pgx/go_19x19": "a repeated position loses, 19 × 19",
        "envpool/Go9x9-v1": "a repeated position loses, 9 × 9",
    },
    "Hanabi": {
        "openspiel/hanabi": "cards that are possible are ones",
        "pettingzoo/hanabi_v5": "cards that are possible are ones",
        "jaxmarl/hanabi": "cards that are possible are shares of one",
    },
    "hex": {
        "openspiel/hex": "no swap",
        "pgx/hex": "the second player may swap",
        "envpool/Hex-v1": "the second player may swap",
    },
    "Kuhn poker": {
        "openspiel/kuhn_poker": "player 0 begins, 0 is pass",
        "pgx/kuhn_poker": f"{_DRAWN}, 0 is bet",
        "envpool/KuhnPoker-v1": f"{_DRAWN}, 0 is bet",
    },
    "Leduc hold'em": {
        "openspiel/leduc_poker": "antes of 1, pays up to ±13 chips, player 0 begins both rounds",
        "pgx/leduc_holdem": f"antes of 1, pays up to ±13 chips, {_DRAWN}",
        "envpool/LeducHoldem-v1": f"antes of 1, pays up to ±13 chips, {_DRAWN}",
        "pettingzoo/leduc_holdem_v4": f"blinds of 1 and 2, pays up to ±7 big blinds, {_DRAWN}",
    },
    "othello": {
        "openspiel/othello": "player 0 begins",
        "pgx/othello": _DRAWN,
        "envpool/Othello-v1": _DRAWN,
    },
    "Overcooked": {
        "jaxmarl/overcooked": "agent_0 begins on the left, action 0 is up",
        "jaxmarl/overcooked_v2": "agent_0 begins on the right, action 0 is right",
    },
    "Pong": {
        "gymnasium/ALE/Pong-v5": "sticky actions of 0.25",
        "ale/pong": "no sticky actions, clipped rewards",
        "envpool/Pong-v5": "no sticky actions",
        "pettingzoo/pong_v3": "two players, one frame a step, who does not serve is charged",
    },
    "robot warehouse": {
        "rware/rware-tiny-2ag-v2": "robots that would collide wait",
        "jumanji/RobotWarehouse-v0": "a collision ends the episode, one number pays for all",
        "envpool/RobotWarehouse-v0": "one start for all seeds, moves that are no warehouse's",
    },
    "simple_spread": {
        "mpe2/simple_spread_v3": "25 steps",
        "jaxmarl/MPE_simple_spread_v3": "26 steps",
        "vmas/simple_spread": "each distance is paid three times, 100 steps, other physics",
    },
    "Space Invaders": {
        "pgx/minatar-space_invaders": "sticky actions, 24 aliens, no step limit",
        "gymnax/SpaceInvaders-MinAtar": "no sticky actions, 28 aliens at first (gymnax 0.0.9), 1,000 steps",
    },
    "Sparrow mahjong": {
        "pgx/sparrow_mahjong": "only the last seat wins by self-draw after the first round",
        "envpool/SparrowMahjong-v1": "every seat wins by self-draw",
    },
    "tic-tac-toe": {
        "openspiel/tic_tac_toe": "player 0 begins",
        "pettingzoo/tictactoe_v3": "player 0 begins",
        "pgx/tic_tac_toe": _DRAWN,
        "envpool/TicTacToe-v1": _DRAWN,
    },
}
"""By name and id: what the game is there, where that differs between ids. Ids without parameters; of those of many sizes one."""
_FAMILIES_OF_ONE_GAME: Final = {"lbf/": "lbf/Foraging-8x8-2p-2f-v3", "rware/": "rware/rware-tiny-2ag-v2"}


def differences(ids: Iterable[str]) -> str:
    """Return a sentence for each name that several of these ids share and play differently; "" if there is none."""
    entries = {id: _listed(id) for id in sorted(set(ids))}
    sentences = []
    for name, games in SAME_NAME.items():
        mixed = {id: games[listed] for id, listed in entries.items() if listed in games}
        if len(set(mixed.values())) > 1:
            plays = "; ".join(f"{id}: {what}" for id, what in mixed.items())
            sentences.append(f"{len(mixed)} games are called {name} and differ ({plays}).")
    return " ".join([*sentences, f"See {PAGE}."] if sentences else [])


def with_differences(error: ConfigError) -> ConfigError:
    """Return the error, with what differs between the ids of one name that its message has."""
    text = str(error)
    added = differences(re.findall(r"[a-z0-9]+/[\w./-]*\w", text))
    return ConfigError(f"{text} {added}") if added else error


def _listed(id: str) -> str:
    """Return the id that stands in the table for this one."""
    name = id.partition("(")[0]
    return next((one for prefix, one in _FAMILIES_OF_ONE_GAME.items() if name.startswith(prefix)), name)
