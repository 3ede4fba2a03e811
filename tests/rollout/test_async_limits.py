"""The ledger of credits: bounded, and exact about the dead."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ludus.core.errors import DataError
from ludus.rollout.async_limits import InFlightLimiter, InFlightPermit


def test_reserve_deliver_release():
    ledger = InFlightLimiter(2)
    a, b = ledger.reserve("w0"), ledger.reserve("w1")
    assert (a, b) == (InFlightPermit(0, "w0", 0), InFlightPermit(1, "w1", 0))
    assert ledger.reserve("w0") is None
    assert ledger.deliver(a)
    assert ledger.reserve("w0") is None  # delivered is not published
    assert ledger.release([a]) == 1
    assert ledger.reserve("w0") == InFlightPermit(2, "w0", 0)
    assert ledger.free == 0


def test_a_dead_workers_credits_return_and_its_late_data_are_refused():
    ledger = InFlightLimiter(3)
    early, late, other = ledger.reserve("w0"), ledger.reserve("w0"), ledger.reserve("w1")
    assert ledger.deliver(early)
    assert ledger.died("w0") == (late,)
    assert ledger.free == 1
    assert not ledger.deliver(late)
    assert ledger.refused == 1
    assert ledger.reserve("w0") == InFlightPermit(3, "w0", 1)
    assert ledger.deliver(other)
    assert ledger.release([other, early]) == 2


def test_a_forged_incarnation_is_refused():
    ledger = InFlightLimiter(1)
    lease = ledger.reserve("w0")
    assert not ledger.deliver(InFlightPermit(lease.id, "w0", 7))
    assert ledger.deliver(lease)


def test_releasing_what_was_not_delivered_changes_nothing():
    ledger = InFlightLimiter(2)
    a, b = ledger.reserve("w0"), ledger.reserve("w0")
    ledger.deliver(a)
    with pytest.raises(DataError, match="lease 1 is released and was not delivered"):
        ledger.release([a, b])
    with pytest.raises(DataError, match=r"lease 0 is released and was not delivered \(or twice\)"):
        ledger.release([a, a])
    assert ledger.release([a]) == 1


def test_limits():
    with pytest.raises(DataError, match="the limit is 0 credits"):
        InFlightLimiter(0)


class CreditsMachine(RuleBasedStateMachine):
    """Beside a dictionary lease id -> (state, worker)."""

    def __init__(self):
        super().__init__()
        self.ledger = InFlightLimiter(4)
        self.leases: list[InFlightPermit] = []
        self.state: dict[int, str] = {}
        self.refused = 0

    @rule(worker=st.sampled_from("abc"))
    def reserve(self, worker):
        lease = self.ledger.reserve(worker)
        out = [s for s in self.state.values() if s in ("collecting", "delivered")]
        assert (lease is None) == (len(out) == 4)
        if lease is not None:
            self.leases.append(lease)
            self.state[lease.id] = "collecting"

    @rule(data=st.data())
    def deliver(self, data):
        if self.leases:
            lease = data.draw(st.sampled_from(self.leases))
            expected = self.state[lease.id] == "collecting"
            assert self.ledger.deliver(lease) == expected
            self.refused += not expected
            if expected:
                self.state[lease.id] = "delivered"

    @rule()
    def publish(self):
        delivered = [lease for lease in self.leases if self.state[lease.id] == "delivered"]
        assert self.ledger.release(delivered) == len(delivered)
        for lease in delivered:
            self.state[lease.id] = "released"

    @rule(worker=st.sampled_from("abc"))
    def die(self, worker):
        lost = {lease.id for lease in self.ledger.died(worker)}
        expected = {x.id for x in self.leases if x.worker == worker and self.state[x.id] == "collecting"}
        assert lost == expected
        for number in lost:
            self.state[number] = "lost"

    @invariant()
    def counts_agree(self):
        out = sum(s in ("collecting", "delivered") for s in self.state.values())
        assert self.ledger.free == 4 - out >= 0
        assert self.ledger.refused == self.refused


TestCreditsMachine = CreditsMachine.TestCase
TestCreditsMachine.settings = settings(stateful_step_count=30)
