"""The contract of vectors that live on a device: their tensors go to policies and learners there, and never to the host.

It is `VectorEnv` in dense form, since how many rows a step has must not be read back: every slot has a place in every step, and a mask
says which of them are due. A turn-based game has fewer due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from ludus.core.types import EnvSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class DeviceSlots(NamedTuple):
    """The n agents of one player in E environments, in one step.

    observation: [E, n, *shape], or int64[E, n] ids if the environment has an enumeration; where nothing is due, any observation (a valid
    id) will do. mask: bool[E, n, A] legal actions, at least one where due; None if all always are, or if ids say it.
    due: bool[E, n]. reward: float32[E, n], summed since the slot's last decision; read where that one closes: where the slot is due again
    in the same episode, or ended. ended: bool[E, n], whose open decision closes since its episode (or its agent's part in it) is over; may
    be set, too, where no decision is open. terminated: bool[E, n], read where ended; otherwise truncated.
    final: [E, n, *shape], or ids (-1: no information state), final observations, read where truncated; None: nothing is ever truncated.
    """

    observation: Tensor
    mask: Tensor | None
    due: Tensor
    reward: Tensor
    ended: Tensor
    terminated: Tensor
    final: Tensor | None = None


class DeviceTimestep(NamedTuple):
    """One step of E environments. An environment whose episode is over begins the next one within the same step: `due` is of the new
    episode, and `reward`, `ended`, `terminated` and `final` are of the old one. Once its quota is played nothing of it is due any more.

    slots: [P]. over: bool[E], whose episode ended in this step; and of these returns float64[E, P], terminated bool[E], and length
    int64[E] in environment steps. state: [E, *shape], if the environment has one; final_state: the same, read where over. Tensors may be
    views or expanded, and stay valid until the next step.
    """

    slots: tuple[DeviceSlots, ...]
    over: Tensor
    returns: Tensor
    terminated: Tensor
    length: Tensor
    state: Tensor | None = None
    final_state: Tensor | None = None


class DeviceVectorEnv(Protocol):
    """E environments that are stepped together on `device`. Nothing in `step` waits for the device or reads from it.

    All that is random is drawn from one generator of the device, which `reset` seeds: on the same device the same seed and actions give the
    same episodes in an equal vector."""

    spec: EnvSpec
    num_envs: int
    device: torch.device

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        """Start anew. seed: in [0, 2**63). Each environment plays `episodes` episodes, at least 1; None: for ever. Nothing is over, or
        ended, in the answer."""
        ...

    def step(self, actions: tuple[Tensor, ...]) -> DeviceTimestep:
        """actions[p]: int64[E, n], or [E, n, *shape] as the space has it; read where due, legal ones (others are not found out)."""
        ...

    def close(self) -> None:
        """Free what it holds; it is not used again."""
        ...


@runtime_checkable
class OffersDevice(Protocol):
    """A `VectorEnv` that can make the same environments on a device."""

    def on_device(self, device: torch.device, *, num_envs: int) -> DeviceVectorEnv:
        """Raises EnvError where that is not possible there."""
        ...
