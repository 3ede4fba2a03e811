"""The parameters of torch modules, and their gradients, as two flat vectors."""

from __future__ import annotations

import torch
from torch import nn

from ludus.types import Array


class Parameters:
    """Makes the parameters of `module` views of one vector, `flat` float32[size], and their gradients views of another. Both start where
    torch aligns memory, always at the same distances, so that sums come out the same to the last bit in every process.

    joint float32[size + sums]: the gradient, with what ranks add up together with it behind it (`sums`).
    """

    def __init__(self, module: nn.Module, *, sums: int) -> None:
        parameters = list(module.parameters())
        size = sum(p.numel() for p in parameters)
        flat, self._joint = torch.zeros(size), torch.zeros(size + sums)
        at = 0
        for parameter in parameters:
            end = at + parameter.numel()
            view = flat[at:end].view(parameter.shape)
            view.copy_(parameter.data)
            parameter.data, parameter.grad = view, self._joint[at:end].view(parameter.shape)
            at = end
        self.flat: Array = flat.numpy()
        self.joint: Array = self._joint.numpy()
        self.gradient, self.sums = self.joint[:size], self.joint[size:]

    def backward(self, loss: torch.Tensor) -> None:
        """Adds the loss's gradient to `gradient`."""
        torch.autograd.backward(loss)

    def zero(self) -> None:
        """Of the gradient and the sums."""
        self._joint.zero_()
