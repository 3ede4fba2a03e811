"""Files of Stable-Baselines3 and sb3-contrib."""

from __future__ import annotations

import json
import pickle
import zipfile
from typing import Any

import numpy as np

from .common import Chance, Refused, choose, require_actions, require_box, restricted, starts

_MODULES = {
    "stable_baselines3": ("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3"),
    "sb3_contrib": ("CrossQ", "MaskablePPO", "QRDQN", "RecurrentPPO", "TQC", "TRPO"),
}
_FAMILIES = (  # what the module of a file's policy class begins with
    ("sb3_contrib.common.maskable", "MaskablePPO"),
    ("sb3_contrib.common.recurrent", "RecurrentPPO"),
    ("sb3_contrib.ppo_recurrent", "RecurrentPPO"),
    ("sb3_contrib.ppo_mask", "MaskablePPO"),
    ("sb3_contrib.qrdqn", "QRDQN"),
    ("sb3_contrib.tqc", "TQC"),
    ("sb3_contrib.crossq", "CrossQ"),
    ("sb3_contrib.trpo", "TRPO"),
    ("stable_baselines3.dqn", "DQN"),
    ("stable_baselines3.sac", "SAC"),
    ("stable_baselines3.td3", "TD3"),
)
_GREEDY = ("CrossQ", "DDPG", "DQN", "QRDQN", "TD3")
"""Whose exploration is noise around one action: they always play that."""


class SB3Model:
    """A policy that Stable-Baselines3 saved.

    Args:
        game: Of the message hello.
        path: FILE.zip.
        deterministic: Play the likeliest action, or the mean, instead of drawing one.
        masks: Play legal actions only: MaskablePPO is given them, others' probabilities and values are restricted to them.
        algorithm: Its class, where the file does not tell; a policy class of the user's own, say.
        normalize: File of `VecNormalize.save`, whose statistics observations are normalized with.
    """

    def __init__(
        self,
        game: dict[str, Any],
        path: str,
        *,
        deterministic: bool = False,
        masks: bool = True,
        algorithm: str = "",
        normalize: str = "",
    ) -> None:
        self._game, self._masks, self._deterministic = game, masks, deterministic
        self.algorithm = algorithm or algorithm_of(path)
        self._model = _loaded(path, self.algorithm)
        self._policy = self._model.policy
        self._policy.set_training_mode(False)
        self._norm = _statistics(normalize) if normalize else None
        self._chance = Chance()
        self._memory: dict[Any, Any] = {}
        self._require_fit(f"{path!r} ({self.algorithm})")

    def _require_fit(self, what: str) -> None:
        from gymnasium import spaces

        observation, action = self._model.observation_space, self._model.action_space
        self._unflatten = not isinstance(observation, spaces.Box)
        if self._unflatten:  # Ludus gives the agent of such a space what Gymnasium flattens it to
            require_box(self._game, (spaces.flatdim(observation),), "", what=what)
        else:
            shape = observation.shape
            size = tuple(self._game["players"][0]["observation"]["shape"])
            if len(shape) == 3 and size != shape and (size[2:] + size[:2]) == shape:
                shape = size  # images with their channels last, which VecTransposeImage turned
            require_box(self._game, shape, str(observation.dtype), what=what)
        if isinstance(action, spaces.Discrete):
            require_actions(self._game, "discrete", int(action.n), what=what)
        elif isinstance(action, spaces.MultiDiscrete):
            require_actions(self._game, "multi_discrete", action.nvec.tolist(), what=what)
        elif isinstance(action, spaces.MultiBinary):
            require_actions(self._game, "multi_binary", action.shape, what=what)
        else:
            require_actions(self._game, "box", action.shape, what=what)
            self._require_bounds(action, what)

    def _require_bounds(self, action: Any, what: str) -> None:
        for number, player in enumerate(self._game["players"]):
            for name, own in (("low", action.low), ("high", action.high)):
                bound = player["action"][name]
                bounds = np.array(np.ravel(bound), np.float64)  # None: infinite
                limits = np.where(np.isfinite(own), own, np.nan).ravel()
                if not np.allclose(np.broadcast_to(bounds, limits.shape), limits, equal_nan=True):
                    raise Refused(
                        f"{what} has actions with {name} {own.ravel().tolist()}, and player {number} of {self._game['id']} {bound}. Train "
                        "it on this game, with the same wrappers."
                    )

    def act(
        self, player: int, slots: list[Any], seeds: list[int], observation: np.ndarray, mask: np.ndarray | None
    ) -> list[Any]:
        """Return an action per row, by one forward pass.

        Args:
            player: Who acts.
            slots: [n] what tells episodes apart.
            seeds: [n] of the episodes that begin; -1 of others.
            observation: [n, …].
            mask: bool[n, A], the legal actions; None: all are.
        """
        import torch

        with torch.no_grad():
            tensor = self._observed(observation)
            legal = mask if self._masks else None
            if self.algorithm in ("DQN", "QRDQN"):
                answers = self._values(tensor, legal)
            elif self.algorithm in ("SAC", "TQC", "CrossQ"):
                answers = self._squashed(tensor, slots, seeds)
            elif self.algorithm in ("TD3", "DDPG"):
                answers = self._policy.unscale_action(self._policy.actor(tensor).cpu().numpy())
            else:
                answers = self._drawn(tensor, slots, seeds, legal)
        answers = np.asarray(answers)
        if answers.dtype.kind in "iu":
            answers = answers + starts(self._game, player)
        return list(answers)

    def _observed(self, observation: np.ndarray) -> Any:
        space = self._model.observation_space
        value: Any = observation
        if self._unflatten:
            value = _unflattened(space, observation)
        elif self._norm is not None:
            mean, variance, epsilon, clip = self._norm
            value = np.clip((observation - mean) / np.sqrt(variance + epsilon), -clip, clip).astype(np.float32)
        return self._policy.obs_to_tensor(value)[0]

    def _values(self, tensor: Any, mask: np.ndarray | None) -> Any:
        net = self._policy.q_net if self.algorithm == "DQN" else self._policy.quantile_net
        values = net(tensor)
        values = (values if values.dim() == 2 else values.mean(dim=1)).cpu().numpy()
        return np.where(mask, values, -np.inf).argmax(axis=1) if mask is not None else values.argmax(axis=1)

    def _squashed(self, tensor: Any, slots: list[Any], seeds: list[int]) -> Any:
        mean, log_std, _ = self._policy.actor.get_action_dist_params(tensor)
        mean = mean.cpu().numpy()
        if not (self._deterministic or self.algorithm in _GREEDY):
            noise = self._chance.draws(slots, seeds, mean.shape[1], normal=True)
            mean = mean + np.exp(log_std.cpu().numpy()) * noise.astype(np.float32)
        return self._policy.unscale_action(np.tanh(mean))

    def _drawn(self, tensor: Any, slots: list[Any], seeds: list[int], mask: np.ndarray | None) -> Any:
        from stable_baselines3.common import distributions as kinds

        maskable, recurrent = self.algorithm == "MaskablePPO", self.algorithm == "RecurrentPPO"
        if recurrent:
            wanted = self._recurrent(tensor, slots, seeds)
        elif maskable:
            wanted = self._policy.get_distribution(tensor, action_masks=mask)
        else:
            wanted = self._policy.get_distribution(tensor)
        inner: Any = getattr(wanted, "distribution", None)
        if isinstance(wanted, kinds.DiagGaussianDistribution | kinds.StateDependentNoiseDistribution):
            actions = wanted.mode().cpu().numpy()
            if not self._deterministic and isinstance(wanted, kinds.DiagGaussianDistribution):
                noise = self._chance.draws(slots, seeds, actions.shape[1], normal=True)
                actions = actions + inner.stddev.cpu().numpy() * noise.astype(np.float32)
            space = self._model.action_space
            if self._policy.squash_output:
                return self._policy.unscale_action(actions)
            return np.clip(actions, space.low, space.high)
        if isinstance(wanted, kinds.BernoulliDistribution):
            on = inner.probs.cpu().numpy()
            parts = [np.stack([1 - on[:, k], on[:, k]], axis=1) for k in range(on.shape[1])]
        elif hasattr(wanted, "distributions"):  # sb3-contrib's, of one or several numbers
            parts = [part.probs.cpu().numpy() for part in wanted.distributions]
        elif isinstance(inner, list):
            parts = [part.probs.cpu().numpy() for part in inner]
        else:
            parts = [inner.probs.cpu().numpy()]
        draws = None if self._deterministic else self._chance.draws(slots, seeds, len(parts))
        at, chosen = 0, []
        for k, probs in enumerate(parts):
            legal = None if mask is None else mask[:, at : at + probs.shape[1]]
            at += probs.shape[1]
            chosen.append(choose(restricted(probs, legal), None if draws is None else draws[:, k]))
        shape = self._model.action_space.shape
        return np.stack(chosen, axis=1).reshape(len(slots), *shape) if shape else chosen[0]

    def _recurrent(self, tensor: Any, slots: list[Any], seeds: list[int]) -> Any:
        import torch

        lstm = self._policy.lstm_actor
        zero = torch.zeros(lstm.num_layers, lstm.hidden_size), torch.zeros(lstm.num_layers, lstm.hidden_size)
        rows = [zero if seed >= 0 else self._memory[slot] for slot, seed in zip(slots, seeds, strict=True)]
        states = tuple(torch.stack([row[k] for row in rows], dim=1) for k in (0, 1))
        begins = torch.tensor([float(seed >= 0) for seed in seeds])
        wanted, (hidden, cell) = self._policy.get_distribution(tensor, states, begins)
        for k, slot in enumerate(slots):
            self._memory[slot] = hidden[:, k].clone(), cell[:, k].clone()
        return wanted


def algorithm_of(path: str) -> str:
    """Return the class that saved a file. Raises Refused for a file that is none, or does not tell."""
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
    except FileNotFoundError:
        raise Refused(
            f"there is no file {path!r}; one that Stable-Baselines3 saved was expected (model.save)."
        ) from None
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise Refused(
            f"{path!r} is no file of Stable-Baselines3 ({error}); one that model.save wrote was expected."
        ) from None
    module = str(data.get("policy_class", {}).get("__module__", ""))
    for begins, name in _FAMILIES:
        if module.startswith(begins):
            return "DDPG" if name == "TD3" and data.get("policy_delay") == 1 else name
    if "clip_range" in data:
        return "PPO"
    if "cg_max_steps" in data:
        return "TRPO"
    if "gae_lambda" in data:
        return "A2C"
    known = ", ".join(name for names in _MODULES.values() for name in names)
    raise Refused(f"{path!r} does not tell its algorithm; say it: algorithm=NAME, one of {known}.")


def _loaded(path: str, algorithm: str) -> Any:
    import importlib

    module = next((module for module, names in _MODULES.items() if algorithm in names), None)
    if module is None:
        known = ", ".join(name for names in _MODULES.values() for name in names)
        raise Refused(f"algorithm={algorithm!r} was given; one of {known} was expected.")
    try:
        cls = getattr(importlib.import_module(module), algorithm)
    except ImportError as error:
        package = {"sb3_contrib": "sb3-contrib", "stable_baselines3": "stable-baselines3"}[module]
        raise Refused(
            f"{path!r} is of {algorithm}, and {package} cannot be imported here ({error}): `pip install {package}`, or name a Python that "
            "has it, python=PATH."
        ) from error
    constant = lambda _: 0.0  # noqa: E731  schedules are of training, and may not load where Python's version is another one
    unused = {
        "learning_rate": 0.0,
        "lr_schedule": constant,
        "clip_range": constant,
        "exploration_schedule": constant,
        "buffer_size": 1,
    }
    try:
        return cls.load(path, device="cpu", custom_objects=unused)
    except Exception as error:  # whatever unpickling raises
        raise Refused(f"{path!r} could not be loaded as {algorithm}: {type(error).__name__}: {error}") from error


def _statistics(path: str) -> tuple[Any, Any, float, float]:
    try:
        with open(path, "rb") as file:
            norm = pickle.load(file)  # noqa: S301  the user's own file, as VecNormalize.save writes it
        return norm.obs_rms.mean, norm.obs_rms.var, float(norm.epsilon), float(norm.clip_obs)
    except Exception as error:
        raise Refused(f"normalize={path!r} could not be read as VecNormalize.save writes it: {error}") from error


def _unflattened(space: Any, rows: np.ndarray) -> Any:
    """Return a batch of observations of a space whose flattened form Ludus gives."""
    from gymnasium import spaces

    values = [spaces.unflatten(space, row) for row in rows]
    if isinstance(space, spaces.Dict):
        return {key: np.stack([value[key] for value in values]) for key in space.spaces}
    return np.stack(values)
