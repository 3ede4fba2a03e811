"""Checkpoints of RLlib's modules (its API of RLModule and Learner)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .common import Refused, require_actions, require_box
from .outputs import Reader

_FILE = "module_state.pkl"


class RLlibModel:
    """A module of a checkpoint.

    Args:
        game: Of the message hello.
        path: Folder of a checkpoint of an Algorithm, a Learner group or an RLModule.
        policy: Name of the module, where there are several.
        deterministic: Play the likeliest action, or the mean, instead of drawing one.
        masks: Play legal actions only.
        normalize_actions: Whether boxes were played as -1 to 1, as RLlib does if nothing else is said.
    """

    def __init__(
        self,
        game: dict[str, Any],
        path: str,
        *,
        policy: str = "",
        deterministic: bool = False,
        masks: bool = True,
        normalize_actions: bool = True,
    ) -> None:
        self._game, self._normalized = game, normalize_actions
        self._reader = Reader(game, output="", deterministic=deterministic, masks=masks)
        self._module = _loaded(_folder(path, policy))
        self._keys: list[str] = []
        what, observation, action = repr(path), self._module.observation_space, self._module.action_space
        if hasattr(observation, "spaces"):
            self._keys = [key for key in observation.spaces if key != "action_mask"]
            if len(self._keys) != 1 or len(observation.spaces) != 2:
                raise Refused(
                    f"{what} observes {list(observation.spaces)}; a box was expected, or one and action_mask."
                )
            observation = observation.spaces[self._keys[0]]
        if observation is not None and observation.shape:
            require_box(game, observation.shape, "", what=what)
        if hasattr(action, "n"):
            require_actions(game, "discrete", int(action.n), what=what)
        elif hasattr(action, "nvec"):
            require_actions(game, "multi_discrete", action.nvec.tolist(), what=what)
        elif action is not None:
            require_actions(game, "box", action.shape, what=what)
        if self._module.is_stateful():
            raise Refused(
                f"{what} has recurrent memory, which is not played; export it as ONNX or TorchScript with its memory inside."
            )

    def act(self, player: int, slots: list[Any], seeds: list[int], observation: Any, mask: Any) -> list[Any]:
        """Return an action per row, by one forward pass."""
        import torch

        tensor: Any = torch.from_numpy(np.ascontiguousarray(observation))
        if self._keys:
            legal = np.ones((len(slots), sum(self._reader.counts(player))), np.float32) if mask is None else mask
            tensor = {self._keys[0]: tensor, "action_mask": torch.from_numpy(legal.astype(np.float32))}
        with torch.no_grad():
            out = self._module.forward_inference({"obs": tensor})
            if "action_dist_inputs" not in out:
                return self._reader.actions(player, slots, seeds, mask, out["actions"].numpy(), "actions")
            inputs = out["action_dist_inputs"].numpy()
            if self._reader.counts(player):
                return self._reader.actions(player, slots, seeds, mask, inputs, "logits")
            return self._moved(player, slots, seeds, inputs)

    def _moved(self, player: int, slots: list[Any], seeds: list[int], inputs: Any) -> list[Any]:
        space = self._game["players"][player]["action"]
        size = int(np.prod(space["shape"]))
        squashed = "Squashed" in self._module.get_inference_action_dist_cls().__name__
        number = inputs[:, :size]
        if not self._reader.deterministic and inputs.shape[1] == 2 * size:
            noise = self._reader.chance.draws(slots, seeds, size, normal=True)
            number = number + np.exp(inputs[:, size:]) * noise
        number = np.tanh(number) if squashed else number
        low, high = (
            np.array(
                [sign * np.inf if value is None else value for value in np.ravel(np.array(space[name], object))], float
            )
            for name, sign in (("low", -1), ("high", 1))
        )
        if self._normalized and np.isfinite(low).all() and np.isfinite(high).all():
            number = low + (np.clip(number, -1, 1) + 1) * (high - low) / 2
        return list(np.clip(number, low, high).astype(np.float32).reshape(len(slots), *space["shape"]))


def _folder(path: str, policy: str) -> Path:
    """Return the folder of a module. Raises Refused where there is none, or several."""
    root = Path(path)
    if (root / _FILE).is_file():
        return root
    modules = {
        one.parent.name: one.parent for one in sorted(root.rglob(_FILE)) if one.parent.parent.name == "rl_module"
    }
    if policy in modules:
        return modules[policy]
    if len(modules) == 1 and not policy:
        return next(iter(modules.values()))
    if not modules:
        raise Refused(
            f"{path!r} holds no module of RLlib ({_FILE}); a checkpoint of its API of RLModule and Learner was expected."
        )
    raise Refused(
        f"{path!r} holds the modules {', '.join(modules)}; policy={policy!r} was given. Name one of them, policy=NAME."
    )


def _loaded(folder: Path) -> Any:
    import logging

    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        from ray.rllib.core.rl_module.rl_module import RLModule
    except ImportError as error:
        raise Refused(
            f"{str(folder)!r} needs RLlib ({error}): `pip install 'ray[rllib]'`, or name a Python that has it, python=PATH."
        ) from error
    try:
        return RLModule.from_checkpoint(str(folder.absolute()))
    except Exception as error:  # whatever unpickling raises
        raise Refused(f"{str(folder)!r} could not be loaded by RLlib: {type(error).__name__}: {error}") from error
