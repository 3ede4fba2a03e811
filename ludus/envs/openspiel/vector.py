"""Any OpenSpiel game that can be stepped, through its own API: turns, simultaneous moves, chance, 1 to n players.

actions -> checked, by place -> apply -> chance, drawn by key | end -> next episode -> tensors and legal actions, laid out by player

What OpenSpiel must be asked is asked by `map` over all states; everything else of a step is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyspiel
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.errors import EnvError
from ludus.core.types import Array, ClosedDecisions, FinishedEpisodes, Timestep
from ludus.envs.openspiel.games import check_playable, describe, replay
from ludus.envs.openspiel.states import CHANCE, TERMINAL, ChanceStream, OpenSpielGame, observer, player_moves, resume
from ludus.envs.publisher import TERMINATED, Publisher
from ludus.envs.tree.walk import display_name, load, no_way_on

__all__ = ["Observation", "OpenSpielVectorEnv", "check_playable"]

# --------------------------------------------------------------------------------------------------------------------
# The array side of a step. E environments, P players, A actions. An environment's *place* is its index among those
# that still play. Each player has one agent, so that its slot e is row player × E + e of all slots.

Numbers = NDArray[np.integer]


@kernel
def take(
    actions: Numbers,
    slot: NDArray[np.int32],
    mask: NDArray[np.bool_],
    place: NDArray[np.int32],
    moves: NDArray[np.int64],
    column: int,
) -> int:
    """Write one player's actions, for the rows `slot` and `mask` that were due, into moves[place[slot], column]; the first row whose
    action is illegal, or -1. Nothing is written from an illegal one on."""
    for i in range(len(actions)):
        action = np.int64(actions[i])
        if action < 0 or action >= mask.shape[1] or not mask[i, action]:
            return i
        moves[place[slot[i]], column] = action
    return -1


@kernel
def mark(
    environment: NDArray[np.int32],
    who: Numbers,
    legal: Numbers,
    counts: Numbers,
    num_envs: int,
    free: NDArray[np.int64],
    due: NDArray[np.bool_],
    mask: NDArray[np.bool_],
    row: NDArray[np.int64],
) -> int:
    """Mark n decisions as due, those of the players `who` in the environments `environment`, which rise. The first one with a legal action
    that the game does not have, or -1.

    legal: all decisions' legal actions, concatenated, counts[n] of each. Written: due bool[P × E]; mask bool[P × E, A], player p's
    rows from p × E on; row int64[≥ n]: that of each decision. free int64[P]: scratch.
    """
    for p in range(len(free)):
        free[p] = p * num_envs
    for r in range(len(due)):
        due[r] = False
    begin = 0
    for d in range(len(who)):
        p = who[d]
        r = free[p]
        free[p] = r + 1
        row[d] = r
        due[p * num_envs + environment[d]] = True
        for a in range(mask.shape[1]):
            mask[r, a] = False
        for k in range(begin, begin + counts[d]):
            if legal[k] >= mask.shape[1]:
                return d
            mask[r, legal[k]] = True
        begin += counts[d]
    return -1


@kernel
def pay(
    environment: NDArray[np.int32],
    returns: NDArray[np.float64],
    earned: NDArray[np.float64],
    reward: NDArray[np.float64],
) -> None:
    """Add what the players of some environments have earned in addition to `earned` float64[E, P], which is brought up to date. returns
    float64[k, P]: earned in the episode so far; reward float64[P × E]."""
    num_envs, players = earned.shape
    for i in range(len(environment)):
        e = environment[i]
        for p in range(players):
            reward[p * num_envs + e] += returns[i, p] - earned[e, p]
            earned[e, p] = returns[i, p]


@kernel
def end(
    environment: NDArray[np.int32],
    returns: NDArray[np.float64],
    earned: NDArray[np.float64],
    reward: NDArray[np.float64],
    over: NDArray[np.uint8],
) -> None:
    """Do what `pay` does for the last time in an episode: it is over, and nothing is earned in the next one."""
    pay(environment, returns, earned, reward)
    for e in environment:
        for p in range(earned.shape[1]):
            earned[e, p] = 0.0
        over[e] = TERMINATED


def _bytes(values: Iterable[int]) -> NDArray[np.uint8]:
    """Return numbers below 256 as an array; three times as fast as NumPy's way."""
    return np.frombuffer(bytes(values), np.uint8)


def _integers(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(values), np.int64)


Observation: TypeAlias = Literal["auto", "information_state", "observation"]
SNAPSHOT = "ludus openspiel 2"


def write_snapshot(
    id: str, quota: NDArray[np.int64], idle: NDArray[np.bool_], games: Sequence[Sequence[Any]], last: Timestep
) -> bytes:
    """Return a snapshot as JSON.

    Args:
        id: Of the game.
        quota: int64[E], episodes that environments still may begin.
        idle: bool[E].
        games: [E] of [seed as text, number of the episode, moves].
        last: The timestep, whose ends are in it.
    """
    finished = last.finished
    document = {
        "format": SNAPSHOT,
        "game": id,
        "quota": quota.tolist(),
        "idle": idle.tolist(),
        "games": games,
        "ended": [[e.slot.tolist(), e.reward.tolist()] for e in last.ended],
        "finished": [column.tolist() for column in (finished.environment, finished.returns, finished.length)],
    }
    return json.dumps(document).encode()


def finished_in(document: Mapping[str, Any], players: int) -> FinishedEpisodes:
    """Return the episodes that had ended in a snapshot's timestep."""
    environment, returns, length = document["finished"]
    return FinishedEpisodes(
        np.array(environment, np.int32),
        np.array(returns, np.float64).reshape(-1, players),
        np.ones(len(environment), np.bool_),
        np.array(length, np.int32),
    )


def require_equal(document: Mapping[str, Any], id: str, num_envs: int) -> None:
    """Raise EnvError for a snapshot of another game or number of environments."""
    count = len(document["games"])
    if document["format"] != SNAPSHOT or document["game"] != id or count != num_envs:
        raise EnvError(
            f"a snapshot of {document['game']} with {count} environments was given to {id} with {num_envs}; restore into an equal "
            "environment."
        )


# Unbound, for `map`: looking a method up on each state costs as much as half of a cheap call.
_apply, _mover = pyspiel.State.apply_action, pyspiel.State.current_player
_legal, _returns = pyspiel.State.legal_actions, pyspiel.State.returns


class OpenSpielVectorEnv:
    """`VectorEnv` over states of an OpenSpiel game.

    Final observations are zeros: OpenSpiel defines no tensors at the end of a game, and termination does not bootstrap. Masks are
    always given. Rewards are differences of OpenSpiel's returns between a player's decisions, so rewards in between are summed. Every end
    is a
    termination: where a game has a longest length, OpenSpiel makes it a rule of the game, with returns.

    Args:
        game: A `pyspiel.Game` or its string.
        num_envs: Number of states.
        observation: "information_state" or "observation", OpenSpiel's tensors (flat); "auto": the first that the game has.
        openings: As in `OpenSpielGame`; no decision is made for these moves, and they are no part of an episode's length.

    Raises:
        EnvError: The game cannot be stepped, or has no such tensor.
    """

    def __init__(self, game: Any, num_envs: int, *, observation: Observation = "auto", openings: int = 0) -> None:
        if num_envs < 1:
            raise EnvError(f"num_envs={num_envs} was given; at least 1 is needed.")
        text, game = (game, load(game)) if isinstance(game, str) else ("", game)
        check_playable(game)
        tensor = observer(game, observation)
        self.spec = describe(game, display_name(game, text), size=tensor.size)
        self.num_envs = num_envs
        self._loaded = game
        self._game = OpenSpielGame(game, openings)
        self.openings = openings
        self._tensor = tensor
        players, actions = self._game.players, self._game.actions
        # OpenSpiel's tensors and returns are finite, and every player to move has a legal action.
        self._pub = Publisher(self.spec, num_envs, masked=(True,) * players, compact=True)
        self._bytes = [slice(4 * tensor.size * r, 4 * tensor.size * (r + 1)) for r in range(players * num_envs)]
        self._row = np.zeros(players * num_envs, np.int64)
        self._free = np.zeros(players, np.int64)
        self._column = _bytes if actions < 256 else _integers
        self._returns_so_far = np.zeros((num_envs, players))
        self._moves = np.zeros((num_envs, players if self._game.simultaneous else 1), np.int64)
        self._place = np.zeros(num_envs, np.int32)
        self._states: list[Any] = []
        self._chance: list[ChanceStream] = []
        # Those that still play, by place: number of the environment, state, who is to move (negative: several).
        self._where: list[int] = []
        self._environment = self._place
        self._playing: list[Any] = []
        self._movers: list[int] = []
        self._last: Timestep | None = None

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes."""
        self._pub.reset(seeds, episodes)
        self._chance = [ChanceStream(int(seed)) for seed in seeds]
        self._states = [self._game.new_state(chance) for chance in self._chance]
        self._returns_so_far.fill(0)
        self._begin()
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. An illegal action raises EnvError and leaves every game where it was."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        moves = self._take(actions, self._last)
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
        returns = self._settle() if min(self._movers, default=0) < 0 else None
        return self._publish(returns)

    def snapshot(self) -> bytes | None:
        """Seeds, episode numbers and moves as JSON; chance is drawn again on restore, from the same keys."""
        if self._last is None:
            return None
        games = [
            [str(k.seed), k.episode, player_moves(s)[self._game.moves_before(k) :]]
            for k, s in zip(self._chance, self._states, strict=True)
        ]
        return write_snapshot(self.spec.id, self._pub.quota, self._pub.idle, games, self._last)

    def restore(self, snapshot: bytes) -> Timestep:
        """Restore as `VectorEnv.restore` describes. Raises EnvError if the snapshot is not one of an equal environment."""
        try:
            document = json.loads(snapshot)
            require_equal(document, self.spec.id, self.num_envs)
            chance = [ChanceStream(int(seed), episode) for seed, episode, _ in document["games"]]
            resumed = [resume(self._game, k, row[2]) for k, row in zip(chance, document["games"], strict=True)]
        except (ValueError, KeyError, TypeError, IndexError, pyspiel.SpielError) as error:
            raise EnvError(f"a snapshot of {self.spec.id} cannot be read: {error}; was it cut or changed?") from error
        self._chance, self._states = chance, [r.state for r in resumed]
        self._returns_so_far[:] = [r.base for r in resumed]
        self._pub.resume(
            np.array([k.seed for k in chance], np.uint64),
            np.array(document["quota"], np.int64),
            idle=np.array(document["idle"], np.bool_),
            episode=np.array([k.episode for k in chance], np.int64),
            length=np.array([r.length for r in resumed], np.int32),
            opened=list(np.array([r.opened for r in resumed], np.bool_).T),
        )
        self._begin()
        timestep = self._publish()
        self._last = Timestep(
            timestep.due,
            tuple(self._terminated_decisions(slot, reward) for slot, reward in document["ended"]),
            finished_in(document, self._game.players),
        )
        return self._last

    def render(self, environment: int) -> str:
        """Return the present state of one environment as OpenSpiel's text; of an idle one, the end of its last episode."""
        return str(self._state(environment))

    def transcript(self, environment: int) -> str:
        """Return the episode of one environment so far, or all of it if the environment is idle, as text; see `games.replay`."""
        state = self._state(environment)
        chance = self._chance[environment]
        return replay(self._loaded, player_moves(state), seed=chance.seed, episode=chance.episode)

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

    def _terminated_decisions(self, slot: list[int], reward: list[float]) -> ClosedDecisions:
        """Return terminated decisions, with zeros for the final observations that OpenSpiel does not have."""
        n = len(slot)
        observation, legal = np.zeros((n, self._tensor.size), np.float32), np.ones((n, self._game.actions), np.bool_)
        return ClosedDecisions(
            np.array(slot, np.int32), np.array(reward, np.float32), np.ones(n, np.bool_), observation, legal
        )

    def _begin(self) -> None:
        """List those that play, and let chance move first."""
        self._gather()
        self._movers = [self._open(e) for e in self._where]

    def _gather(self) -> None:
        """List those that play."""
        self._where = np.flatnonzero(~self._pub.idle).tolist()
        self._environment = np.array(self._where, np.int32)
        self._place[self._environment] = np.arange(len(self._where), dtype=np.int32)
        self._playing = [self._states[e] for e in self._where]

    def _open(self, environment: int) -> int:
        """Let chance move first; who is to move then."""
        mover = self._chance[environment].play(self._states[environment])
        if mover == TERMINAL:
            raise EnvError(
                f"{self.spec.id} ended in environment {environment} before a player could move; it cannot be played."
            )
        return mover

    def _take(self, actions: tuple[Array, ...], last: Timestep) -> NDArray[np.int64]:
        """Return the actions for the last timestep's due rows, checked: int64[places, 1], or [places, P] if several may move at once,
        with INVALID_ACTION for those who do not. Raises EnvError if they do not fit, or one is illegal."""
        moves = self._moves[: len(self._playing)]
        simultaneous = self._game.simultaneous
        if simultaneous:
            moves.fill(pyspiel.INVALID_ACTION)
        for p, rows in enumerate(last.due):
            n, mask = len(rows.slot), rows.mask
            player_actions = np.asarray(actions[p])
            if player_actions.shape != (n,) or (n and player_actions.dtype.kind not in "iu"):
                raise EnvError(
                    f"player {p} was given actions of shape {player_actions.shape} for {n} due decisions of {self.spec.id}, of type "
                    f"{player_actions.dtype}; one integer each."
                )
            if not n or mask is None:
                continue
            wrong = take(player_actions, rows.slot, mask, self._place, moves, p if simultaneous else 0)
            if wrong >= 0:
                raise EnvError(
                    f"player {p} chose the illegal action {int(player_actions[wrong])} in slot {int(rows.slot[wrong])} of {self.spec.id}; "
                    f"legal: {np.flatnonzero(mask[wrong]).tolist()}."
                )
        return moves

    def _settle(self) -> NDArray[np.float64] | None:
        """Play chance moves, and end and begin episodes. Returns the returns of the episodes that ended, float64[k, P], by rising
        environment; None if none did.
        """
        movers, playing, where = self._movers, self._playing, self._where
        ended: list[int] = []  # places
        for i, mover in enumerate(movers):
            if mover == CHANCE:
                mover = movers[i] = self._chance[where[i]].play(playing[i])
            if mover == TERMINAL:
                ended.append(i)
        if not ended:
            return None
        over = self._environment[ended]
        returns = np.array([playing[i].returns() for i in ended], np.float64)
        end(over, returns, self._returns_so_far, self._pub.all_rewards, self._pub.over)
        more = self._pub.begin_next().tolist()
        goes_on = set(more)
        for i in ended:
            e = where[i]
            if e not in goes_on:
                continue
            chance = self._chance[e]
            chance.renew()
            self._states[e] = playing[i] = self._game.new_state(chance)
            movers[i] = self._open(e)
            if self._game.pays_along:
                self._returns_so_far[e] = playing[i].returns()
        if len(more) < len(ended):
            self._gather()
            self._movers = [mover for mover in movers if mover != TERMINAL]
        return returns

    def _publish(self, returns: NDArray[np.float64] | None = None) -> Timestep:
        """Return the timestep of all present states. returns: of the episodes that have ended, as OpenSpiel has them."""
        pub = self._pub
        if self._game.pays_along and self._playing:
            now = np.array(list(map(_returns, self._playing)), np.float64)
            pay(self._environment, now, self._returns_so_far, pub.all_rewards)
        environment, who, states, legal = self._find()
        flat: list[int] = []
        for actions in legal:
            flat += actions
        column, row = self._column, self._row
        counts = column(map(len, legal))
        free, due, mask = self._free, pub.all_due, pub.all_masks
        wrong = mark(environment, _bytes(who), column(flat), counts, self.num_envs, free, due, mask, row)
        if wrong >= 0:
            raise EnvError(
                f"{self.spec.id} allows player {who[wrong]} the actions {legal[wrong]}; it has only {self._game.actions}."
            )
        set_from, memory, at = self._tensor.set_from, self._tensor.memory, self._bytes
        into = memoryview(pub.all_observations).cast("B")  # type: ignore[arg-type]
        for state, player, r in zip(states, who, row[: len(who)].tolist(), strict=True):
            set_from(state, player)
            into[at[r]] = memory
        self._last = pub.publish(returns)
        return self._last

    def _find(self) -> tuple[NDArray[np.int32], list[int], list[Any], list[list[int]]]:
        """Return what is due: environment, player, state and legal actions of each decision, by rising place."""
        playing = self._playing
        if not self._game.simultaneous:
            legal = list(map(_legal, playing))
            if not all(legal):
                raise self._no_way_on(playing[legal.index([])])
            return self._environment, self._movers, playing, legal
        decisions: list[tuple[int, int, Any, list[int]]] = []
        for e, state, mover in zip(self._where, playing, self._movers, strict=True):
            before = len(decisions)
            for p in (mover,) if mover >= 0 else range(self._game.players):
                actions = _legal(state, p)
                if actions:
                    decisions.append((e, p, state, actions))
            if len(decisions) == before:
                raise self._no_way_on(state)
        if not decisions:
            return self._environment[:0], [], [], []
        environment, who, states, legal = (list(column) for column in zip(*decisions, strict=True))
        return np.array(environment, np.int32), who, states, legal

    def _no_way_on(self, state: Any) -> EnvError:
        return no_way_on(state.get_game(), len(player_moves(state)))


def _apply_either(state: Any, mover: int, moves: list[int]) -> None:
    if mover >= 0:
        state.apply_action(moves[mover])
    else:
        state.apply_actions(moves)
