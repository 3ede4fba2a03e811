"""All games that OpenSpiel registers: each is played to its end through the contract, or refused by name with the reason."""

from __future__ import annotations

import pyspiel
import pytest

from ludus.core import seeding
from ludus.core.errors import ConfigError, EnvError
from ludus.envs.registry import list_envs, make_env
from ludus.testing.ledger import Actor, Ledger

_PLAYED = (
    "2048 amazons antichess backgammon banqi bargaining battleship blackjack blotto breakthrough capture_the_flag catch checkers "
    "chess chinese_checkers cliff_walking clobber colored_trails connect_four coop_box_pushing crazy_eights crazyhouse cursor_go "
    "dark_chess dark_hex dark_hex_ir deep_sea dots_and_boxes dou_dizhu einstein_wurfelt_nicht euchre first_sealed_auction gin_rummy "
    "go go_fish gomoku goofspiel hanabi havannah hearts hex hive kriegspiel kuhn_poker laser_tag latent_ttt leduc_poker "
    "lewis_signaling liars_dice lines_of_action maedn mancala markov_soccer matching_pennies_3p matrix_bos matrix_brps matrix_cd "
    "matrix_coordination matrix_mp matrix_pd matrix_rps matrix_rpsw matrix_sh matrix_shapleys_game mnk negotiation nim "
    "nine_mens_morris oh_hell oshi_zumo othello oware pathfinding pentago phantom_go phantom_ttt pig quoridor rbc "
    "repeated_leduc_poker sheriff shogi skat snake solitaire spades stones_and_gems tic_tac_toe tiny_bridge_2p tiny_bridge_4p "
    "tiny_hanabi trade_comm twixt ultimate_tic_tac_toe universal_poker xiangqi y yacht"
)
PLAYED = _PLAYED.split()
SMALLER = {
    "bridge": "bridge(use_double_dummy_result=false)",  # solving a deal double dummy takes seconds
    "bridge_uncontested_bidding": "bridge_uncontested_bidding(num_redeals=1)",
    "coop_to_1p": "coop_to_1p(game=tiny_hanabi())",
}
# Games that need parameters: what is said without them, and some that are enough.
PARAMETERS = {
    "add_noise": ("Missing parameter epsilon", "(game=kuhn_poker(),epsilon=0.1,seed=1)"),
    "cached_tree": ("Missing parameter game", "(game=kuhn_poker())"),
    "efg_game": ("parameters filename", "(filename={efg})"),
    "misere": ("Missing parameter game", "(game=tic_tac_toe())"),
    "nfg_game": ("parameters filename", "(filename={nfg})"),
    "normal_form_extensive_game": ("Missing parameter game", "(game=kuhn_poker())"),
    "repeated_game": ("Missing parameter num_repetitions", "(stage_game=matrix_pd(),num_repetitions=5)"),
    "repeated_poker": ("Missing parameter max_num_hands", None),  # and has no tensor: see the last test
    "restricted_nash_response": ("Missing parameter game", "(game=kuhn_poker(),fixed_player=0,p=0.5)"),
    "start_at": ("Missing parameter game", "(game=tic_tac_toe(),history=0;4)"),
    "turn_based_simultaneous_game": ("Missing parameter game", "(game=oshi_zumo(coins=4,size=2))"),
    "zerosum": ("Missing parameter game", "(game=matrix_pd())"),
}
REFUSED = {
    "coin_game": "coin_game has no observation tensor",
    "coordinated_mp": "coordinated_mp has no observation tensor",
    "cribbage": "cribbage has no observation tensor",
    "crossword": "crossword announces a observation tensor and has none",
    "liars_dice_ir": "liars_dice_ir has no observation tensor",
    "mfg_crowd_modelling": "mfg_crowd_modelling is a mean-field game",
    "mfg_crowd_modelling_2d": "mfg_crowd_modelling_2d is a mean-field game",
    "mfg_dynamic_routing": "mfg_dynamic_routing is a mean-field game",
    "mfg_garnet": "mfg_garnet is a mean-field game",
    "morpion_solitaire": "morpion_solitaire has no observation tensor",
    "phantom_ttt_ir": "phantom_ttt_ir has no observation tensor",
    "social_deduction": "social_deduction has no observation tensor",
    "tarok": "tarok has no observation tensor",
    "python_dynamic_routing": "python_dynamic_routing.* announces a information_state tensor and has none",
    "python_iterated_prisoners_dilemma": "python_iterated_prisoners_dilemma.* has no observation tensor",
}
_PYTHON = (
    "python_ant_foraging python_block_dominoes python_hangman python_kuhn_poker python_liars_poker python_team_dominoes "
    "python_tic_tac_toe"
)
PYTHON = _PYTHON.split()
PENNIES = """EFG 2 R "matching pennies" { "One" "Two" }
p "" 1 1 "(1,1)" { "H" "L" } 0
p "" 2 1 "(2,1)" { "h" "l" } 0
t "" 1 "same" { 1.0 -1.0 }
t "" 2 "other" { -1.0 1.0 }
p "" 2 1 "(2,1)" { "h" "l" } 0
t "" 3 "other" { -1.0 1.0 }
t "" 4 "same" { 1.0 -1.0 }
"""
_LONGEST = 5000  # steps; the longest of these games, played at random, takes about a thousand


def play(id: str) -> None:
    """An episode with random legal actions, checked step by step."""
    env = make_env(id, num_envs=1, tree="off")
    seeds = seeding.keys(0, "all games", count=1)
    actor, ledger = Actor(env.spec, seeds), Ledger(env.spec, 1, team="shared", early_rewards=False)
    timestep = env.reset(seeds, episodes=1)
    ledger.see(timestep)
    for _ in range(_LONGEST):
        if not any(len(due.slot) for due in timestep.due):
            break
        timestep = env.step(actor.actions(timestep))
        ledger.see(timestep)
        assert timestep.finished.terminated.all()
        assert (timestep.finished.length <= env.spec.max_decisions * env.spec.num_players).all()
    assert ledger.finished.tolist() == [1]


def test_every_registered_game_is_in_one_table():
    registered = {kind.short_name for kind in pyspiel.registered_games()} - {"chat_game"}
    tables = [PLAYED, SMALLER, PARAMETERS, REFUSED, PYTHON]
    listed = [name for table in tables for name in table]
    assert len(listed) == len(set(listed))
    compiled = {name for name in listed if not name.startswith("python_")}
    assert len(compiled) == 126
    assert compiled == {name for name in registered if not name.startswith("python_")}


def test_the_list_is_of_those_that_play_without_parameters():
    tables = {f"openspiel/{name}" for table in (PLAYED, SMALLER, PARAMETERS, REFUSED, PYTHON) for name in table}
    its_own = [
        id for id in list_envs("openspiel") if id in tables
    ]  # other tests of this process register games of their own
    assert its_own == sorted(f"openspiel/{name}" for name in [*PLAYED, *SMALLER, *PYTHON] if name != "coop_to_1p")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLAYED, *SMALLER.values(), *PYTHON])
def test_played_to_the_end(name):
    play(f"openspiel/{name}")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_with_the_reason(name):
    with pytest.raises(EnvError, match=REFUSED[name]):
        make_env(f"openspiel/{name}", num_envs=1, tree="off")


@pytest.mark.parametrize("name", PARAMETERS)
def test_missing_parameters_are_named(name):
    with pytest.raises(ConfigError, match=f"'{name}'.*{PARAMETERS[name][0]}"):
        make_env(f"openspiel/{name}", num_envs=1, tree="off")


@pytest.mark.parametrize("name", [name for name, (_, given) in PARAMETERS.items() if given is not None])
def test_with_parameters(name, tmp_path):
    efg, nfg = tmp_path / "game.efg", tmp_path / "game.nfg"
    efg.write_text(PENNIES)
    nfg.write_text(pyspiel.game_to_nfg_string(pyspiel.load_game("matrix_rps")))
    play(f"openspiel/{name}{PARAMETERS[name][1].format(efg=efg, nfg=nfg)}")


def test_a_file_of_a_tree_that_begins_with_chance_can_only_be_compiled(tmp_path):
    file = tmp_path / "game.efg"
    file.write_text(pyspiel.get_sample_efg_data())
    with pytest.raises(EnvError, match=r"efg_game.*information_state tensor and has none"):
        make_env(f"openspiel/efg_game(filename={file})", num_envs=1, tree="off")
    assert make_env(f"openspiel/efg_game(filename={file})", num_envs=1).spec.enumeration is not None


def test_repeated_poker_loads_and_has_no_tensor():
    given = "max_num_hands=2,reset_stacks=True,rotate_dealer=True,universal_poker_game_string=universal_poker()"
    with pytest.raises(EnvError, match=r"repeated_poker.*has no observation tensor"):
        make_env(f"openspiel/repeated_poker({given})", num_envs=1, tree="off")
