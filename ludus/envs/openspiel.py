"""Any OpenSpiel game that can be stepped, through its own API: turns, simultaneous moves, chance, 1 to n players.

actions -> checked, by place -> apply -> chance, drawn by key | end -> next episode -> tensors and legal actions, laid out by player

What OpenSpiel must be asked is asked by `map` over all states; everything else of a step is one compiled sweep.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyspiel
from numpy.typing import NDArray

from ludus.envs.openspiel_replay import replay
from ludus.envs.openspiel_rows import Rows
from ludus.envs.openspiel_spec import check_playable, describe
from ludus.envs.openspiel_state import CHANCE, TERMINAL, Game, Luck, moves_of, observer, resume
from ludus.errors import EnvError
from ludus.types import Array, Timestep

__all__ = ["Observation", "OpenSpielVectorEnv", "check_playable"]

Observation: TypeAlias = Literal["auto", "information_state", "observation"]
_SNAPSHOT = "ludus openspiel 2"
# Unbound, for `map`: looking a method up on each state costs as much as half of a cheap call.
_apply, _mover = pyspiel.State.apply_action, pyspiel.State.current_player
_legal, _returns = pyspiel.State.legal_actions, pyspiel.State.returns


class OpenSpielVectorEnv:
    """`VectorEnv` over `num_envs` states of an OpenSpiel game (`pyspiel.Game` or its string).

    observation: "information_state" or "observation", OpenSpiel's tensors (flat); "auto": the first that the game has. Final observations
    are zeros: OpenSpiel defines no tensors at the end of a game, and termination does not bootstrap. Masks are always given.
    Rewards are differences of OpenSpiel's returns between a player's decisions, so whatever is paid in between is summed.
    Every end is a termination: where a game has a longest length, OpenSpiel makes it a rule of the game, with returns.
    openings: see `Game`; nobody decides these moves, and they are no part of an episode's length.
    Raises EnvError for games that cannot be stepped, or have no such tensor.
    """

    def __init__(self, game: Any, num_envs: int, *, observation: Observation = "auto", openings: int = 0) -> None:
        if num_envs < 1:
            raise EnvError(f"num_envs={num_envs} was given; at least 1 is needed.")
        game = pyspiel.load_game(game) if isinstance(game, str) else game
        check_playable(game)
        tensor = observer(game, observation)
        self.spec = describe(game, size=tensor.size)
        self.num_envs = num_envs
        self._loaded = game
        self._game = Game(game, openings)
        self._rows = Rows(self.spec.id, self._game, tensor, num_envs)
        self._places = np.arange(num_envs, dtype=np.int32)
        self._quota = [0] * num_envs
        self._idle = [True] * num_envs
        self._states: list[Any] = []
        self._luck: list[Luck] = []
        # Those that still play, by place: number of the environment, state, who is to move (negative: several).
        self._where: list[int] = []
        self._environment = self._places
        self._playing: list[Any] = []
        self._movers: list[int] = []
        self._clock = 0
        self._last: Timestep | None = None

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`."""
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        quota = np.broadcast_to(np.asarray(-1 if episodes is None else episodes, np.int64), self.num_envs)
        self._quota = quota.tolist()
        self._idle = [n == 0 for n in self._quota]
        self._luck = [Luck(int(seed)) for seed in seeds]
        self._states = [self._game.new_state(luck) for luck in self._luck]
        self._rows.forget()
        self._clock = 0
        self._gather()
        self._movers = [self._open(e) for e in self._where]
        return self._publish([], [])

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. An illegal action raises EnvError and leaves every game where it was."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        moves = self._rows.take(actions, self._last.due, len(self._playing))
        self._clock += 1
        done: list[None] = []  # `extend` keeps what came before an error, so its length says which environment raised
        try:
            if self._game.simultaneous:
                done.extend(map(_apply_either, self._playing, self._movers, moves.tolist()))
            else:
                done.extend(map(_apply, self._playing, moves[:, 0].tolist()))
        except pyspiel.SpielError as error:
            where = self._where[len(done)]
            raise EnvError(f"{self.spec.id} refused a move in environment {where}: {error}") from error
        self._movers = list(map(_mover, self._playing))
        ended, returns = self._settle() if min(self._movers, default=0) < 0 else ([], [])
        return self._publish(ended, returns)

    def snapshot(self) -> bytes | None:
        """Seeds, episode numbers and moves as JSON; chance is drawn again on restore, from the same keys."""
        if self._last is None:
            return None
        finished = self._last.finished
        document = {
            "format": _SNAPSHOT,
            "game": self.spec.id,
            "quota": self._quota,
            "idle": self._idle,
            "games": [
                [str(k.seed), k.episode, moves_of(s)[self._game.moves_before(k) :]]
                for k, s in zip(self._luck, self._states, strict=True)
            ],
            "ended": [[e.slot.tolist(), e.reward.tolist()] for e in self._last.ended],
            "finished": [column.tolist() for column in (finished.environment, finished.returns, finished.length)],
        }
        return json.dumps(document).encode()

    def restore(self, snapshot: bytes) -> Timestep:
        """See `VectorEnv.restore`. Raises EnvError if the snapshot is not one of an equal environment."""
        try:
            document = json.loads(snapshot)
            fits = document["format"] == _SNAPSHOT and document["game"] == self.spec.id
            luck = [Luck(int(seed), episode) for seed, episode, _ in document["games"]]
            resumed = [resume(self._game, k, row[2]) for k, row in zip(luck, document["games"], strict=True)]
        except (ValueError, KeyError, TypeError, IndexError, pyspiel.SpielError) as error:
            raise EnvError(f"a snapshot of {self.spec.id} cannot be read: {error}; was it cut or changed?") from error
        if not fits or len(luck) != self.num_envs:
            raise EnvError(
                f"a snapshot of {document['game']} with {len(luck)} environments was given to {self.spec.id} with "
                f"{self.num_envs}; restore into an equal environment."
            )
        self._quota, self._idle, self._luck = document["quota"], document["idle"], luck
        self._states = [r.state for r in resumed]
        self._clock = 0
        for e, r in enumerate(resumed):
            self._rows.book.opened[e], self._rows.book.base[e], self._rows.book.begun[e] = r.opened, r.base, -r.length
        self._gather()
        self._movers = [self._open(e) for e in self._where]
        timestep = self._publish([], [])
        ended = tuple(self._rows.ended(np.array(s, np.int32), np.array(r, np.float32)) for s, r in document["ended"])
        environment, returns, length = document["finished"]
        finished = self._rows.finished(*self._rows.columns(environment, returns), np.array(length, np.int32))
        self._last = Timestep(timestep.due, ended, finished)
        return self._last

    def render(self, environment: int) -> str:
        """The present state of one environment as OpenSpiel's text; of an idle one, the end of its last episode."""
        return str(self._state(environment))

    def transcript(self, environment: int) -> str:
        """The episode of one environment so far, or all of it if the environment is idle, as text; see `openspiel_replay.replay`."""
        state = self._state(environment)
        luck = self._luck[environment]
        return replay(self._loaded, moves_of(state), seed=luck.seed, episode=luck.episode)

    def close(self) -> None:
        """Forget all states."""
        self._states, self._playing, self._last = [], [], None

    # ------------------------------------------------------------------------------------------------

    def _state(self, environment: int) -> Any:
        if self._last is None or not 0 <= environment < self.num_envs:
            raise EnvError(
                f"environment {environment} cannot be shown; reset first, and give a number from 0 to {self.num_envs - 1}."
            )
        return self._states[environment]

    def _gather(self) -> None:
        """List those that play."""
        self._where = [e for e in range(self.num_envs) if not self._idle[e]]
        self._environment = np.array(self._where, np.int32)
        self._playing = [self._states[e] for e in self._where]

    def _open(self, environment: int) -> int:
        """Let chance move first; who is to move then."""
        mover = self._luck[environment].play(self._states[environment])
        if mover == TERMINAL:
            raise EnvError(
                f"{self.spec.id} ended in environment {environment} before anybody could move; it cannot be played."
            )
        return mover

    def _settle(self) -> tuple[list[int], list[list[float]]]:
        """Chance moves, episodes end and begin: environments that ended, and their returns."""
        movers, playing = self._movers, self._playing
        ended: list[int] = []
        returns: list[list[float]] = []
        for i, mover in enumerate(movers):
            if mover == CHANCE:
                mover = movers[i] = self._luck[self._where[i]].play(playing[i])
            if mover != TERMINAL:
                continue
            e = self._where[i]
            luck = self._luck[e]
            ended.append(e)
            returns.append(playing[i].returns())
            if luck.episode + 1 == self._quota[e]:
                self._idle[e] = True
                continue
            luck.renew()
            self._states[e] = playing[i] = self._game.new_state(luck)
            movers[i] = self._open(e)
        if any(self._idle[e] for e in ended):
            self._gather()
            self._movers = [mover for mover in movers if mover != TERMINAL]
        return ended, returns

    def _publish(self, ended: Sequence[int], returns: Sequence[Sequence[float]]) -> Timestep:
        """The timestep of all present states, in the buffers of the other side."""
        self._rows.side ^= 1
        closed, finished = self._rows.close(ended, returns, self._clock)
        earned = list(map(_returns, self._playing)) if self._game.pays_along else None
        self._last = Timestep(self._rows.due(self._find(), self._environment, earned), closed, finished)
        return self._last

    def _find(self) -> tuple[NDArray[np.int32], list[int], list[Any], list[list[int]]]:
        """What is due: place, player, state and legal actions of each decision, by rising place."""
        playing = self._playing
        if not self._game.simultaneous:
            return self._places, self._movers, playing, list(map(_legal, playing))
        found = []
        for i, (state, mover) in enumerate(zip(playing, self._movers, strict=True)):
            for p in (mover,) if mover >= 0 else range(self._game.players):
                actions = _legal(state, p)
                if actions:
                    found.append((i, p, state, actions))
        if not found:
            return self._places, [], [], []
        place, who, states, legal = (list(column) for column in zip(*found, strict=True))
        return np.array(place, np.int32), who, states, legal


def _apply_either(state: Any, mover: int, moves: list[int]) -> None:
    if mover >= 0:
        state.apply_action(moves[mover])
    else:
        state.apply_actions(moves)
