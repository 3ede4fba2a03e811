"""The agent manager: members stay frozen, facts are told once and in order, state comes back to the bit."""

import dataclasses
import json

import numpy as np
import pytest
from payoff_samples import match

from ludus.core.arrays import same_weights
from ludus.core.errors import DataError, EnvError
from ludus.core.types import (
    EnvSpec,
    EvaluationResult,
    EvaluationTask,
    Match,
    Mixture,
    PolicyRef,
    PolicySpec,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.agent_manager import AgentManager
from ludus.metagame.population.base import Lineage, Recorder, WeightsStore, populations_of
from ludus.storage import checkpoint

SPEC = PolicySpec("tabular", {"actions": 3})


class Facts:
    """A recorder and a weights store that write down what they hear."""

    def __init__(self):
        self.heard, self.kept = [], {}

    def policy_added(self, record):
        assert record.ref in self.kept, "weights must be durable before the recorder hears of a policy"
        self.heard.append(("policy", record.ref.policy, record.index))

    def matches_recorded(self, matches):
        self.heard.append(("matches", *[m.id for m in matches]))

    def payoffs_recorded(self, profiles, mean):
        self.heard.append(("payoffs", profiles.tolist(), mean.tolist()))

    def put(self, ref, spec, weights):
        self.kept[ref] = weights

    def get(self, ref):
        return self.kept[ref]


def manager(facts=None, population=(0, 1)):
    return AgentManager(
        utility_range=[(-9, 9)] * len(population), population=population, zero_sum=True, recorder=facts, store=facts
    )


def weights(value=0.0):
    return {"table": np.full((2, 3), value), "nan": np.array([np.nan])}


def played(name, profile, samples):
    """A match between members that are named as here: population-index."""
    seats = tuple(PolicyRef(population, f"{population}-{i}", 0) for population, i in enumerate(profile))
    return dataclasses.replace(match(name, profile, samples), seats=seats)


def filled(facts=None):
    made = manager(facts)
    for population in (0, 1):
        made.add(population, f"{population}-0", SPEC, weights(population))
    made.add(0, "0-1", SPEC, weights(5), lineage=Lineage("t", 1, PolicyRef(0, "0-0"), "last"))
    made.record_matches([played("m", (0, 0), [[1, -1], [2, -2]])])
    made.record_exact(np.array([[[3.0]], [[-3.0]]]), start=(1, 0))
    return made


def test_fakes_are_what_the_seams_ask_for():
    assert isinstance(Facts(), Recorder)
    assert isinstance(Facts(), WeightsStore)


def test_every_fact_is_told_once_and_in_order():
    facts = Facts()
    made = filled(facts)
    told = [
        ("policy", "0-0", 0),
        ("policy", "1-0", 0),
        ("policy", "0-1", 1),
        ("matches", "m"),
        ("payoffs", [[1, 0]], [[3.0, -3.0]]),
    ]
    assert facts.heard == told
    assert made.add(0, "0-1", SPEC, weights(5)) == PolicyRef(0, "0-1")
    made.record_matches([played("m", (0, 0), [[1, -1], [2, -2]])])
    made.record_exact(np.array([[[3.0]], [[-3.0]]]), start=(1, 0))
    assert facts.heard == told


def test_populations_and_view():
    made = filled()
    assert made.populations == ((PolicyRef(0, "0-0"), PolicyRef(0, "0-1")), (PolicyRef(1, "1-0"),))
    view = made.view()
    assert view.populations == made.populations
    assert view.payoffs.mean[0].tolist() == [[1.5], [3.0]]
    made.add(1, "1-1", SPEC, weights())
    assert view.payoffs.sizes == (2, 1)
    assert len(view.populations[1]) == 1


def test_elo_rates_policies_of_both_populations_by_their_wins():
    made = manager(population=(0, 1))
    assert made.elo() == ()
    refs = [made.add(0, "a", SPEC, weights()), made.add(0, "b", SPEC, weights()), made.add(1, "c", SPEC, weights())]
    mean = np.zeros(2)
    wins = {0: ((75, 0, 25), (25, 0, 75)), 1: ((25, 0, 75), (75, 0, 25))}  # a beats c as often as c beats b
    before = made.state_dict()
    for i, counts in wins.items():
        made.record_matches([Match(f"m{i}", (i, 0), (refs[i], refs[2]), 100, mean, mean, wins=counts)])
        first, second = made.elo()
    assert second["c"] == pytest.approx(0.0, abs=1e-6)
    assert first["a"] == pytest.approx(-first["b"])
    assert first["a"] == pytest.approx(400 * np.log10(3), rel=0.05)  # odds of three to one, a little less for the prior
    again = manager(population=(0, 1))
    again.load_state_dict(made.state_dict())
    assert again.elo() == (first, second)
    again.load_state_dict(before)
    assert again.elo() == ()


def test_members_are_frozen():
    made, mine = manager(), weights(1)
    ref = made.add(0, "a", SPEC, mine)
    mine["table"][:] = 9.0
    spec, kept = made.weights_of(ref)
    assert spec == SPEC
    assert (kept["table"] == 1.0).all()
    with pytest.raises(ValueError, match="read-only"):
        kept["table"][0] = 2.0
    with pytest.raises(DataError, match="has a policy 'a' already, with other weights"):
        made.add(0, "a", SPEC, mine)
    with pytest.raises(DataError, match="already"):
        made.add(0, "a", PolicySpec("other"), weights(1))
    assert made.table.sizes == (1, 0)


def test_members_are_found_in_any_mode():
    made = filled()
    assert made.record_of(PolicyRef(0, "0-1", None, "greedy")).index == 1
    assert made.record_of(PolicyRef(0, "0-1")).lineage.parent == PolicyRef(0, "0-0")
    with pytest.raises(DataError, match=r"no policy .0-2. .* did you mean"):
        made.record_of(PolicyRef(0, "0-2"))
    with pytest.raises(DataError, match="version 3"):
        made.record_of(PolicyRef(0, "0-1", 3))
    with pytest.raises(DataError, match="no population 2"):
        made.add(2, "x", SPEC, weights())


def test_results_of_tasks():
    facts = Facts()
    made = manager(facts)
    made.add(0, "0-0", SPEC, weights())
    made.add(1, "1-0", SPEC, weights())
    task = TrainingTask("g1", 1, 0, (0,), "0-1", Mixture(()), start=PolicyRef(0, "0-0"))
    trained = TrainingResult(task, PolicyRef(0, "0-1"), SPEC, weights(2), {}, {})
    answered = EvaluationResult(EvaluationTask("e1", 1, ((1, 0),)), matches=(played("m", (1, 0), [[1, -1]]),))
    exact = EvaluationResult(EvaluationTask("e2", 1), payoffs=np.zeros((2, 1, 1)))
    for _ in range(2):
        for result in (trained, answered, exact):
            made.on_result(result)
    assert [kind for kind, *_ in facts.heard] == ["policy", "policy", "policy", "matches", "payoffs"]
    assert made.record_of(trained.ref).lineage == Lineage("g1", 1, PolicyRef(0, "0-0"), "policy")
    assert made.view().payoffs.mean[0].tolist() == [[0.0], [1.0]]


REFUSED = {
    "a payoff out of range": ([played("n", (0, 0), [[4, -4]])], [[99.0], [0.0]], r"profile \(0, 0\) is 99.0"),
    "an exact match and a block that differ": (
        [dataclasses.replace(played("n", (0, 0), [[4, -4]]), exact=True, n=0)],
        [[2.0], [3.0]],
        r"\(0, 0\) has the exact payoffs \[4.0, -4.0\], and is now said to have \[2.0, -2.0\]",
    ),
    "a match that is NaN": ([played("n", (0, 0), [[np.nan, 1]])], [[2.0], [3.0]], "is nan"),
    "a seat of another member": (
        [dataclasses.replace(played("n", (1, 0), [[1, -1]]), profile=(0, 0))],
        None,
        r"match 'n' has profile \(0, 0\), and in a seat of policy 0 of population 0 there is '0-1', which is policy 1",
    ),
    "a seat of nobody": (
        [match("n", (0, 0), [[1, -1]])],
        None,
        "match 'n': no policy 'p0' .version 0. in population 0",
    ),
    "a seat without a ref": (
        [dataclasses.replace(match("n", (0, 0), [[1, -1]]), seats=("0-0", "1-0"))],
        None,
        "0-0 in a seat of population 0",
    ),
    "a version that no member has": (
        [dataclasses.replace(match("n", (0, 0), [[1, -1]]), seats=(PolicyRef(0, "0-0", 7), PolicyRef(1, "1-0")))],
        None,
        "match 'n': no policy '0-0' .version 7.",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_of_a_refused_result_is_kept(what):
    matches, row, sentence = REFUSED[what]
    facts = Facts()
    made = filled(facts)
    before, told = json.dumps(made.state_dict(), default=_plain), list(facts.heard)
    payoffs = None if row is None else np.stack([np.array(row), -np.array(row)])
    good = played("good", (0, 0), [[2, -2]])
    with pytest.raises(DataError, match=sentence):
        made.on_result(EvaluationResult(EvaluationTask("e1", 1), matches=(good, *matches), payoffs=payoffs))
    assert json.dumps(made.state_dict(), default=_plain) == before
    assert facts.heard == told
    made.on_result(
        EvaluationResult(EvaluationTask("e1", 1), matches=(good,), payoffs=np.array([[[2.0], [3.0]], [[-2.0], [-3.0]]]))
    )
    assert facts.heard[len(told) :] == [("matches", "good"), ("payoffs", [[0, 0]], [[2.0, -2.0]])]


@pytest.mark.parametrize("stored", [True, False])
def test_state_through_a_checkpoint_on_disk(tmp_path, stored):
    facts = Facts() if stored else None
    made = filled(facts)
    state = made.state_dict()
    assert ("weights" in state) is not stored
    name = checkpoint.save(tmp_path, 1, state)
    other = manager(facts)
    other.load_state_dict(checkpoint.load(tmp_path, name))
    assert other.populations == made.populations
    for ref in (ref for population in made.populations for ref in population):
        assert same_weights(other.weights_of(ref)[1], made.weights_of(ref)[1])
        assert other.record_of(ref) == made.record_of(ref)
    for array in ("mean", "count", "m2", "exact"):
        np.testing.assert_array_equal(getattr(other.view().payoffs, array), getattr(made.view().payoffs, array))
    if stored:
        assert len(facts.heard) == 5, "loading tells the recorder nothing"
    for again in (made, other):
        again.add(1, "1-1", SPEC, weights(7))
        again.record_matches([played("m", (0, 0), [[1, -1], [2, -2]]), played("n", (0, 1), [[4, -4]])])
    assert json.dumps(made.state_dict(), default=_plain) == json.dumps(other.state_dict(), default=_plain)


def _plain(value):
    return value.tolist()


def test_populations_of_an_environment():
    def spec(symmetry, players):
        return EnvSpec("game", (), ((-1.0, 1.0),) * players, symmetry)

    assert populations_of(spec(((0,), (1,)), 2)) == (0, 1)
    assert populations_of(spec(((0, 1),), 2)) == (0, 0)
    assert populations_of(spec(((1, 3), (2, 0)), 4)) == (0, 1, 0, 1)
    assert populations_of(spec(((0, 1),), 2), share=False) == (0, 1)
    for wrong in (((0,),), ((0, 1), (1,)), ((0, 1, 2),)):
        with pytest.raises(EnvError, match="not a partition"):
            populations_of(spec(wrong, 2))
