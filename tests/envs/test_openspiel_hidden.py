"""What a policy is shown depends on its own player's information only: twins, states that the player cannot tell apart, look alike.

Found by changing what was hidden in a random history (another chance outcome, another hidden move), and by OpenSpiel's own resampling.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyspiel
import pytest
from openspiel_twins import positions, twins

from ludus.envs.adapters.openspiel import load_game
from ludus.envs.openspiel.states import Tensor, observer

FAST = ["kuhn_poker", "leduc_poker", "liars_dice", "phantom_ttt", "tiny_hanabi", "goofspiel(imp_info=True,num_cards=4)"]
_SLOW = (
    "bargaining battleship blackjack bridge(use_double_dummy_result=false) colored_trails coop_box_pushing "
    "crazy_eights dark_chess dark_hex dark_hex_ir dou_dizhu first_sealed_auction gin_rummy hearts latent_ttt "
    "lewis_signaling oh_hell python_block_dominoes python_kuhn_poker python_liars_poker python_team_dominoes "
    "repeated_leduc_poker sheriff skat spades tiny_bridge_2p tiny_bridge_4p trade_comm universal_poker"
)
SLOW = _SLOW.split()
RESAMPLED = "bargaining blackjack bridge colored_trails gin_rummy hearts kuhn_poker leduc_poker oh_hell universal_poker"
# The tensor tells more than the string of the same information: what everybody may know by the rules, though the string leaves it out …
PUBLIC = {
    "euchre": "the suit that was called in the second round of bidding",
    "go_fish": "earlier questions",
    "hanabi": "the last move",
    "rbc": "how many pieces each side has",
}
# … or what the rules hide (docs/environments/openspiel.md names these).
LEAKS = {
    "kriegspiel": "how often the true position has occurred, and moves since the last capture or pawn move",
    "phantom_go": "how many stones the other has on the board",
}
# Nothing is hidden, or it is drawn inside the game where no history shows it.
NO_TWINS = "blotto bridge_uncontested_bidding deep_sea matching_pennies_3p negotiation solitaire"
_EPISODES, _POSITIONS, _TRIES, _MOST = 12, 4, 8, 30


def compare(game: Any, kind: str, *, seed: int = 0, resample: bool = False) -> tuple[int, int]:
    """How many twins were looked at, and how many of them looked different."""
    rng, tensor = random.Random(seed), observer(game, kind)
    seen = different = 0
    for _ in range(_EPISODES):
        found = positions(game, rng, most=_MOST)
        for state in rng.sample(found, min(_POSITIONS, len(found))):
            player = state.current_player()
            if player < 0:
                player = rng.choice([p for p in range(game.num_players()) if state.legal_actions(p)])
            others = list(twins(state, player, rng, tries=_TRIES))
            if resample:
                others.append(state.resample_from_infostate(player, rng.random))
            here = _shown(tensor, state, player)
            for other in others:
                seen += 1
                different += not np.array_equal(_shown(tensor, other, player), here)
    return seen, different


def _shown(tensor: Tensor, state: Any, player: int) -> np.ndarray:
    tensor.set_from(state, player)
    return np.frombuffer(tensor.memory, np.float32).copy()


def _kinds(game: Any) -> list[str]:
    kind = game.get_type()
    offered = [("information_state", kind.provides_information_state_tensor)]
    return [name for name, there in [*offered, ("observation", kind.provides_observation_tensor)] if there]


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_twins_look_alike(name):
    game = load_game(name)
    for kind in _kinds(game):
        seen, different = compare(game, kind, resample=name.partition("(")[0] in RESAMPLED.split())
        assert different == 0, f"{kind} tensors of {different} in {seen} twins differ."
        assert seen >= 10


@pytest.mark.long
@pytest.mark.parametrize("name", [*PUBLIC, *LEAKS])
def test_tensors_that_tell_more_are_known_by_name(name):
    game = load_game(name)
    seen = different = 0
    for seed in range(60):  # until the first difference; euchre shows it in one of a thousand twins
        for kind in _kinds(game):
            more = compare(game, kind, seed=seed)
            seen, different = seen + more[0], different + more[1]
        if different:
            break
    assert 0 < different < seen


def test_every_game_with_hidden_information_is_in_one_table():
    perfect = pyspiel.GameType.Information.PERFECT_INFORMATION
    hiding = {
        kind.short_name
        for kind in pyspiel.registered_games()
        if kind.information != perfect
        and kind.default_loadable
        and (kind.provides_information_state_tensor or kind.provides_observation_tensor)
        and not kind.short_name.startswith(("matrix_", "python_", "chat_"))
    }
    listed = [name.partition("(")[0] for name in [*FAST, *SLOW, *PUBLIC, *LEAKS, *NO_TWINS.split()]]
    assert len(listed) == len(set(listed))
    assert {name for name in listed if not name.startswith("python_")} - {"goofspiel"} == hiding - {"crossword"}
