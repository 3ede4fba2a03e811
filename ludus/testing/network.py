"""What policies and learners ask of a network of one's own, as a check."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ludus.core.errors import LudusError
from ludus.policies.bodies import OwnBody
from ludus.policies.specs import body_config, parse_body


def check_network(network: str | Mapping[str, Any], shape: Sequence[int], *, rows: int = 8, seed: int = 0) -> None:
    """Check that a network does what policies and learners need: features of each row, whatever the rows next to it; the same again;
    gradients for every parameter; equal weights from equal seeds. torch's own random stream is not changed.

    Args:
        network: As in a scenario, `module:Class` or a mapping with `kind` and options.
        shape: Of an observation.
        rows: Number of random observations.
        seed: Of weights and observations.

    Raises:
        AssertionError: With a sentence, for the first requirement that it does not meet.
    """
    with torch.random.fork_rng(devices=[]):
        first, again = (_made(network, shape, seed) for _ in range(2))
        x = torch.randn(rows, *shape)
        _check_made(first, again)
        _check_rows(first, x)
        _check_gradients(first, x)


def _made(network: str | Mapping[str, Any], shape: Sequence[int], seed: int) -> OwnBody:
    torch.manual_seed(seed)
    try:
        return OwnBody(body_config(parse_body(network)), shape)
    except LudusError as error:
        raise AssertionError(str(error)) from error


def _check_made(first: OwnBody, again: OwnBody) -> None:
    for name, part in first.named_modules():
        assert not isinstance(part, nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd), (
            f"{name} is a {type(part).__name__}, and what plays is another network than what learns. Use LayerNorm, or leave it out."
        )
    one, other = first.state_dict(), again.state_dict()
    assert one.keys() == other.keys(), (
        "made twice it has other parameters; all that decides about them must be options."
    )
    for name, tensor in one.items():
        assert tensor.dtype == torch.float32, f"{name} is {str(tensor.dtype)[6:]}; weights are kept as float32."
        assert tensor.shape == other[name].shape, f"{name} has another shape when it is made again."
        assert torch.equal(tensor, other[name]), (
            f"{name} is another when it is made again from the same seed; draw from torch's stream only."
        )


def _check_rows(network: OwnBody, x: Tensor) -> None:
    weights = copy.deepcopy(network.state_dict())
    copied = x.clone()
    with torch.no_grad():
        out = network(x)
        assert out.shape == (len(x), network.features), (
            f"it answers shape {list(out.shape)} for {len(x)} rows; expected {[len(x), network.features]}."
        )
        assert torch.isfinite(out).all(), "it answers numbers that are not finite."
        assert torch.equal(x, copied), "it changes its input; work on a copy (no operations that end in _ on it)."
        assert torch.equal(out, network(x)), (
            "it answers otherwise when it is asked again; what it answers must depend on the input alone."
        )
        alone = torch.cat([network(row) for row in torch.split(x, 1)])
    assert torch.allclose(out, alone, rtol=1e-4, atol=1e-5), (
        "a row's features depend on the rows beside it; normalise within rows (LayerNorm), not over them."
    )
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, weights[name]), f"{name} changes when it is asked; only learners change weights."


def _check_gradients(network: OwnBody, x: Tensor) -> None:
    out = network(x)
    assert out.requires_grad, "its answer has no gradient; it has no parameters, or works under torch.no_grad()."
    (out * torch.randn_like(out)).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, f"{name} takes no part in the answer; leave it out."
        assert torch.isfinite(parameter.grad).all(), f"the gradient of {name} is not finite."
