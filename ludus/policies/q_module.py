"""Action-value networks that are torch modules, played epsilon-greedily: bodies of any kind, heads of any kind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.errors import PolicyError
from ludus.policies.actor_critic_team import agents_of
from ludus.policies.bodies import make_body, orthogonal
from ludus.policies.categorical import CategoricalPolicy, check_mode, full_mask
from ludus.policies.checks import entry, fitted, integer
from ludus.policies.probabilities import epsilon_mix
from ludus.policies.q_head import QHead
from ludus.policies.q_network import checked_epsilon, epsilon_greedy
from ludus.policies.q_specs import Head
from ludus.policies.sampling import one_hot_best
from ludus.policies.torch_module import _SEEDING
from ludus.seeding import mix, uniform
from ludus.types import Act, Array, Enumeration, PolicySpec, Weights


class QModule(nn.Module):
    """Observations float32[n, *shape] -> float32[n, A, K], as `QHead` says."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        shape, body = entry(spec, "shape"), entry(spec, "body")
        self.shape, self.actions = tuple(shape), integer(spec, "actions")
        self.body, features = make_body(body, self.shape, scale=1 / 255 if spec.config.get("image") else 1.0)
        self.head = QHead(features, self.actions, head_of(spec))

    def forward(
        self, x: Tensor, mask: Tensor | None, noise: Tensor | None = None, levels: Tensor | None = None
    ) -> Tensor:
        """See `QHead.forward`."""
        out: Tensor = self.head(self.body(x), mask, noise, levels)
        return out


class QTeam(nn.Module):
    """A `QModule` for each agent of a team: rows go through that of the agent whose one-hot id they end in."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        self.agents = integer(spec, "agents", least=2)
        self.members = nn.ModuleList(QModule(spec) for _ in range(self.agents))
        first = self.first
        self.shape, self.actions = first.shape, first.actions

    @property
    def first(self) -> QModule:
        """The first agent's."""
        member = self.members[0]
        assert isinstance(member, QModule)
        return member

    @property
    def head(self) -> QHead:
        """The first agent's: all are of one kind."""
        return self.first.head

    def forward(
        self, x: Tensor, mask: Tensor | None, noise: Tensor | None = None, levels: Tensor | None = None
    ) -> Tensor:
        """See `QHead.forward`. Rows without an id count as the first agent's."""
        agent = x[:, -self.agents :].argmax(dim=1)
        order = [(agent == k).nonzero()[:, 0] for k in range(self.agents)]

        def own(of: Tensor | None, rows: Tensor) -> Tensor | None:
            return of[rows] if of is not None and of.ndim == 2 else of

        parts = [
            member(x[rows], own(mask, rows), own(noise, rows), own(levels, rows))
            for member, rows in zip(self.members, order, strict=True)
        ]
        return torch.cat(parts)[torch.cat(order).argsort()]


def module_of(spec: PolicySpec) -> QModule | QTeam:
    """The network of a `q_module` spec, as torch initialises it."""
    return QTeam(spec) if "agents" in spec.config else QModule(spec)


def head_of(spec: PolicySpec) -> Head:
    """Raises PolicyError for a head that is none."""
    given = entry(spec, "head")
    try:
        head = Head(**given)
    except TypeError:
        raise PolicyError(f"policy spec {spec.kind!r}: head is {given!r}; expected the entries of a Head.") from None
    if head.distribution not in ("none", "c51", "quantile", "implicit"):
        raise PolicyError(f"policy spec {spec.kind!r}: there is no distribution {head.distribution!r}.")
    if head.distribution == "c51" and not (head.atoms >= 2 and head.low < head.high):
        raise PolicyError(
            f"policy spec {spec.kind!r}: c51 has {head.atoms} atoms from {head.low} to {head.high}; expected two or more, low < high."
        )
    return head


def make_module(spec: PolicySpec, *, seed: int = 0) -> QModule | QTeam:
    """A fresh network, initialised from `seed` alone: orthogonal of gain √2, but the last layer small (gain 0.1) or noisy."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = module_of(spec)
        for part in module.modules():
            if isinstance(part, QModule):
                orthogonal(part.body)
                for layer in (part.head.advantage, part.head.value):
                    if isinstance(layer, nn.Linear):
                        orthogonal(layer, 0.1)
    return module.eval()


def loaded(module: nn.Module, spec: PolicySpec, weights: Weights) -> float:
    """Copy weights into the module; answers the epsilon that comes with them. Raises PolicyError if they do not fit."""
    shapes: dict[str, tuple[int, ...]] = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    arrays = fitted(spec, weights, {**shapes, "epsilon": (1,)})
    epsilon = checked_epsilon(spec, arrays.pop("epsilon"))
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return epsilon


def arrays_of(module: nn.Module) -> dict[str, Array]:
    """Copies of the parameters by name."""
    return {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}


def rows_of(observation: Array, shape: tuple[int, ...]) -> Tensor:
    """Observations [n, …] as float32[n, *shape]."""
    rows = np.ascontiguousarray(observation, np.float32).reshape(len(observation), *shape)
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())


class QModulePolicy(CategoricalPolicy):
    """Kind `q_module`; config as `q_module_spec` makes it. Weights are named as in the module's `state_dict()`, and `epsilon` float32[1]:
    "explore" plays a uniform legal action with that probability, and otherwise, like "greedy", the best one.

    A noisy head has noise of its own in every row and decision of "explore", made from a second uniform; so acting stays pure, and how
    large the noise is travels with the weights. Its logp is that of the action given this noise, and "explore" has no table.

    With `agents` in its config each agent of the team has a network of its own, `members.K.…`, and observations end in its one-hot id.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        with _SEEDING, torch.random.fork_rng(devices=[]):
            self._module = module_of(spec).eval().requires_grad_(False)
        self.actions, self._shape = self._module.actions, self._module.shape
        self.epsilon = loaded(self._module, spec, weights)
        head = self._module.head
        self._noise_size = head.noise_size
        self.noise_width = 2 if self._noise_size else 1
        self._levels: Tensor | None = None
        if head.head.distribution == "implicit":
            self._levels = (torch.arange(head.head.atoms, dtype=torch.float32) + 0.5) / head.head.atoms

    def values(self, observation: Array, mask: NDArray[np.bool_] | None, noise: Array | None = None) -> Array:
        """Action values float32[n, A]; noise float32[n]: the uniforms that a noisy head's are made from, None for none. Raises PolicyError
        where a team's agents cannot be told apart."""
        if isinstance(self._module, QTeam):
            agents_of(observation, self._module.agents)
        x = rows_of(observation, self._shape)
        legal = None if mask is None else torch.from_numpy(np.ascontiguousarray(mask))
        random = None
        if noise is not None and self._noise_size:
            random = torch.from_numpy(scaled_normals(np.ascontiguousarray(noise, np.float32), self._noise_size))
        levels = None if self._levels is None else self._levels.expand(len(x), -1)
        with torch.no_grad():
            values: Array = self._module.head.means(self._module(x, legal, random, levels)).numpy()
        return values

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> Act:
        """As `CategoricalPolicy.act`, without a table of probabilities in between."""
        check_mode(self, mode)
        if mask is not None:
            mask = full_mask(mask, len(observation), self.actions)
        random = noise[:, 1] if self._noise_size and mode == "explore" else None
        values = self.values(observation, mask, random)
        return epsilon_greedy(values, mask, noise, self.epsilon if mode == "explore" else 0.0)

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        probs = one_hot_best(self.values(observation, mask), mask)
        return (epsilon_mix(probs, mask, self.epsilon) if mode == "explore" else probs), {}

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """As `CategoricalPolicy.tabulate`; None of "explore" with a noisy head, whose choices are no product of a table."""
        if self._noise_size and mode == "explore":
            check_mode(self, mode)
            return None
        return super().tabulate(enumeration, player, mode=mode)

    def weights(self) -> Weights:
        return {**arrays_of(self._module), "epsilon": np.array([self.epsilon], np.float32)}


@njit(cache=True)
def scaled_normals(noise: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """f(z) = sign(z) √|z| of standard normals z, float32[n, size], which each row has from its own uniform (Fortunato et al. 2018, below
    equation 11; Box and Muller 1958)."""
    out = np.empty((len(noise), size), np.float32)
    for i in range(len(noise)):
        key = mix(np.uint64(np.float64(noise[i]) * 4294967296.0))
        for j in range(0, size, 2):
            radius = np.sqrt(-2.0 * np.log(1.0 - uniform(key, np.uint64(j))))
            angle = 2.0 * np.pi * uniform(key, np.uint64(j + 1))
            for k in range(min(2, size - j)):
                z = radius * (np.cos(angle) if k == 0 else np.sin(angle))
                out[i, j + k] = np.sqrt(abs(z)) * (1.0 if z > 0.0 else -1.0)
    return out
