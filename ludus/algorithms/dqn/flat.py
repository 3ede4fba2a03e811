"""A torch module's parameters and their gradients as two vectors."""

from __future__ import annotations

import torch
from torch import nn

from ludus.algorithms.images import prepare_learning


class FlatModule:
    """The parameters of `module` become views of one vector, `flat`, and what autograd adds up for them views of another, `gradient`: one
    pass of the optimizer moves them all, and a target network is one copy. All are NumPy views of torch memory.

    sums: floats behind the gradient in memory, for what ranks add up together with it (`joint`: both).
    """

    def __init__(self, module: nn.Module, *, sums: int = 0) -> None:
        prepare_learning(module)
        parameters = list(module.parameters())
        size = sum(p.numel() for p in parameters)
        flat, gradient = torch.empty(size), torch.zeros(size + sums)
        at = 0
        for p in parameters:
            there = slice(at, at + p.numel())
            flat[there] = p.detach().reshape(-1)
            p.data = flat[there].view_as(p)
            p.grad = gradient[there].view_as(p)
            at += p.numel()
        self.module = module
        self.flat, self.joint = flat.numpy(), gradient.numpy()
        self.gradient, self.sums = self.joint[:size], self.joint[size:]
