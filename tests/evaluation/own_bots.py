"""Bots of a user's own, good and bad."""

from __future__ import annotations

import os
import sys
import threading
import time

import numpy as np


class First:
    """The first legal action, or the last."""

    def __init__(self, last: bool = False) -> None:
        self.last = last

    def restart(self, player, seed):
        self.player, self.seed = player, seed

    def act(self, observation, mask):
        return np.flatnonzero(mask)[-1 if self.last else 0]


class Drawn(First):
    """Uniform over the legal actions, by the seed of its episode."""

    def restart(self, player, seed):
        self.rng = np.random.default_rng(seed)

    def act(self, observation, mask):
        return self.rng.choice(np.flatnonzero(mask))


class Honest(First):
    """Bets with the king, else passes: Kuhn poker's information state begins with the player and the card, one-hot."""

    def act(self, observation, mask):
        return int(observation[4] == 1)


class Illegal(First):
    def act(self, observation, mask):
        return 17


class Vague(First):
    def act(self, observation, mask):
        return 0.5


class Raises(First):
    def act(self, observation, mask):
        raise ValueError("no idea")


class Leaves(First):
    def act(self, observation, mask):
        raise SystemExit(4)


class HoldsLock(First):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class AnswersWithCode(First):
    def act(self, observation, mask):
        return lambda: 0


class Hangs(First):
    def act(self, observation, mask):
        time.sleep(1e6)


class Dies(First):
    def act(self, observation, mask):
        os._exit(3)


class NeverMade(First):
    def __init__(self):
        time.sleep(1e6)


class DiesMade(First):
    def __init__(self):
        os._exit(3)


class LeavesMade(First):
    def __init__(self):
        raise SystemExit(4)


class MadeElsewhere(First):
    """Refuses to be made in the process of the tests."""

    def __init__(self):
        super().__init__()
        if "pytest" in sys.modules:
            raise ValueError("made in the wrong process")


class ByState:
    """The first legal action of the state."""

    def restart(self, player, seed):
        pass

    def act_on(self, state):
        return state.legal_actions()[0]


class Meddler(ByState):
    """Changes the state that it is shown."""

    def act_on(self, state):
        action = state.legal_actions()[0]
        state.apply_action(action)
        return action


class Nothing:
    pass


class Pole(First):
    """Pushes a cart to where its pole falls."""

    def act(self, observation, mask):
        return int(observation[2] > 0)


class GlobalChance(First):
    def act(self, observation, mask):
        return int(np.random.choice(np.flatnonzero(mask)))  # noqa: NPY002


class OwnChance(First):
    def act(self, observation, mask):
        return np.random.default_rng().choice(np.flatnonzero(mask))


class Remembers(First):
    """Another action in every second episode."""

    episodes = 0

    def restart(self, player, seed):
        self.episodes += 1

    def act(self, observation, mask):
        return np.flatnonzero(mask)[-(self.episodes % 2)]
