"""torch modules: TorchScript and pt2 files, classes with their weights, and the agents of CleanRL's scripts."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from .common import Chance, Refused, choose, restricted
from .outputs import Reader
from .signed import SignedPolicy


def _weights(path: str) -> Any:
    """Return a state dict; nothing but tensors is unpickled."""
    import torch

    try:
        if path.endswith(".safetensors"):
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever unpickling raises
        raise Refused(
            f"the weights {path!r} could not be read, as a state dict: {type(error).__name__}: {error}"
        ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            return state[key]
    return state


def _class(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the module raises
        raise Refused(
            f"{name!r} could not be imported: {type(error).__name__}: {error}. Name it as Python imports it, module:Class; PYTHONPATH adds "
            "folders."
        ) from error


def _with_weights(module: Any, path: str, what: str) -> Any:
    try:
        module.load_state_dict(_weights(path))
    except RuntimeError as error:
        raise Refused(f"the weights {path!r} are not of {what}: {' '.join(str(error).split())[:300]}") from error
    return module.eval()


class TorchModel:
    """A torch module that takes observations [n, …], and as a second argument `mask`, if it has one, the legal actions bool[n, A].

    Args:
        game: Of the message hello.
        what: FILE.pt (TorchScript), FILE.pt2 (torch.export), or module:Class@WEIGHTS, of which WEIGHTS is a state dict.
        deterministic: Play the likeliest action instead of drawing one.
        masks: Play legal actions only.
        output: What the module, or the first of several outputs, returns: action, logits, probabilities or values; "": its type tells.
        args: Keywords of the class, as JSON.
    """

    def __init__(
        self,
        game: dict[str, Any],
        what: str,
        *,
        deterministic: bool = False,
        masks: bool = True,
        output: str = "",
        args: str = "",
    ) -> None:
        self._reader = Reader(game, output=output, deterministic=deterministic, masks=masks)
        self._signed: SignedPolicy | None = None
        name, at, weights = what.partition("@")
        if at:
            try:
                keywords = json.loads(args) if args else {}
                module = _class(name)(**keywords)
            except (TypeError, ValueError) as error:
                raise Refused(f"{name!r} could not be made of args={args!r}: {error}") from error
            self._module = _with_weights(module, weights, name)
        elif what.endswith(".pt2"):
            self._program(game, what, deterministic=deterministic, masks=masks)
        else:
            self._module = _script(what)
        self._takes_mask = _second_argument(self._module) == "mask"

    def _program(self, game: dict[str, Any], path: str, *, deterministic: bool, masks: bool) -> None:
        import torch

        extra = {"ludus.json": ""}
        try:
            self._module = torch.export.load(path, extra_files=extra).module()
        except Exception as error:  # whatever torch raises
            raise Refused(
                f"{path!r} could not be loaded by torch.export: {' '.join(str(error).split())[:300]}"
            ) from error
        if not extra["ludus.json"]:
            return
        text: Any = extra["ludus.json"]
        signature = json.loads(text)

        def run(inputs: dict[str, Any]) -> dict[str, Any]:
            out = self._module(*(torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in signature["inputs"]))
            return {name: value.numpy() for name, value in zip(signature["outputs"], out, strict=True)}

        self._signed = SignedPolicy(game, signature, run, what=repr(path), deterministic=deterministic, masks=masks)

    def act(self, player: int, slots: list[Any], seeds: list[int], observation: Any, mask: Any) -> list[Any]:
        """Return an action per row, by one forward pass."""
        import torch

        with torch.no_grad():
            if self._signed is not None:
                return self._signed.act(player, slots, seeds, observation, mask)
            more = []
            if self._takes_mask:
                width = sum(self._reader.counts(player))
                more = [torch.from_numpy(np.ones((len(slots), width), np.bool_) if mask is None else mask)]
            out = self._module(torch.from_numpy(np.ascontiguousarray(observation)), *more)
        while isinstance(out, (tuple, list, dict)):
            out = next(iter(out.values())) if isinstance(out, dict) else out[0]
        return self._reader.actions(player, slots, seeds, mask, out.cpu().numpy())


def _script(path: str) -> Any:
    import torch

    try:
        import warnings

        load: Any = torch.jit.load
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return load(path, map_location="cpu").eval()
    except Exception as error:  # whatever torch raises
        raise Refused(
            f"{path!r} could not be loaded as TorchScript: {' '.join(str(error).split())[:200]}. Weights alone are given with their class, "
            "torch:module:Class@WEIGHTS."
        ) from error


def _second_argument(module: Any) -> str:
    import inspect

    schema = getattr(module, "schema", None) or getattr(getattr(module, "forward", None), "schema", None)
    if schema is not None:
        names = [argument.name for argument in schema.arguments][1:]
    else:
        try:
            names = list(inspect.signature(module.forward).parameters)
        except (TypeError, ValueError):
            return ""
    return names[1] if len(names) > 1 else ""


# --------------------------------------------------------------------------------------------------------------------
# CleanRL: a state dict, and the class of the script that trained it.


class CleanRLModel:
    """An agent of one of CleanRL's scripts: its class is made of `envs`, an object with the spaces of one environment.

    Asked are `get_action_and_value` (PPO), `get_action` (SAC, C51, discrete SAC), or the module itself, whose output are action values
    (DQN) or actions (DDPG, TD3).

    Args:
        game: Of the message hello.
        path: The state dict that `--save-model` wrote.
        agent: Its class, module:Class, such as cleanrl.ppo:Agent.
        deterministic: Play the likeliest action, or the mean, instead of drawing one.
        masks: Play legal actions only.
    """

    def __init__(
        self, game: dict[str, Any], path: str, *, agent: str = "", deterministic: bool = False, masks: bool = True
    ) -> None:
        if not agent:
            raise Refused(
                "agent=module:Class is missing: the class whose weights these are, such as cleanrl.ppo:Agent."
            )
        self._masks, self._deterministic = masks, deterministic
        self._reader = Reader(game, output="", deterministic=deterministic, masks=masks)
        self._chance = Chance()
        self._agents = [_with_weights(_class(agent)(_envs(player)), path, agent) for player in game["players"]]

    def act(self, player: int, slots: list[Any], seeds: list[int], observation: Any, mask: Any) -> list[Any]:
        """Return an action per row, by one forward pass."""
        import torch

        agent, tensor = self._agents[player], torch.from_numpy(np.ascontiguousarray(observation, np.float32))
        legal = mask if self._masks else None
        with torch.no_grad(), self._drawing(slots, seeds, legal):
            if hasattr(agent, "get_action_and_value"):
                out = agent.get_action_and_value(tensor)[0]
            elif hasattr(agent, "get_action"):
                action = agent.get_action(tensor)
                out = action[2] if self._deterministic and len(action) == 3 and self._is_box(player) else action[0]
            else:
                values = agent(tensor)
                output = Reader(
                    self._reader._game,
                    output="" if self._is_box(player) else "values",
                    deterministic=True,
                    masks=self._masks,
                )
                return output.actions(player, slots, seeds, mask, values.numpy())
        return self._reader.actions(player, slots, seeds, mask, out.cpu().numpy())

    def _is_box(self, player: int) -> bool:
        return not self._reader.counts(player)

    @contextmanager
    def _drawing(self, slots: list[Any], seeds: list[int], mask: Any) -> Iterator[None]:
        """What the agent samples meanwhile is drawn by the episodes' seeds, among the legal actions."""
        import torch
        from torch.distributions import Categorical, Normal

        n, at = len(slots), [0]
        draws = self._chance.draws(slots, seeds, 64)
        normal = np.random.default_rng
        places: list[tuple[Any, str]] = [(Categorical, "sample"), (Normal, "sample"), (Normal, "rsample")]
        known: list[Any] = [getattr(cls, name) for cls, name in places]

        def categorical(wanted: Any, shape: Any = ()) -> Any:
            probs = wanted.probs.numpy()
            if probs.shape[0] != n:
                return known[0](wanted, shape)
            begin, at[0] = at[0], at[0] + probs.shape[1]
            legal = None if mask is None else mask[:, begin : at[0]]
            uniform = None if self._deterministic else draws[:, begin % 64]
            return torch.from_numpy(choose(restricted(probs, legal), uniform))

        def gaussian(wanted: Any, shape: Any = ()) -> Any:  # noqa: ARG001
            if self._deterministic or wanted.loc.shape[0] != n:
                return wanted.loc
            noise = [normal(int(row[0] * 2**53)).standard_normal(tuple(wanted.loc.shape[1:])) for row in draws]
            return wanted.loc + wanted.scale * torch.from_numpy(np.array(noise, np.float32))

        for (cls, name), function in zip(places, (categorical, gaussian, gaussian), strict=True):
            setattr(cls, name, function)
        try:
            yield
        finally:
            for (cls, name), function in zip(places, known, strict=True):
                setattr(cls, name, function)


def _envs(player: dict[str, Any]) -> Any:
    """Return what CleanRL's classes are made of: the spaces, as a vector of one environment has them."""
    observation, action = _space(player["observation"]), _space(player["action"])
    return SimpleNamespace(
        single_observation_space=observation,
        single_action_space=action,
        observation_space=observation,
        action_space=action,
        num_envs=1,
    )


def _space(space: dict[str, Any]) -> Any:
    from gymnasium import spaces

    if space["type"] == "discrete":
        return spaces.Discrete(space["n"], start=space["start"])
    if space["type"] == "multi_discrete":
        return spaces.MultiDiscrete(np.array(space["nvec"]))
    if space["type"] == "multi_binary":
        return spaces.MultiBinary(space["shape"])
    bounds = [
        np.broadcast_to(
            np.array([sign * np.inf if value is None else value for value in np.ravel(np.array(space[name], object))]),
            space["shape"],
        )
        if np.ndim(space[name]) == 0
        else np.array([sign * np.inf if value is None else value for value in space[name]]).reshape(space["shape"])
        for name, sign in (("low", -1), ("high", 1))
    ]
    dtype = np.dtype(space["dtype"]).type
    return spaces.Box(bounds[0].astype(dtype), bounds[1].astype(dtype), dtype=dtype)
