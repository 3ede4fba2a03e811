"""The contract of `Bot` and `StateBot`, as a check that any bot, ours or a user's, must pass."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.types import Array, PolicyRef
from ludus.envs.registry import make_env
from ludus.envs.wrappers.base import Wrapper
from ludus.policies.bots import BotPolicy, BotSpec, parse_bot, require_fit
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from ludus.rollout.base import PlannedEpisodes
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

_ENVS = 4


def check_bot(bot: str, env: str, *, episodes: int = 8, seed: int = 0, **options: Any) -> None:
    """Check that a bot keeps its contract in a game. It plays `episodes` episodes in each seat against chance.

    Args:
        bot: Its name with its options, such as "players:Cautious,daring=0.5".
        env: The game, as `make_env` takes it.
        episodes: In each seat.
        seed: Of all random streams.
        options: Of the game.

    Raises:
        AssertionError: With a sentence, for the first part of the contract that it breaks.
        ScenarioError: If it may not play the game.
        PolicyError: If it raises or makes an illegal move.
    """
    vector = make_env(env, num_envs=_ENVS, **options)
    bot_spec = parse_bot(bot)
    require_fit(repr(bot), bot_spec.make(), vector.spec)
    spec = vector.spec
    for seat in range(spec.num_players):
        keys = seeding.keys(seed, "check bot", seat, count=episodes)
        before = _streams()
        first = _moves(env, options, bot_spec, seat, keys)
        same = _streams() == before
        assert same, (
            f"{bot} draws from the global streams of random or NumPy; draw from a generator of your own, made from `seed`."
        )
        again = _moves(env, options, bot_spec, seat, keys)
        assert first == again, (
            f"{bot} plays other moves in the same episodes as player {seat}; all of its chance must come from the `seed` of `restart`, and "
            "`restart` must forget the episode before."
        )
        backwards = _moves(env, options, bot_spec, seat, keys[::-1])
        assert first == backwards[::-1], (
            f"{bot} plays an episode otherwise after others, as player {seat}; `restart` must forget the episode before."
        )
    vector.close()


def _moves(env: str, options: dict[str, Any], bot: BotSpec, seat: int, keys: NDArray[np.uint64]) -> list[Any]:
    """Return the moves of each episode, against chance."""
    out = []
    filmed = _Filmed(make_env(env, num_envs=_ENVS, **options))
    spec, me = filmed.spec, PolicyRef(0, "bot")
    chance = {
        PolicyRef(p, "chance"): build_policy(random_spec(spec.agents_of(p)[0].action), {})
        for p in range(spec.num_players)
    }
    seats = np.arange(spec.num_players, dtype=np.int32)
    seats[seat] = spec.num_players
    worker = RolloutWorker(filmed, LocalBank(spec, filmed.num_envs))
    policies = [*chance.items(), (me, BotPolicy.of(bot))]
    for key in keys.reshape(-1, 1):
        filmed.moves = []
        (request,) = PlannedEpisodes((*chance, me), seats[None, :], key, key).requests(_ENVS)
        played = worker.play(request, policies)
        out.append([played.episodes.returns.tolist(), filmed.moves])
    worker.close()
    return out


class _Filmed(Wrapper):
    """A vector that keeps the moves that are made in it."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, env.spec)
        self.moves: list[list[Any]] = []

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        self.moves.append([np.asarray(action).tolist() for action in actions])
        return actions


def _streams() -> str:
    return repr((random.getstate(), np.random.get_state()))  # noqa: NPY002  the global stream is what is watched
