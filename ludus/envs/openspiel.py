"""Any OpenSpiel game that can be stepped, through its own API: turns, simultaneous moves, chance, 1 to n players.

actions -> per environment: apply -> chance, drawn by key -> whoever is to move next | end -> next episode
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyspiel
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.envs.openspiel_state import Game, Seat, observer
from ludus.envs.tree.walk import title
from ludus.errors import EnvError
from ludus.types import AgentSpec, Array, Due, Ended, EnvSpec, Finished, Timestep

__all__ = ["Observation", "OpenSpielVectorEnv", "check_playable", "describe"]

Observation: TypeAlias = Literal["auto", "information_state", "observation"]
_SNAPSHOT = "ludus openspiel 1"


def check_playable(game: Any) -> None:
    """Raise EnvError for games that cannot be stepped move by move by their players."""
    if game.get_type().dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise EnvError(
            f"{title(game)} is a mean-field game: its next state depends on a distribution over a whole population, so it cannot be "
            "stepped by its players; choose a sequential or simultaneous game."
        )


def describe(game: Any, *, size: int) -> EnvSpec:
    """The `EnvSpec` of a game that is not enumerated; one agent per player, float32 observations of length `size`."""
    players = game.num_players()
    space = Box(-np.inf, np.inf, (size,), np.float32)
    kind = game.get_type()
    return EnvSpec(
        id=f"openspiel/{title(game)}",
        agents=tuple(AgentSpec(f"player_{p}", p, space, Discrete(game.num_distinct_actions())) for p in range(players)),
        utility_range=((float(game.min_utility()), float(game.max_utility())),) * players,
        symmetry=tuple((p,) for p in range(players)),
        zero_sum=kind.utility in (pyspiel.GameType.Utility.ZERO_SUM, pyspiel.GameType.Utility.CONSTANT_SUM),
        max_decisions=int(game.max_game_length()),
    )


class OpenSpielVectorEnv:
    """`VectorEnv` over `num_envs` states of an OpenSpiel game (`pyspiel.Game` or its string).

    observation: "information_state" or "observation", OpenSpiel's tensors (flat); "auto": the first that the game has. Final observations
    are zeros: OpenSpiel defines no tensors at the end of a game, and termination does not bootstrap. Masks are always given.
    Rewards are differences of OpenSpiel's returns between a player's decisions, so whatever is paid in between is summed.
    Raises EnvError for games that cannot be stepped, or have no such tensor.
    """

    def __init__(self, game: Any, num_envs: int, *, observation: Observation = "auto") -> None:
        if num_envs < 1:
            raise EnvError(f"num_envs={num_envs} was given; at least 1 is needed.")
        game = pyspiel.load_game(game) if isinstance(game, str) else game
        check_playable(game)
        self._tensor, size = observer(game, observation)
        self.spec = describe(game, size=size)
        self.num_envs = num_envs
        self._game = Game(game)
        self._players = game.num_players()
        self._actions = game.num_distinct_actions()
        shape = (2, self._players, num_envs)
        self._observation = np.zeros((*shape, size), np.float32)
        self._mask = np.zeros((*shape, self._actions), np.bool_)
        self._final = np.zeros((num_envs, size), np.float32)
        self._seats: list[Seat] = []
        self._quota = [0] * num_envs
        self._idle = [True] * num_envs
        self._side = 0
        self._last: Timestep | None = None

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`."""
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        quota = np.broadcast_to(np.asarray(-1 if episodes is None else episodes, np.int64), self.num_envs)
        self._quota = quota.tolist()
        self._idle = [n == 0 for n in self._quota]
        self._seats = [Seat(self._game, int(seed)) for seed in seeds]
        for e, seat in enumerate(self._seats):
            if not self._idle[e]:
                self._guard(e, seat)
        return self._publish([])

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        self._check(actions, self._last)
        moves = np.full((self.num_envs, self._players), pyspiel.INVALID_ACTION, np.int64)
        for p, due in enumerate(self._last.due):
            moves[due.slot, p] = actions[p]
        ended: list[tuple[int, list[float], list[float], list[bool], int]] = []
        seats = self._seats
        e = -1
        try:
            for e, move in enumerate(moves.tolist()):
                if self._idle[e]:
                    continue
                seat = seats[e]
                if seat.apply(move):
                    ended.append((e, *seat.close()))
                    if seat.episode + 1 == self._quota[e]:
                        self._idle[e] = True
                    else:
                        seat.restart()
        except pyspiel.SpielError as error:
            raise EnvError(f"{self.spec.id} refused a move in environment {e}: {error}") from error
        return self._publish(ended)

    def snapshot(self) -> bytes | None:
        """Seeds, episode numbers and moves as JSON; chance is drawn again on restore, from the same keys."""
        if self._last is None:
            return None
        document = {
            "format": _SNAPSHOT,
            "game": self.spec.id,
            "quota": self._quota,
            "idle": self._idle,
            "seats": [[str(seat.seed), seat.episode, seat.moves] for seat in self._seats],
            "ended": [[e.slot.tolist(), e.reward.tolist(), e.terminated.tolist()] for e in self._last.ended],
            "finished": [
                self._last.finished.environment.tolist(),
                self._last.finished.returns.tolist(),
                self._last.finished.length.tolist(),
            ],
        }
        return json.dumps(document).encode()

    def restore(self, snapshot: bytes) -> Timestep:
        """See `VectorEnv.restore`. Raises EnvError if the snapshot is not one of an equal environment."""
        try:
            document = json.loads(snapshot)
            fits = document["format"] == _SNAPSHOT and document["game"] == self.spec.id
            seats = [Seat(self._game, int(seed), episode=k, moves=moves) for seed, k, moves in document["seats"]]
        except (ValueError, KeyError, TypeError, pyspiel.SpielError) as error:
            raise EnvError(f"a snapshot of {self.spec.id} cannot be read: {error}; was it cut or changed?") from error
        if not fits or len(seats) != self.num_envs:
            raise EnvError(
                f"a snapshot of {document['game']} with {len(seats)} environments was given to {self.spec.id} with "
                f"{self.num_envs}; restore into an equal environment."
            )
        self._seats, self._quota, self._idle = seats, document["quota"], document["idle"]
        for e, seat in enumerate(self._seats):
            if not self._idle[e]:
                self._guard(e, seat)
        timestep = self._publish([])
        ended = tuple(self._ended(*columns) for columns in document["ended"])
        self._last = Timestep(timestep.due, ended, self._finished(*document["finished"]))
        return self._last

    def close(self) -> None:
        """Forget all states."""
        self._seats, self._last = [], None

    # ------------------------------------------------------------------------------------------------

    def _guard(self, environment: int, seat: Seat) -> None:
        if seat.state.is_terminal():
            raise EnvError(
                f"{self.spec.id} ended in environment {environment} before anybody could move; it cannot be played."
            )

    def _check(self, actions: tuple[Array, ...], last: Timestep) -> None:
        for p, due in enumerate(last.due):
            given = np.asarray(actions[p])
            if given.shape != due.slot.shape:
                raise EnvError(
                    f"player {p} was given actions of shape {given.shape} for {len(due.slot)} due decisions; one each."
                )
            assert due.mask is not None
            inside = (given >= 0) & (given < self._actions)
            legal = inside & due.mask[np.arange(len(given)), np.where(inside, given, 0)]
            if not legal.all():
                row = int(np.argmin(legal))
                raise EnvError(
                    f"player {p} chose the illegal action {int(given[row])} in slot {int(due.slot[row])} of {self.spec.id}; legal: "
                    f"{np.flatnonzero(due.mask[row]).tolist()}."
                )

    def _publish(self, ended: Sequence[tuple[int, list[float], list[float], list[bool], int]]) -> Timestep:
        """The timestep of all present states, in the buffers of the other side."""
        self._side ^= 1
        due = tuple(self._due(p) for p in range(self._players))
        closed = []
        for p in range(self._players):
            rows = [(e, reward[p]) for e, _, reward, was_open, _ in ended if was_open[p]]
            closed.append(self._ended([e for e, _ in rows], [r for _, r in rows], [True] * len(rows)))
        finished = self._finished([row[0] for row in ended], [row[1] for row in ended], [row[4] for row in ended])
        self._last = Timestep(due, tuple(closed), finished)
        return self._last

    def _due(self, player: int) -> Due:
        observation, mask = self._observation[self._side, player], self._mask[self._side, player]
        tensor, set_from = self._tensor.array, self._tensor.set_from
        slots: list[int] = []
        legal: list[int] = []
        counts: list[int] = []
        rewards: list[float] = []
        firsts: list[bool] = []
        for e, seat in enumerate(self._seats):
            if self._idle[e] or not (seat.mover == player or (seat.mover < 0 and seat.legal(player))):
                continue
            actions = seat.legal(player)
            legal += actions
            counts.append(len(actions))
            set_from(seat.state, player)
            observation[len(slots)] = tensor
            slots.append(e)
            rewards.append(seat.pay(player))
            firsts.append(seat.first(player))
        n = len(slots)
        mask[:n] = False
        mask[np.repeat(np.arange(n), counts), legal] = True
        return Due(
            np.array(slots, np.int32),
            observation[:n],
            mask[:n],
            np.array(rewards, np.float32),
            np.array(firsts, np.bool_),
        )

    def _ended(self, slots: list[int], rewards: list[float], terminated: list[bool]) -> Ended:
        return Ended(
            np.array(slots, np.int32),
            np.array(rewards, np.float32),
            np.array(terminated, np.bool_),
            self._final[: len(slots)],
            np.ones((len(slots), self._actions), np.bool_),
        )

    def _finished(self, environments: list[int], returns: list[list[float]], lengths: list[int]) -> Finished:
        return Finished(
            np.array(environments, np.int32),
            np.array(returns, np.float64).reshape(-1, self._players),
            np.ones(len(environments), np.bool_),
            np.array(lengths, np.int32),
        )
