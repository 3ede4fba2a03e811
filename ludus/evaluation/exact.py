"""Exact payoffs and exploitability of growing populations on a compiled game tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ludus.backend.device import gpu_count, parse_device, require_gpu
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.ties import TIE
from ludus.core.types import Exploitability, MetaSolution, Mixture, PolicyRef
from ludus.envs.tree.game_tree import GameTree, PlanStack
from ludus.envs.tree.sweeps import first_alike
from ludus.policies.base import Policy

_WORTH = 200_000
"""Merged terminals from which a GPU sums a single profile faster than one core's compiled sweeps. On one H200, to be measured again by
`benchmarks.gpu_auto`: 0.7 times as fast with 147,420, 3.2 times with 493,608 (27 November 2026). Batches of policies gain earlier."""


def refuse_device(device: str) -> None:
    """Where nothing is computed on one. Raises ConfigError if a GPU was asked for."""
    if parse_device(device).startswith("cuda"):
        raise ConfigError(
            f"device={device} says where exact values are computed, and this game has no tree to compute them from: it is played, on "
            "the CPU. Leave it out."
        )


def tree_on(tree: GameTree, device: str) -> GameTree:
    """Return the tree, which computes where `device` asks (auto, cpu, cuda, cuda:N): auto takes a GPU, where there is one, for large
    trees. Raises ConfigError for a GPU that is not there, and for what is no device."""
    parse_device(device)
    large = tree.arrays.outcomes.weight.shape[1] >= _WORTH
    if not device.startswith("cuda") and not (device == "auto" and large and gpu_count()):
        return tree
    from ludus.envs.tree.tensors import PlacedTree  # a run without one loads no torch for this

    return PlacedTree(tree, require_gpu("cuda" if device == "auto" else device))


class ExactEvaluator:
    """Holds every policy's realisation plans, seat by seat, and the exact table of all profiles; a new policy adds one slice. Of policies
    that cannot be tabulated (bots, those with memory) no plan is known, and nothing where they play a part."""

    def __init__(self, tree: GameTree, population: tuple[int, ...]) -> None:
        """tree: which computes where `tree_on` put it. population: [P] index of each player's population."""
        self.tree, self.population = tree, population
        self._stacks = [PlanStack(tree.num_sequences(p)) for p in range(tree.num_players)]
        self._known = (0,) * tree.num_players
        self._table = np.empty((tree.num_players, *self._known))
        self._index: dict[PolicyRef, int] = {}
        self._unknown: dict[tuple[int, int], str] = {}  # (player, place) -> kind

    def add(self, ref: PolicyRef, policy: Policy) -> None:
        """The next policy of its population."""
        self._index[ref] = len(self._stacks[self.population.index(ref.population)])
        for player, which in enumerate(self.population):
            if which == ref.population:
                table = policy.tabulate(self.tree.enumeration, player, mode=ref.mode)
                if table is None:
                    self._unknown[player, self._index[ref]] = policy.spec.kind
                    self._stacks[player].append(np.zeros(self.tree.num_sequences(player)))
                else:
                    self._stacks[player].append(self.tree.realization(player, table))

    def member_like(self, population: int, policy: Policy, *, mode: str) -> PolicyRef | None:
        """Return the first member that plays as a policy does, in each seat of its population: with the same probabilities, to `TIE`, of
        whatever it does. At information states that its own actions rule out the two may differ: nobody can tell. None if there is none."""
        refs = sorted((place, ref) for ref, place in self._index.items() if ref.population == population)
        first, count = 0, len(refs)
        seats = [p for p, which in enumerate(self.population) if which == population]
        tables = [policy.tabulate(self.tree.enumeration, seat, mode=mode) for seat in seats]
        plans = [self.tree.realization(p, t) for p, t in zip(seats, tables, strict=True) if t is not None]
        while len(plans) == len(seats) and first < count:
            places = [
                first + int(first_alike(self.plans(seat)[first:count], plan, TIE))
                for seat, plan in zip(seats, plans, strict=True)
            ]
            if len(set(places)) == 1:
                return refs[places[0]][1] if places[0] < count else None
            first = max(places)
        return None

    def plans(self, player: int) -> NDArray[np.float64]:
        """Return float64[n_p, S_p]: the plans of a player's policies."""
        return self._stacks[player].array

    def stack(self, player: int, refs: Sequence[PolicyRef]) -> NDArray[np.float64]:
        """Return float64[k, S_p]: the plans of these policies in the seat of `player`."""
        return self.plans(player)[[self._index[ref] for ref in refs]]

    def payoffs(self) -> NDArray[np.float64]:
        """Return expected returns float64[P, n_0, …] of every profile; valid until policies are added. Raises ScenarioError if one cannot
        be tabulated."""
        if self._unknown:
            raise ScenarioError(
                "exact payoffs need policies that depend on the information state alone, and one of kind "
                f"{next(iter(self._unknown.values()))} does not. Set evaluation.payoffs=simulate."
            )
        return self._computed()

    def _computed(self) -> NDArray[np.float64]:
        self._extend()
        return self.table

    @property
    def table(self) -> NDArray[np.float64]:
        """Return float64[P, *known]: what is computed so far; valid until more is."""
        return self._table[(slice(None), *map(slice, self._known))]

    @property
    def known(self) -> tuple[int, ...]:
        """Return [P] sizes of the part of the table that is computed."""
        return self._known

    def restore(self, known: tuple[int, ...], table: NDArray[np.float64]) -> None:
        """Take the part of sizes `known` from `table` float64[P, n_0, …]. Rounding depends on what is computed together, so a resumed run
        must go on with the very slices that the uninterrupted one computes."""
        self._known = (0,) * len(known)
        self._reserve(known)
        part = (slice(None), *map(slice, known))
        self._table[part] = table[part]
        self._known = known

    def _reserve(self, sizes: tuple[int, ...]) -> None:
        rooms = self._table.shape[1:]
        if any(n > room for n, room in zip(sizes, rooms, strict=True)):
            many_players = len(sizes) > 3  # then twice the room for each player would be 2 ** P times as much
            more = [n + 1 if many_players else max(16, 2 * n) for n in sizes]
            grown = np.empty(
                (len(sizes), *(room if n <= room else m for n, room, m in zip(sizes, rooms, more, strict=True)))
            )
            grown[(slice(None), *map(slice, self._known))] = self._table[(slice(None), *map(slice, self._known))]
            self._table = grown

    def _extend(self) -> None:
        sizes = tuple(map(len, self._stacks))
        if sizes == self._known:
            return
        self._reserve(sizes)
        done = list(self._known)
        for player, size in enumerate(sizes):
            if size > done[player]:
                if all(n for p, n in enumerate(done) if p != player):
                    where = [slice(0, n) for n in done]
                    where[player] = slice(done[player], size)
                    stacks = [self.plans(p)[part] for p, part in enumerate(where)]
                    self._table[(slice(None), *where)] = self.tree.payoffs_slice(player, stacks[player], stacks)
                done[player] = size
        self._known = sizes

    def mixed(self, solution: MetaSolution) -> list[NDArray[np.float64]]:
        """Return [P] the plan of each player's meta-strategy (the marginal of a joint one)."""
        return [stack.mixture(m) for stack, m in zip(self._stacks, solution.strategies, strict=True)]

    def values(self, players: Mixture) -> NDArray[np.float64]:
        """Return float64[P]: expected returns where every seat is drawn from `players`; NaN if one of these cannot be tabulated."""
        if self._unknown and any((seat, self._index[ref]) in self._unknown for seat, ref in _sampled_refs(players)):
            return np.full(self.tree.num_players, np.nan)
        plans = [np.empty(0)] * self.tree.num_players
        joint = [f for f in players.factors if len(f.seats) > 1]
        for factor in players.factors:
            if len(factor.seats) == 1:
                refs = [entry[0] for entry in factor.entries]
                plans[factor.seats[0]] = np.asarray(factor.probs) @ self.stack(factor.seats[0], refs)
        total = np.zeros(self.tree.num_players)
        for choice in product(*(range(len(f.entries)) for f in joint)):
            prob = 1.0
            for factor, k in zip(joint, choice, strict=True):
                prob *= factor.probs[k]
                for seat, ref in zip(factor.seats, factor.entries[k], strict=True):
                    plans[seat] = self.stack(seat, [ref])[0]
            total += prob * self.tree.values(plans)
        return total

    def exploitability(self, solution: MetaSolution) -> Exploitability | None:
        """Return what each player's best response gains over the meta-strategies (over a joint one: without seeing what was drawn). None if
        a policy that cannot be tabulated has weight."""
        if any(solution.strategies[player][place : place + 1].any() for player, place in self._unknown):
            return None
        if solution.marginals is not None:
            return self.tree.exploitability(self.mixed(solution))
        assert solution.joint is not None
        profiles = np.argwhere(solution.joint > 0)
        probs = solution.joint[tuple(profiles.T)]
        value = self._computed()[(slice(None), *profiles.T)] @ probs
        plans = [[self.plans(p)[i] for p, i in enumerate(profile)] for profile in profiles.tolist()]
        best = [self.tree.best_response_joint(p, plans, probs.tolist())[0] for p in range(self.tree.num_players)]
        return Exploitability(gain=np.array(best) - value, value=value)


def _sampled_refs(players: Mixture) -> Iterator[tuple[int, PolicyRef]]:
    """Yield who may play which seat."""
    for factor in players.factors:
        for entry, prob in zip(factor.entries, factor.probs, strict=True):
            if prob > 0:
                yield from zip(factor.seats, entry, strict=True)
