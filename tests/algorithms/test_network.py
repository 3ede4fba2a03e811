"""Networks and the optimizer against torch's own."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from ludus.backend.mlp import Layout, Workspace
from ludus.backend.network import Adam, ForwardBackwardBuffers, TrainedNetwork, draws_numbers


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(), (5,), (5, 6, 7)])
@pytest.mark.parametrize("rows", [1, 9, 1100])  # 1100: several blocks
def test_gradients_are_autograds(activation, hidden, rows):
    random = torch.Generator().manual_seed(0)
    layout = Layout((4, *hidden, 3), activation)
    flat, x, upstream = (torch.randn(*size, generator=random) for size in ((layout.size,), (rows, 4), (rows, 3)))
    work, gradient = Workspace(layout), np.full(layout.size, 7.0, np.float32)
    work.forward(flat.numpy(), np.ones((rows + 1, 4), np.float32))  # another size before
    work.forward(flat.numpy(), x.numpy())
    work.gradient[:] = upstream.numpy()
    work.backward(flat.numpy(), x.numpy(), gradient)

    tracked, inputs = flat.double().requires_grad_(True), x.double().requires_grad_(True)
    h, at = inputs, 0
    for k, (i, o) in enumerate(pairwise(layout.widths)):
        h = h @ tracked[at : at + i * o].view(o, i).T + tracked[at + i * o : at + (i + 1) * o]
        at += (i + 1) * o
        if k < len(hidden):
            h = getattr(torch, activation)(h)
    (h * upstream.double()).sum().backward()
    pairs = (work.out, h), (gradient, tracked.grad), (work.input_gradient(flat.numpy()), inputs.grad)
    for ours, theirs in pairs:
        expected = theirs.detach().numpy()
        assert ours == pytest.approx(expected, abs=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("rows", [600, 2000, 12_000])
def test_bits_do_not_depend_on_the_number_of_threads(rows):
    rng, layout = np.random.default_rng(0), Layout((4, 32, 32, 3))
    flat = rng.standard_normal(layout.size).astype(np.float32)
    x, upstream = (rng.standard_normal((rows, width)).astype(np.float32) for width in (4, 3))

    def passes(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            work, gradient = Workspace(layout), np.empty(layout.size, np.float32)
            work.forward(flat, x)
            work.gradient[:] = upstream
            work.backward(flat, x, gradient)
            return work.out.tobytes(), gradient.tobytes()
        finally:
            torch.set_num_threads(before)

    assert passes(1) == passes(2) == passes(5)


def test_a_batch_without_rows_has_no_gradient():
    layout = Layout((4, 5, 3))
    work, gradient = Workspace(layout), np.full(layout.size, 7.0, np.float32)
    flat, x = np.ones(layout.size, np.float32), np.ones((0, 4), np.float32)
    work.forward(flat, x)
    work.backward(flat, x, gradient)
    assert work.out.shape == (0, 3)
    assert not gradient.any()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_row_that_is_not_a_number_shows_in_outputs_and_gradients(activation):
    layout = Layout((2, 3, 2), activation)
    work, gradient = Workspace(layout), np.zeros(layout.size, np.float32)
    flat, x = np.ones(layout.size, np.float32), np.array([[1.0, np.nan], [1.0, 2.0]], np.float32)
    work.forward(flat, x)
    work.gradient[:] = 1.0
    work.backward(flat, x, gradient)
    assert np.isnan(work.out[0]).all()
    assert np.isfinite(work.out[1]).all()
    assert np.isnan(gradient[1::2][:3]).any()


def test_parts_lie_side_by_side_and_do_not_mix():
    layouts = {name: Layout((2, outputs)).under(name) for name, outputs in (("policy", 3), ("value", 1))}
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32)
        for layout in layouts.values()
        for name, shape in layout.shapes().items()
    }
    network, x = TrainedNetwork(layouts, weights), np.ones((4, 2), np.float32)
    assert all(np.array_equal(network.weights()[k], weights[k]) for k in weights)
    passes = ForwardBackwardBuffers(network)
    passes.forward(x)
    expected = weights["value.0.weight"].sum(1) + weights["value.0.bias"]
    assert passes.outputs["value"][2] == pytest.approx(expected, abs=1e-6)
    passes.gradients["policy"][:] = 1.0
    passes.gradients["value"][:] = 0.0
    passes.backward(x)
    assert network.gradient.tolist() == [4.0] * 9 + [0.0] * 3


def test_adam_is_torchs():
    rng = np.random.default_rng(0)
    start, gradients = rng.standard_normal(20), rng.standard_normal((30, 20)) * 0.1
    ours = start.copy()
    adam = Adam(20, dtype=np.float64)
    theirs = torch.tensor(start, requires_grad=True)
    reference = torch.optim.Adam([theirs], lr=0.05, eps=1e-5)
    for g in gradients:
        norm = adam.step(ours, g, rate=0.05, max_norm=0.0)
        assert norm == pytest.approx(np.linalg.norm(g))
        theirs.grad = torch.tensor(g)
        reference.step()
    assert ours == pytest.approx(theirs.detach().numpy(), abs=1e-12)


def test_adam_clips_the_norm():
    one, other = np.zeros(2), np.zeros(2)
    first, second = Adam(2, dtype=np.float64, epsilon=1.0), Adam(2, dtype=np.float64, epsilon=1.0)
    first.step(one, np.array([30.0, 40.0]), rate=1.0, max_norm=5.0)
    second.step(other, np.array([3.0, 4.0]), rate=1.0, max_norm=0.0)
    assert one == pytest.approx(other, rel=1e-6)


def test_adam_leaves_gradients_within_the_bound_as_they_are():
    """They are not scaled up to it: with an epsilon of 1 a step of (3, 4) × 10⁻¹ goes 0.3 / 1.3 and 0.4 / 1.4 far."""
    for bound in (0.0, 5.0):
        moved = np.zeros(2)
        norm = Adam(2, dtype=np.float64, epsilon=1.0).step(moved, np.array([0.3, 0.4]), rate=1.0, max_norm=bound)
        assert norm == pytest.approx(0.5)
        assert moved == pytest.approx([-0.3 / 1.3, -0.4 / 1.4], rel=1e-6)


def test_adam_refuses_a_gradient_that_is_not_finite():
    parameters, adam = np.ones(3, np.float32), Adam(3)
    for bad in (np.nan, np.inf):
        norm = adam.step(parameters, np.array([1.0, bad, 1.0], np.float32), rate=1.0, max_norm=1.0)
        assert not np.isfinite(norm)
    assert parameters.tolist() == [1.0] * 3
    assert adam.steps == 0
    assert not adam.m.any()


def test_adam_forgets_denormal_moments():
    parameters, adam = np.zeros(1, np.float32), Adam(1)
    adam.step(parameters, np.array([1.0], np.float32), rate=0.0, max_norm=0.0)
    for _ in range(800):
        adam.step(parameters, np.zeros(1, np.float32), rate=0.0, max_norm=0.0)
    assert adam.m.tolist() == [0.0]
    assert adam.v[0] > 0.0


def test_plain_networks_of_ludus_draw_nothing() -> None:
    assert not draws_numbers(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.LayerNorm(3)))
    assert draws_numbers(nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5)))
    assert draws_numbers(nn.GRU(2, 3, dropout=0.1, num_layers=2))


class Own(nn.Module):
    """Whose code nobody knows."""


def test_layers_of_ones_own_may_draw() -> None:
    assert draws_numbers(nn.ModuleList([Own()]))
