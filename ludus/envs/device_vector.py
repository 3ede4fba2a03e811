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

    Attributes:
        observation: [E, n, *shape], or int64[E, n] ids if the environment has an enumeration. Where nothing is due, any observation (a
            valid id) will do.
        mask: bool[E, n, A], legal actions, at least one where due; None: all are always legal, or ids say it.
        due: bool[E, n].
        reward: float32[E, n], summed since the slot's last decision; read where that decision closes: where the slot is due again in the
            same episode, or ended.
        ended: bool[E, n], slots whose open decision closes because the episode (or the agent's part in it) is over; may also be set where
            no decision is open.
        terminated: bool[E, n], read where ended; False: truncated.
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
    episode, and `reward`, `ended`, `terminated` and `final` are of the old one. Once its quota is played, nothing of it is due.

    Tensors may be views or expanded, and stay valid until the next step.

    Attributes:
        slots: By player.
        over: bool[E], environments whose episode ended in this step; the next three are read there.
        returns: float64[E, P].
        terminated: bool[E].
        length: int64[E], environment steps.
        state: [E, *shape], if the environment has a state.
        final_state: [E, *shape], read where over.
    """

    slots: tuple[DeviceSlots, ...]
    over: Tensor
    returns: Tensor
    terminated: Tensor
    length: Tensor
    state: Tensor | None = None
    final_state: Tensor | None = None


class DeviceVectorEnv(Protocol):
    """E environments that are stepped together on a device. Nothing in `step` waits for the device or reads from it.

    All random numbers are from one generator of the device, which `reset` seeds: on the same device the same seed and actions give the same
    episodes in an equal vector.

    Attributes:
        spec: What is played.
        num_envs: E.
        device: Where the tensors are.
    """

    spec: EnvSpec
    num_envs: int
    device: torch.device

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        """Begin new episodes.

        Args:
            seed: In [0, 2**63).
            episodes: Number of episodes that each environment plays, at least 1; None: no limit.

        Returns:
            The first timestep, in which nothing is over or ended.
        """
        ...

    def step(self, actions: tuple[Tensor, ...]) -> DeviceTimestep:
        """Step all environments.

        Args:
            actions: By player; actions[p] is int64[E, n], or [E, n, *shape] as the space has it, read where due. Illegal actions are not
                detected.

        Returns:
            The next timestep.
        """
        ...

    def close(self) -> None:
        """Release all resources. The vector is not used again."""
        ...


@runtime_checkable
class OffersDevice(Protocol):
    """A `VectorEnv` that can make the same environments on a device."""

    def on_device(self, device: torch.device, *, num_envs: int) -> DeviceVectorEnv:
        """Make environments like these on a device.

        Args:
            device: Where their tensors are to be.
            num_envs: Number of environments.

        Raises:
            EnvError: That is not possible there.
        """
        ...
