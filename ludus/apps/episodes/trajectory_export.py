"""Trajectories of a run's policies, or of any, as a Parquet file.

A player's episodes are shared out among the policies that its strategy mixes, in proportion; each policy then plays its own as a learner
does, in a vector of environments, against what the others' strategies draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ludus.apps.episodes.recording import strategies_of
from ludus.core import seeding
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.machine import check_place
from ludus.core.player_names import PlayerNames
from ludus.core.types import EnvSpec, Mixture, OpponentFactor, PolicyRef
from ludus.envs.base import VectorEnv
from ludus.evaluation.evaluate import Tell
from ludus.policies.base import Policy
from ludus.replay.parquet import TrajectoryFile, TrajectoryOrigin, check_pyarrow
from ludus.rollout.base import RolloutRequest
from ludus.rollout.host import LocalRollouts
from ludus.rollout.opponents import mixture_refs
from ludus.storage.stored_run import open_run

MOST_ENVS = 256  # that are stepped together where nobody says how many
_IMAGE_ENVS = 8  # where an observation is large
_IMAGE = 4096  # entries from which it is
_ROUNDS = 4  # episodes of each environment between two reports; an environment starts afresh after them


@dataclass(frozen=True, slots=True)
class WrittenTrajectories:
    """decisions: that were written. played: episodes of each policy, by (player, name)."""

    path: Path
    decisions: int
    played: Mapping[tuple[int, str], int]


def record_run_trajectories(
    run_dir: Path | str,
    path: Path,
    *,
    policies: Sequence[str] = (),
    players: Sequence[int | str] = (),
    episodes: int = 1,
    seed: int = 0,
    num_envs: int | None = None,
    tell: Tell | None = None,
) -> WrittenTrajectories:
    """Write the decisions of a run's policies in its environment as training data; see `record_trajectories`.

    Args:
        run_dir: Directory of the run.
        path: Output file (Parquet).
        policies: One name per player, or one for all, such as "@0/0-12" or "RUN@best" (see `ludus.evaluation.policies`); default: "@meta",
            the last meta-strategy. In the file the run's policies are named RUN@PLAYER/POLICY.
        players: Players whose decisions are written, by number or agent name; default: all.
        episodes: Episodes of each player.
        seed: Seed of the episodes.
        num_envs: Environments that are stepped together.
        tell: Called with the progress.

    Raises:
        ConfigError: For unknown names (with the nearest one), or another number of them.
        RunError: If the run cannot be read.
    """
    check_file(path)
    stored = open_run(run_dir)
    settings = stored.env.played

    def make(count: int) -> VectorEnv:
        return settings.model_copy(update={"workers": min(settings.workers, count)}).make(num_envs=count)

    env = make(num_envs or min(episodes, settings.num_envs, MOST_ENVS))
    if num_envs is None and env.num_envs > _IMAGE_ENVS and _large(env.spec):
        env.close()
        env = make(_IMAGE_ENVS)
    named, mixture = strategies_of(stored, policies, env)
    return record_trajectories(
        path,
        env,
        mixture,
        named.policy,
        name=lambda ref: f"{stored.folder.name}@{stored.name(ref)}" if ref in stored.records else ref.policy,
        players=players,
        episodes=episodes,
        seed=seed,
        notes={"run": stored.folder.name, "environment": settings.model_dump(mode="json")},
        tell=tell,
    )


def record_trajectories(
    path: Path,
    env: VectorEnv,
    strategies: Mixture,
    policy: Callable[[PolicyRef], Policy],
    *,
    players: Sequence[int | str] = (),
    episodes: int = 1,
    seed: int = 0,
    notes: Mapping[str, Any] | None = None,
    name: Callable[[PolicyRef], str] = lambda ref: ref.policy,
    tell: Tell | None = None,
) -> WrittenTrajectories:
    """Play episodes of each player and write the player's decisions to a file, replacing a file of that name. Closes `env` in the end.

    Players who play one policy each, with no mixture anywhere, have the same episodes, under the same numbers; those of one policy are
    played once for all of them. Equal arguments with as many environments give equal trajectories. Memory at the start of an episode, which
    is zero, is not written.

    Args:
        path: Output file (Parquet).
        env: Environments that are stepped together.
        strategies: Strategies of all players.
        policy: Finds their policies by ref.
        players: Players whose decisions are written, by number or agent name; default: all.
        episodes: Episodes of each player.
        seed: Seed of the episodes.
        notes: Written into the file's metadata.
        name: Names the policies in the file.
        tell: Called with the progress.

    Raises:
        ConfigError: For a file that cannot be written, without pyarrow, and for players who do not exist or whose spaces differ (one file
            holds one kind).
    """
    try:
        check_file(path)
        chosen = _check_players(env.spec, players)
        plan = _plan(strategies, chosen, episodes=episodes, seed=seed)
        agent = env.spec.agents_of(chosen[0])[0]
        origin = TrajectoryOrigin(
            env=env.spec.id,
            players=env.spec.num_players,
            seats=chosen,
            observation=agent.observation,
            action=agent.action,
            policies=tuple(dict.fromkeys(name(part.ref) for part in plan)),
            notes={"seed": seed, "episodes": episodes, "num_envs": env.num_envs, **(notes or {})},
        )
        rollouts = LocalRollouts.around(env)
        played: dict[tuple[int, str], int] = {}
        with TrajectoryFile(path, origin) as file:
            for order in (order for part in plan for order in _orders(part, _ROUNDS * env.num_envs)):
                assert order.learner is not None
                refs = dict.fromkeys((order.learner, *mixture_refs(order.opponents)))
                piece = rollouts.run(order, [(ref, policy(ref)) for ref in refs]).trajectories
                if piece is not None:
                    file.write(replace(piece, policy=name(order.learner), memory0=None))
                for player in order.seats:
                    who = player, name(order.learner)
                    played[who] = played.get(who, 0) + order.amount
                if tell is not None:
                    tell(sum(played.values()), episodes * len(chosen))
        return WrittenTrajectories(path, file.rows, played)
    finally:
        env.close()


@dataclass(frozen=True, slots=True)
class _Part:
    """Episodes `begin` … `begin` + amount - 1 of players who play `ref` in them. first: number of their episode 0. key: of all luck."""

    players: tuple[int, ...]
    ref: PolicyRef
    others: Mixture
    begin: int
    amount: int
    first: int
    key: int


def _plan(strategies: Mixture, players: Sequence[int], *, episodes: int, seed: int) -> list[_Part]:
    """Return what is played for these players. Those who all play one policy, where nobody mixes, are played for together."""
    parts = [part for player in players for part in _parts(strategies, player, episodes=episodes, seed=seed)]
    if _mixed(strategies):
        return parts
    by_policy: dict[PolicyRef, _Part] = {}
    for part in parts:
        if (before := by_policy.get(part.ref)) is None:
            by_policy[part.ref] = part
        else:
            others = _others(before.others, part.players[0], part.ref)
            by_policy[part.ref] = replace(before, players=before.players + part.players, others=others)
    return list(by_policy.values())


def _mixed(strategies: Mixture) -> bool:
    return any(len(factor.entries) > 1 for factor in strategies.factors)


def _parts(strategies: Mixture, player: int, *, episodes: int, seed: int) -> list[_Part]:
    """Return how a player's episodes are shared out: systematic sampling, so that a policy of weight w gets w · episodes, rounded up or
    down."""
    if episodes < 1:
        raise ScenarioError(f"episodes={episodes} was given to be recorded; at least 1 is needed.")
    mixed = _mixed(strategies)
    own = next((factor for factor in strategies.factors if player in factor.seats), None)
    if own is None:
        raise ScenarioError(f"nobody was given to play as player {player}; every player needs a strategy.")
    place = own.seats.index(player)
    weights: dict[PolicyRef, float] = {}
    for entry, prob in zip(own.entries, own.probs, strict=True):
        weights[entry[place]] = weights.get(entry[place], 0.0) + prob
    shares = np.cumsum(list(weights.values()))
    offset = np.random.default_rng(seeding.key(seed, "shares", player)).random()
    ends = np.floor(shares / shares[-1] * episodes + offset).astype(int)
    ends[-1] = episodes
    parts, begin = [], 0
    for ref, end in zip(weights, np.minimum(ends, episodes).tolist(), strict=True):
        if end > begin:
            key = seeding.key(seed, "trajectories", player if mixed else 0)
            others = _others(strategies, player, ref)
            parts.append(_Part((player,), ref, others, begin, end - begin, player * episodes if mixed else 0, key))
            begin = end
    return parts


def _others(strategies: Mixture, player: int, ref: PolicyRef) -> Mixture:
    """Return whom a player meets who plays `ref`: of a joint distribution, what it is then."""
    factors = []
    for factor in strategies.factors:
        if player not in factor.seats:
            factors.append(factor)
        elif len(factor.seats) > 1:
            place = factor.seats.index(player)
            entries_left = [(e, p) for e, p in zip(factor.entries, factor.probs, strict=True) if e[place] == ref]
            total = sum(p for _, p in entries_left)
            entries = tuple(e[:place] + e[place + 1 :] for e, _ in entries_left)
            seats = factor.seats[:place] + factor.seats[place + 1 :]
            factors.append(OpponentFactor(seats, entries, tuple(p / total for _, p in entries_left)))
    return Mixture(tuple(factors))


def _orders(part: _Part, most: int) -> Iterator[RolloutRequest]:
    """Of at most so many episodes each."""
    for begin in range(part.begin, part.begin + part.amount, most):
        yield RolloutRequest(
            learner=part.ref,
            seats=part.players,
            together=len(part.players) > 1,
            opponents=part.others,
            unit="episodes",
            amount=min(most, part.begin + part.amount - begin),
            seed=seeding.key(part.key, "part", begin),
            first_episode=part.first + begin,
        )


def check_file(path: Path) -> None:
    """What can be known before anything is played. Raises ConfigError for a name that does not end in .parquet, a folder that there is not
    or that cannot be written, a folder instead of a file, and without pyarrow."""
    if path.suffix.lower() != ".parquet":
        raise ConfigError(f"{str(path)!r} was given for trajectories; a name that ends in .parquet is needed.")
    check_place(path)
    check_pyarrow()


def _check_players(spec: EnvSpec, players: Sequence[int | str]) -> tuple[int, ...]:
    names = PlayerNames.of(spec)
    chosen = tuple(names.players(players or range(spec.num_players), what="players"))
    agents = [agent for p in chosen for agent in spec.agents_of(p)]
    kinds = {(a.observation.shape, str(a.observation.dtype), str(a.action)) for a in agents}
    if len(kinds) > 1:
        raise ConfigError(
            f"players {list(chosen)} of {spec.id} have different spaces ({'; '.join(sorted(map(str, kinds)))}), and one file holds one "
            "kind; name players that are alike, and write a file for each kind."
        )
    return chosen


def _large(spec: EnvSpec) -> bool:
    return spec.enumeration is None and any(int(np.prod(a.observation.shape or ())) >= _IMAGE for a in spec.agents)
