"""Specs of the built-in policies. Kept apart from the policies, so that a scenario can be read without loading torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from numpy.typing import NDArray
from pydantic import BeforeValidator

from ludus.core import seeding
from ludus.core.errors import ConfigError, PolicyError
from ludus.core.parts import resolve_name
from ludus.core.types import Enumeration, PolicySpec, Weights

Value = Literal["shared", "separate", "central", "none"]
Network = Literal["nature", "impala"]
Core = Literal["none", "gru", "lstm"]
Decoder = Literal["autoregressive", "decentralised"]
IMAGES = ("nature", "impala")
BODIES = ("mlp", *IMAGES)


def parse_body(value: Any) -> str | dict[str, Any]:
    """Return a body as an algorithm's option: one of `BODIES`, `module:Class`, or that with options, as a mapping with
    `kind`. Raise UnknownName or ConfigError for anything else."""
    options = dict(value) if isinstance(value, Mapping) else {"kind": value}
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise ConfigError(f"a network was expected, by name or as a mapping with `kind`; given {value!r}.")
    if kind not in BODIES:
        resolve_name("network", kind, {name: name for name in BODIES}, expected=(("forward",),), functions=True)
    elif options:
        raise ConfigError(
            f"{kind!r} has no option {next(iter(options))!r} there; those of mlp are the algorithm's own."
        )
    try:
        json.dumps(options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"network {kind!r}: its options cannot be written down ({error}).") from None
    return {"kind": kind, **options} if options else kind


Body = Annotated[str | dict[str, Any], BeforeValidator(parse_body)]


def body_config(
    kind: str | Mapping[str, Any] = "mlp", hidden: Sequence[int] = (64, 64), activation: str = "tanh"
) -> dict[str, Any]:
    """Return the part of a `PolicySpec.config` that `make_body` reads. `hidden` and `activation` are the perceptron's;
    image bodies end in the layer of their papers, and a custom one has its options."""
    options = dict(kind) if isinstance(kind, Mapping) else {"kind": kind}
    kind = str(options.pop("kind"))
    if ":" in kind:
        return {"kind": kind, "options": options}
    if kind in IMAGES:
        return {"kind": kind}
    return {"kind": kind, "hidden": [int(n) for n in hidden], "activation": activation}


def mlp_spec(
    *, inputs: int, actions: int, hidden: Sequence[int], activation: str = "tanh", value: Value = "shared"
) -> PolicySpec:
    """Return the spec of the plainest `ActorCriticPolicy`: logits of a perceptron that sees `inputs` numbers."""
    action = {"kind": "categorical", "actions": int(actions)}
    return actor_critic_spec(
        shape=(inputs,), action=action, body=body_config(hidden=hidden, activation=activation), value=value
    )


def cnn_spec(*, shape: Sequence[int], actions: int, kind: Network = "nature") -> PolicySpec:
    """Return the spec of the plainest `ActorCriticPolicy` for images uint8 of shape (channels, height, width): logits,
    and a shared value."""
    action = {"kind": "categorical", "actions": int(actions)}
    return actor_critic_spec(shape=shape, action=action, body=body_config(kind), scale=1.0 / 255.0)


def gru_spec(*, inputs: int, actions: int, hidden: int) -> PolicySpec:
    """Return the spec of the plainest `ActorCriticPolicy` with memory: a GRU that sees the observation itself, and logits."""
    action = {"kind": "categorical", "actions": int(actions)}
    body = body_config(hidden=())
    return actor_critic_spec(shape=(inputs,), action=action, body=body, core="gru", width=hidden, value="none")


def actor_critic_spec(
    *,
    shape: Sequence[int],
    action: Mapping[str, Any],
    body: Mapping[str, Any],
    core: Core = "none",
    width: int = 64,
    value: Value = "shared",
    scale: float = 1.0,
    normalise: Sequence[str] = (),
    state: int = 0,
    critic: Mapping[str, Any] | None = None,
    agents: int = 1,
) -> PolicySpec:
    """Return the spec of an `ActorCriticPolicy`; with several `agents`, each has a network.

    Args:
        shape: Shape of an observation.
        action: Configuration of a head (`ludus.policies.heads`, `action_config`).
        body: As `body_config` returns it.
        core: Recurrent core.
        width: Units of the core.
        value: Where values come from.
        scale: Factor of observations, unless they are normalised.
        normalise: "observations", "returns" or both.
        state: Entries of a central critic's input in addition to the observation.
        critic: Body of a central critic.
        agents: Number of networks.
    """
    config: dict[str, Any] = {
        "shape": [int(n) for n in shape],
        "action": dict(action),
        "body": dict(body),
        "core": core,
        "value": value,
        "scale": scale,
        "normalise": {name: True for name in normalise},
    }
    if core != "none":
        config["width"] = int(width)
    if value == "central":
        config |= {"state": int(state), "critic": dict(body if critic is None else critic)}
    if agents > 1:
        config["agents"] = int(agents)
    return PolicySpec("actor_critic", config)


def team_transformer_spec(
    *,
    team: int,
    shape: Sequence[int],
    action: Mapping[str, Any],
    width: int = 64,
    layers: int = 1,
    heads: int = 1,
    decoder: Decoder = "autoregressive",
    layer_norm: bool = True,
    scale: float = 1.0,
    normalise: Sequence[str] = (),
) -> PolicySpec:
    """Return the spec of a `TeamTransformerPolicy`, for teams of up to `team` agents.

    shape, action, scale and normalise: as of `actor_critic_spec`. width: of representations; layers: blocks of the encoder and of the
    decoder; heads: of their attention. layer_norm: of observations."""
    return PolicySpec(
        "team_transformer",
        {
            "team": int(team),
            "shape": [int(n) for n in shape],
            "action": dict(action),
            "width": int(width),
            "layers": int(layers),
            "heads": int(heads),
            "decoder": decoder,
            "layer_norm": bool(layer_norm),
            "scale": scale,
            "normalise": {name: True for name in normalise},
        },
    )


def actor_values_spec(
    actor: PolicySpec, *, hidden: Sequence[int], activation: str = "relu", critics: int = 1
) -> PolicySpec:
    """Return the spec of an `ActorValuesPolicy`: an actor of a box, and perceptrons of observation and action beside it."""
    beside = {"hidden": [int(n) for n in hidden], "activation": activation, "count": int(critics)}
    return PolicySpec("actor_values", {"actor": _entry(actor), "critics": beside})


def action_config(space: Space[Any], *, squash: bool = False) -> dict[str, Any]:
    """Return the head for an action space: Discrete and MultiDiscrete (from 0), MultiBinary, or Box. squash: by tanh, where it would
    else be clipped. Raises PolicyError for another space, and for a Box with an entry that has one value only."""
    if isinstance(space, Discrete) and space.start == 0:
        return {"kind": "categorical", "actions": int(space.n)}
    if (choices := _choices(space)) is not None:
        return {"kind": "multi_categorical", "choices": choices}
    if isinstance(space, Box) and space.dtype.kind == "f":
        if not np.less(*float32_bounds(space)).all():
            raise PolicyError(
                f"the action space {space} does not have low < high in every entry. Wrap the environment so that entries with one value "
                "are not played."
            )
        return {"kind": "tanh" if squash else "gaussian", "shape": list(space.shape), **_bounds(space)}
    raise PolicyError(
        f"there is no head for the action space {space}; expected Discrete or MultiDiscrete, counted from 0, or MultiBinary, both "
        "with one dimension, or a Box of floats."
    )


def _choices(space: Space[Any]) -> list[int] | None:
    """Return the number of values of each entry of a vector of choices: of MultiDiscrete (from 0) and MultiBinary with
    one dimension; else None."""
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1 and not space.start.any():
        return [int(n) for n in space.nvec]
    return [2] * space.shape[0] if isinstance(space, MultiBinary) and len(space.shape) == 1 else None


def float32_bounds(space: Box) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return (low, high) float32[*shape] of a box of floats, rounded inwards: actions are float32, and the float32
    nearest to 0.1 is beyond it."""
    with np.errstate(over="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    infinity = np.float32(np.inf)
    return (
        np.where(low < space.low, np.nextafter(low, infinity), low),
        np.where(high > space.high, np.nextafter(high, -infinity), high),
    )


def _bounds(space: Box) -> dict[str, list[float | None]]:
    return {
        name: [float(bound) if np.isfinite(bound) else None for bound in side.ravel()]
        for name, side in zip(("low", "high"), float32_bounds(space), strict=True)
    }


def random_spec(space: Space[Any]) -> PolicySpec:
    """Return the spec of a `RandomPolicy` for an action space: Discrete and MultiDiscrete (from 0), MultiBinary or Box.
    Raise PolicyError for another space."""
    if isinstance(space, Discrete) and space.start == 0:
        return PolicySpec("random", {"actions": int(space.n)})
    if (choices := _choices(space)) is not None:
        return PolicySpec("random", {"choices": choices})
    if isinstance(space, Box):
        return PolicySpec("random", {"shape": list(space.shape), **_bounds(space)})
    raise PolicyError(
        f"there is no random policy for the action space {space}; expected Discrete or MultiDiscrete, counted from 0, MultiBinary, or Box."
    )


def tabular_spec(enumeration: Enumeration, seats: tuple[int, ...]) -> PolicySpec:
    """Return the spec of a table that covers the ids of all `seats` (and of the seats between them)."""
    first = enumeration.offset[min(seats)]
    return PolicySpec("tabular", {"offset": int(first), "actions": int(enumeration.mask.shape[1])})


def information_state_ids(enumeration: Enumeration, seats: tuple[int, ...]) -> slice:
    """Return the ids that `tabular_spec(enumeration, seats)` covers."""
    return slice(enumeration.offset[min(seats)], enumeration.offset[max(seats) + 1])


# --------------------------------------------------------------------------------------------------------------------
# Action values (`ludus.policies.action_values`).

Distribution = Literal["none", "c51", "quantile", "implicit"]


@dataclass(frozen=True, slots=True)
class QHeadSpec:
    """The layers after the body.

    Attributes:
        dueling: Whether there is a state's value in addition to the actions' advantages.
        noisy: Whether layers have parametric noise.
        noise_scale: Initial size of the noise.
        distribution: What is learned of the return: its mean ("none"), probabilities of `atoms` evenly spaced values
            from low to high ("c51"), its quantiles at the midpoints of `atoms` equal shares ("quantile"), or at any
            level ("implicit"; acting uses `atoms` levels).
        atoms: Number of values or quantiles.
        low: Least value of c51.
        high: Largest value of c51.
    """

    dueling: bool = False
    noisy: bool = False
    noise_scale: float = 0.5
    distribution: Distribution = "none"
    atoms: int = 1
    low: float = 0.0
    high: float = 0.0


def action_values_spec(
    *,
    shape: Sequence[int],
    actions: int,
    body: Mapping[str, Any],
    head: QHeadSpec | None = None,
    core: Core = "none",
    width: int = 64,
    scale: float = 1.0,
    agents: int = 1,
    spread: float = 0.0,
    individual: int = 1,
) -> PolicySpec:
    """Return the spec of an `ActionValuePolicy`.

    Args:
        shape: Shape of an observation.
        actions: Number of actions.
        body: As `body_config` returns it.
        head: Head; None: the default.
        core: Recurrent cell.
        width: Units of the cell.
        scale: Factor of observations.
        agents: Above 1, each agent has a network, and flat observations end in its one-hot id.
        spread: How differently environments explore (`per_env_exploration`).
        individual: Above 1, one network, which does not see the ids at the end of observations, and for each agent a
            layer of additional values.
    """
    config: dict[str, Any] = {
        "shape": [int(n) for n in shape],
        "actions": int(actions),
        "body": dict(body),
        "core": core,
        "scale": float(scale),
        "head": asdict(head or QHeadSpec()),
    }
    if core != "none":
        config["width"] = int(width)
    if agents > 1:
        config["agents"] = int(agents)
    if spread:
        config["spread"] = float(spread)
    if individual > 1:
        config["individual"] = int(individual)
    return PolicySpec("action_values", config)


def per_env_exploration(size: Any, place: NDArray[np.float32], *, spread: float) -> NDArray[np.float64]:
    """Return each row's exploration float64[n], size^(1 + spread × place), of an epsilon or a width of noise in [0, 1].
    place: float32[n], position of the row's environment, from 0 to 1. (Horgan et al. 2018, "Distributed prioritized
    experience replay", section 4.1.)"""
    out: NDArray[np.float64] = np.asarray(size, np.float64) ** (1.0 + spread * place.astype(np.float64))
    return out


# --------------------------------------------------------------------------------------------------------------------
# Published modes that a learner plays its own episodes in, each with some probability. The mode of an episode
# follows from its id alone, so that actors and learners agree without communication, and an
# episode keeps its mode for as long as it lasts.

Modes: TypeAlias = tuple[tuple[str, float], ...]
"""(mode, probability), which sum to 1; (): always "explore"."""


def mode_keys(seed: int, players: int) -> NDArray[np.uint64]:
    """Return a stream key for each player's draws, uint64[players]. seed: of the task."""
    return seeding.keys(seed, "modes", count=players)


def sample_modes(keys: NDArray[np.uint64], episode: NDArray[np.int64], modes: Modes) -> NDArray[np.int8]:
    """Return which of `modes`, int8[n], is played in episodes int64[n] by the players whose keys are uint64[n]:
    independent draws."""
    shares = np.array([share for _, share in modes])
    bounds = np.cumsum(shares / shares.sum())[:-1]
    uniform = seeding.uniforms(keys, np.asarray(episode).astype(np.uint64))
    return np.searchsorted(bounds, uniform, side="right").astype(np.int8)


# --------------------------------------------------------------------------------------------------------------------
# Whether policies can be written as tables, from their specs alone: so that a scenario is refused before anything
# is trained.

_PARTS = {"nfsp": "best_response", "averaged": "newest"}  # the part that is a mode of its own; else the average plays


def tabulates(spec: PolicySpec, *, mode: str) -> bool:
    """Return whether `Policy.tabulate` returns a table in this mode: the policy depends on the information state alone,
    and has discrete actions. True of unknown kinds."""
    config = spec.config
    if spec.kind == "actor_critic":
        return bool(config["core"] == "none" and config["action"]["kind"] == "categorical" and "agents" not in config)
    if spec.kind == "action_values":
        exploring = mode == "explore" and (config["head"]["noisy"] or config.get("spread"))
        return bool(config["core"] == "none" and "agents" not in config and not exploring)
    if spec.kind == "actor_values":
        return False
    if spec.kind in _PARTS:
        part = config[mode if mode == _PARTS[spec.kind] else "average"]
        return tabulates(PolicySpec(part["kind"], part["config"]), mode="greedy" if mode == "greedy" else "explore")
    if searches(spec):
        return mode != "self_play"  # whose search has noise
    return spec.kind != "bot"


def nfsp_spec(best_response: PolicySpec, average: PolicySpec) -> PolicySpec:
    """Return the spec of an `NFSPPolicy`."""
    return PolicySpec("nfsp", {"best_response": _entry(best_response), "average": _entry(average)})


def averaged_spec(spec: PolicySpec) -> PolicySpec:
    """Return the spec of an `AveragedPolicy` of two policies of `spec`."""
    return PolicySpec("averaged", {"newest": _entry(spec), "average": _entry(spec)})


SEARCH_POLICY, SEARCH_VALUE = "search_policy", "search_value"
"""What a policy that searches answers as extras: the policy float32[n, A] that it found, and the value float32[n]."""


def searches(spec: PolicySpec) -> bool:
    """Whether policies of this spec have the mode "search"."""
    return spec.kind in ("searching", "muzero")


def searching_spec(
    network: PolicySpec,
    *,
    rules: Mapping[str, Any],
    search: Mapping[str, Any],
    play: int,
    noise: Mapping[str, float],
) -> PolicySpec:
    """Return the spec of a `SearchingPolicy`. search: `SearchSettings` as it trains. play: simulations of a search as it plays. noise:
    concentration and share of the Dirichlet, temperature, and moves that are drawn by it."""
    parts = {"rules": dict(rules), "search": dict(search), "play": int(play), "noise": dict(noise)}
    return PolicySpec("searching", {"network": _entry(network), **parts})


def choice_spec(chooser: PolicySpec, members: Sequence[tuple[PolicySpec, str]]) -> PolicySpec:
    """Return the spec of a `ChoicePolicy`. members: each with the mode that it is played in."""
    entries = [{**_entry(member), "mode": mode} for member, mode in members]
    return PolicySpec("choice", {"chooser": _entry(chooser), "members": entries})


def conditioned_spec(network: PolicySpec) -> PolicySpec:
    """Return the spec of a `ConditionedPolicy`."""
    return PolicySpec("conditioned", {"network": _entry(network)})


def muzero_spec(
    *,
    inputs: int,
    actions: int,
    hidden: Sequence[int],
    latent: int,
    support: int,
    discount: float,
    search: Mapping[str, Any],
    play: int,
    noise: Mapping[str, float],
    most: float | None = None,
) -> PolicySpec:
    """Return the spec of a `MuZeroPolicy`.

    Args:
        inputs: Entries of an observation.
        actions: Number of actions.
        hidden: Widths of its network's hidden layers.
        latent: Size of a latent state.
        support: Support of rewards and values.
        discount: Discount, negative where opponents move in turn.
        search: `SearchSettings` for training.
        play: Simulations of a search for play.
        noise: Concentration and share of the Dirichlet.
        most: Largest reward or value, if it is known.
    """
    network = {
        "inputs": int(inputs),
        "actions": int(actions),
        "hidden": list(hidden),
        "latent": latent,
        "support": support,
        "most": most,
    }
    parts = {"search": dict(search), "play": int(play), "noise": dict(noise)}
    return PolicySpec("muzero", {**network, "discount": float(discount), **parts})


def _entry(spec: PolicySpec) -> dict[str, Any]:
    return {"kind": spec.kind, "config": dict(spec.config)}


def spec_of(spec: PolicySpec, part: str) -> PolicySpec:
    """Return the spec of one part. Raises PolicyError where there is none."""
    entry: Any = spec.config.get(part)
    if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str):
        raise PolicyError(f"the config of a {spec.kind!r} policy has {part!r}: {{kind, config}}; given {entry!r}.")
    return PolicySpec(entry["kind"], dict(entry.get("config", {})))


def part_of(weights: Weights, part: str) -> Weights:
    """Return the weights of one part, by the names that they have in it."""
    return {name[len(part) + 1 :]: array for name, array in weights.items() if name.startswith(part + "/")}


def joined(parts: Mapping[str, Weights]) -> Weights:
    """Return the weights of a policy whose parts have these."""
    return {f"{part}/{name}": array for part, weights in parts.items() for name, array in weights.items()}
