"""torch: masked distributions (`ludus.algorithms.common.losses`), and arrays that become tensors (`ludus.backend.device`)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from ludus.algorithms.common.losses import divergence, entropy, log_prob, masked_log_softmax, sample_categorical
from ludus.policies.action_values import rows_of

MASK = torch.tensor([[True, True, False]])


def logits(last=-torch.inf):
    """Two policies' logits [1, 3], the last action illegal."""
    one, other = torch.tensor([[0.3, -0.2, 0.0]]), torch.tensor([[0.1, 0.4, 0.0]])
    return tuple(x.masked_fill(~MASK, last).requires_grad_() for x in (one, other))


def test_kl_of_two_masked_policies_is_finite_and_its_gradient_is_not():
    """Why `losses.divergence` leaves illegal actions out of the sum: p log p is 0 there, and its gradient is 0 times infinity."""
    p, q = logits()
    value = kl_divergence(Categorical(logits=p), Categorical(logits=q)).sum()
    value.backward()
    assert torch.isfinite(value)
    assert torch.isnan(p.grad[MASK]).all()
    assert torch.isfinite(q.grad).all()


def test_gradients_of_entropy_and_log_prob_of_a_masked_policy_are_finite():
    """`Categorical` could serve there; Ludus has its own for the sake of speed."""
    for measure in (lambda d: d.entropy(), lambda d: d.log_prob(torch.tensor([1]))):
        p, _ = logits()
        measure(Categorical(logits=p)).sum().backward()
        assert torch.isfinite(p.grad).all()


def test_gradients_of_ludus_losses_of_a_masked_policy_are_finite():
    """`divergence`, `entropy` and `log_prob`, whose values are those of torch."""
    p, q = (torch.tensor(x, requires_grad=True) for x in ([[0.3, -0.2, 9.0]], [[0.1, 0.4, -9.0]]))
    logp, logq = masked_log_softmax(p, MASK), masked_log_softmax(q, MASK)
    (divergence(logp, logq) + entropy(p, MASK) + log_prob(q, torch.tensor([1]), MASK)).sum().backward()
    assert torch.isfinite(p.grad).all()
    assert torch.isfinite(q.grad).all()
    same = kl_divergence(*(Categorical(logits=x.masked_fill(~MASK, -torch.inf)) for x in (p, q)))
    np.testing.assert_allclose(divergence(logp, logq).detach(), same.detach(), rtol=1e-5)


def test_rows_without_a_legal_action_are_refused_only_with_infinite_logits():
    """Why Ludus masks with -inf rather than the least float: a row without a legal action would be uniform play of illegal ones."""
    nothing = torch.zeros(1, 3)
    with pytest.raises(ValueError, match="logits"):
        # Asked for: torch.compile turns the default off for the whole process.
        Categorical(logits=torch.log_softmax(nothing.fill_(-torch.inf), dim=-1), validate_args=True)
    least = Categorical(logits=nothing.fill_(torch.finfo(torch.float32).min))
    np.testing.assert_allclose(least.probs, 1 / 3, rtol=1e-6)


def test_illegal_actions_are_never_sampled():
    """`losses.sample_categorical`, whose exponential times are above 0, so that 0 / time is never the largest."""
    generator = torch.Generator().manual_seed(0)
    actions = sample_categorical(torch.zeros(20_000, 3), MASK.expand(20_000, 3), generator, greedy=False)
    assert set(actions.tolist()) == {0, 1}


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_tensor_of_a_read_only_array_writes_into_it():
    """Why `rows_of` copies read-only arrays: those of Ray's object store and of shared memory belong to others, too."""
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    torch.from_numpy(array)[0] = 5.0
    assert array[0] == 5.0
    rows_of(array, ())[1] = 5.0
    assert array[1] == 0.0


def test_vmap_has_no_rule_for_a_gru():
    """Why `ludus.policies.stacks` writes the cells of recurrent networks out."""
    module = torch.nn.GRU(2, 3)
    with pytest.raises(RuntimeError):
        torch.func.vmap(lambda x: module(x)[0])(torch.zeros(4, 5, 1, 2))
