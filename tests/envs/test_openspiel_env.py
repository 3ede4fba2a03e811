"""OpenSpiel's games through the general path: what is due, what is paid, what is refused."""

from __future__ import annotations

import numpy as np
import pyspiel
import pytest

from ludus.core.errors import EnvError
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.registry import make_env

SEEDS = np.arange(3, dtype=np.uint64)
_EMPTY = np.empty(0, np.int64)


def one(game: str, **options) -> OpenSpielVectorEnv:
    env = OpenSpielVectorEnv(game, 1, **options)
    env.reset(SEEDS[:1])
    return env


class TestTurns:
    """Tic-tac-toe: 0 takes the top row (cells 0, 1, 2) against 3, 4."""

    def test_a_won_game_move_by_move(self):
        env = one("tic_tac_toe")
        for t, cell in enumerate((0, 3, 1, 4)):
            mover = t % 2
            step = env.step(tuple(np.array([cell]) if p == mover else _EMPTY for p in range(2)))
            assert [len(due.slot) for due in step.due] == ([0, 1] if mover == 0 else [1, 0])
            due = step.due[1 - mover]
            assert due.first.tolist() == [t == 0]
            assert due.reward.tolist() == [0]
            assert due.mask.sum() == 8 - t
            assert not len(step.finished.environment)
        step = env.step((np.array([2]), _EMPTY))
        assert step.finished.returns.tolist() == [[1, -1]]
        assert step.finished.length.tolist() == [5]
        assert [ended.slot.tolist() for ended in step.ended] == [[0], [0]]
        assert [ended.reward.tolist() for ended in step.ended] == [[1], [-1]]
        assert step.ended[1].terminated.tolist() == [True]
        assert not step.ended[1].observation.any()
        # The next episode begins in the same step.
        assert step.due[0].mask.all()
        assert step.due[0].first.tolist() == [True]

    def test_an_illegal_move_names_the_slot_and_the_legal_ones(self):
        env = one("tic_tac_toe")
        env.step((np.array([4]), _EMPTY))
        with pytest.raises(EnvError, match=r"illegal action 4 in slot 0 .* \[0, 1, 2, 3, 5, 6, 7, 8\]"):
            env.step((_EMPTY, np.array([4])))

    def test_observations_are_openspiels_tensors(self):
        env = one("tic_tac_toe")
        step = env.step((np.array([4]), _EMPTY))
        state = pyspiel.load_game("tic_tac_toe").new_initial_state()
        state.apply_action(4)
        assert step.due[1].observation[0].tolist() == state.observation_tensor(1)
        assert env.spec.agents[0].observation.shape == (27,)


class TestSimultaneousMoves:
    def test_both_are_due_and_the_game_ends_at_once(self):
        env = one("matrix_rps")
        step = env.reset(SEEDS[:1])
        assert [due.slot.tolist() for due in step.due] == [[0], [0]]
        step = env.step((np.array([1]), np.array([0])))  # paper wraps rock
        assert step.finished.returns.tolist() == [[1, -1]]
        assert [ended.reward.tolist() for ended in step.ended] == [[1], [-1]]

    def test_utility_range_and_zero_sum(self):
        assert one("matrix_rps").spec.utility_range == ((-1, 1), (-1, 1))
        assert one("matrix_rps").spec.zero_sum
        assert not one("matrix_pd").spec.zero_sum


class TestRewardsAlongTheWay:
    def test_a_cliff_walk_is_paid_step_by_step(self):
        env = one("cliff_walking")  # actions: right, up, left, down; -1 a step, -100 over the cliff
        step = env.step((np.array([1]),))
        assert step.due[0].reward.tolist() == [-1]
        step = env.step((np.array([0]),))
        assert step.due[0].reward.tolist() == [-1]
        step = env.step((np.array([3]),))
        assert step.ended[0].reward.tolist() == [-100]
        assert step.finished.returns.tolist() == [[-102]]

    def test_rewards_of_other_turns_are_summed_into_the_own_decision(self):
        """Two hands are paid one after the other, often on the other's move; every player's sum still equals the return."""
        env = OpenSpielVectorEnv("repeated_leduc_poker", 4)
        rng = np.random.default_rng(0)
        step = env.reset(np.arange(4, dtype=np.uint64))
        paid = np.zeros((4, 2))
        checked = 0
        while checked < 4:
            step = env.step(tuple(np.array([rng.choice(np.flatnonzero(m)) for m in d.mask], int) for d in step.due))
            for p in range(2):
                paid[step.ended[p].slot, p] += step.ended[p].reward
            for e, returns in zip(step.finished.environment, step.finished.returns, strict=True):
                assert paid[e] == pytest.approx(returns, abs=1e-3)
                checked += 1
                paid[e] = 0
            for p in range(2):
                due = step.due[p]
                paid[due.slot, p] += np.where(due.first, 0, due.reward)


class TestChance:
    def test_deals_are_uniform(self):
        env = OpenSpielVectorEnv("kuhn_poker", 3000)
        step = env.reset(np.arange(3000, dtype=np.uint64))
        cards = step.due[0].observation[:, 2:5].sum(axis=0)
        assert cards.sum() == 3000
        assert (np.abs(cards - 1000) < 4.5 * np.sqrt(3000 * 2 / 9)).all()

    def test_sampled_chance_follows_the_seed(self):
        """Negotiation draws its instances inside: each episode has its own stream, by seed and episode."""

        def instances(env: OpenSpielVectorEnv, seeds: np.ndarray) -> list[bytes]:
            return [row.tobytes() for due in env.reset(seeds).due for row in due.observation]

        env = OpenSpielVectorEnv("negotiation", 3)
        assert instances(env, SEEDS) == instances(OpenSpielVectorEnv("negotiation", 3), SEEDS)
        assert instances(env, SEEDS) != instances(env, SEEDS + np.uint64(10))

    def test_episodes_of_one_environment_differ(self):
        env = OpenSpielVectorEnv("kuhn_poker", 1)
        step = env.reset(SEEDS[:1])
        hands = set()
        for _ in range(40):
            for due in step.due:
                hands.update(row.tobytes() for row in due.observation)
            step = env.step(tuple(np.zeros(len(due.slot), int) for due in step.due))
        assert len(hands) == 6  # three cards, seen by two players; nobody ever bets


REFUSED = [  # a game, the tensor that is asked for, what is said
    ("mfg_crowd_modelling", {}, "mean-field"),
    ("coin_game", {}, "read as text"),
    ("bridge_uncontested_bidding", {"observation": "observation"}, r"no observation tensor .*information_state"),
]


@pytest.mark.parametrize(("game", "options", "message"), REFUSED)
def test_games_that_are_refused(game, options, message):
    with pytest.raises(EnvError, match=message):
        OpenSpielVectorEnv(game, 1, **options)


def test_wrong_sizes_and_steps_are_refused():
    with pytest.raises(EnvError, match="at least 1"):
        OpenSpielVectorEnv("kuhn_poker", 0)
    with pytest.raises(EnvError, match="before reset"):
        OpenSpielVectorEnv("kuhn_poker", 1).step((_EMPTY, _EMPTY))
    with pytest.raises(EnvError, match=r"shape \(2,\) for 1 due"):
        one("tic_tac_toe").step((np.array([1, 2]), _EMPTY))
    with pytest.raises(EnvError, match="of type float64; one integer each"):
        one("tic_tac_toe").step((np.array([1.0]), _EMPTY))


class TestGamesThatMisbehave:
    def test_a_legal_action_that_the_game_does_not_have(self, monkeypatch):
        monkeypatch.setattr("ludus.envs.openspiel.vector._legal", lambda state: [0, 9])
        with pytest.raises(EnvError, match=r"allows player 0 the actions \[0, 9\]; it has only 9"):
            OpenSpielVectorEnv("tic_tac_toe", 2).reset(SEEDS[:2])

    def test_a_move_that_raises_names_its_environment(self, monkeypatch):
        def apply(state, action):
            if action == 5:
                raise pyspiel.SpielError("no such luck")
            state.apply_action(action)

        monkeypatch.setattr("ludus.envs.openspiel.vector._apply", apply)
        env = OpenSpielVectorEnv("tic_tac_toe", 3)
        env.reset(SEEDS)
        with pytest.raises(EnvError, match="refused a move in environment 1: no such luck"):
            env.step((np.array([4, 5, 6]), _EMPTY))


class TestEnds:
    """OpenSpiel has no truncation: a longest length is a rule of the game, which then pays and is over."""

    def test_the_longest_game(self):
        env = one("go(board_size=5,max_game_length=3)")
        assert env.spec.max_decisions == 3
        for t, point in enumerate((0, 1, 2)):
            step = env.step(tuple(np.array([point] if t % 2 == p else [], np.int64) for p in range(2)))
        assert step.finished.length.tolist() == [3]
        assert step.finished.terminated.tolist() == [True]
        assert [ended.terminated.tolist() for ended in step.ended] == [[True], [True]]
        assert step.finished.returns.tolist() == [[-1, 1]]  # white's komi decides

    def test_a_horizon_with_moves_at_once(self):
        env = OpenSpielVectorEnv("pathfinding(horizon=2)", 1)
        step = env.reset(SEEDS[:1])
        for _ in range(2):
            assert not len(step.finished.environment)
            step = env.step(tuple(np.zeros(len(due.slot), np.int64) for due in step.due))
        assert step.finished.length.tolist() == [2]
        assert step.finished.terminated.tolist() == [True]


class TestSnapshots:
    def test_a_snapshot_of_another_game_or_size(self):
        snapshot = one("kuhn_poker").snapshot()
        with pytest.raises(EnvError, match="leduc_poker with 1"):
            one("leduc_poker").restore(snapshot)
        with pytest.raises(EnvError, match="kuhn_poker with 2"):
            OpenSpielVectorEnv("kuhn_poker", 2).restore(snapshot)

    @pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format": "ludus openspiel 1"}', b"\x80\x04"])
    def test_damaged(self, damage):
        with pytest.raises(EnvError, match="cannot be read"):
            one("kuhn_poker").restore(damage)

    def test_nothing_to_save_before_the_first_reset(self):
        assert OpenSpielVectorEnv("kuhn_poker", 1).snapshot() is None


@pytest.mark.parametrize("tree", ["auto", "off"])
def test_a_game_without_an_end_is_refused_by_name(tree):
    """open-spiel 2.0.2: after the last of num_cards - 1 turns goofspiel is not over, and nobody has a legal action."""
    name = "openspiel/goofspiel(num_cards=4,num_turns=3,points_order=descending)"
    with pytest.raises(EnvError, match=r"not over after \d+ moves of the players, and no player has a legal action"):
        _play_lowest(make_env(name, num_envs=2, tree=tree), steps=4)


def _play_lowest(env, *, steps):
    timestep = env.reset(np.arange(2, dtype=np.uint64))
    for _ in range(steps):
        timestep = env.step([np.argmax(due.mask, axis=1) for due in timestep.due])
