"""Properties of configuration: any scenario survives YAML, any misspelt key is an error that names the right one, overrides set what
they say and nothing else."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ludus.algorithms.common.registry import ALGORITHMS
from ludus.core import config
from ludus.core.config import from_yaml, override, to_yaml
from ludus.core.errors import ConfigError
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.runs.scenario import PSRO
from ludus.runs.scenario_files import list_presets, load_scenario, parse_scenario
from ludus.schedulers.responses import RESPONSES
from ludus.training.stopping import STOPPERS

# ---------------------------------------------------------------------------------------------- scenarios as a user writes them

positive = st.integers(1, 10**6)
share = st.floats(0, 1)
above_zero = st.floats(1e-9, 1e6)


def options(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these keys, in any combination."""
    return st.fixed_dictionaries({}, optional=fields)


def part(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(kind) | options(**fields).map(lambda given: {"kind": kind, **given})


def schedules(most: float) -> st.SearchStrategy[Any]:
    ends = st.floats(1e-9, most)
    constant = st.fixed_dictionaries({"start": ends}, optional={"end": st.none()})
    whole = st.fixed_dictionaries(
        {"start": ends, "end": ends},
        optional={
            "shape": st.sampled_from(["linear", "exponential", "cosine", "step"]),
            "over": st.floats(0.01, 1),
        },
    )
    return ends | constant | whole


UNITS = st.sampled_from(["episodes", "decisions"])
HIDDEN = st.lists(st.integers(1, 256), max_size=3)
ORACLES = {
    **{name: part(name) for name in ALGORITHMS},
    "a2c": part(
        "a2c",
        network=st.sampled_from(["mlp", "nature", "impala"]),
        memory=st.sampled_from(["none", "gru", "lstm"]),
        memory_size=positive,
        sequence=positive,
        continuous=st.sampled_from(["gaussian", "tanh"]),
        initial_std=st.floats(0.01, 7.0),
        normalise_observations=st.booleans(),
        normalise_returns=st.booleans(),
        entropy=schedules(1),
    ),
    "ppo": part(
        "ppo",
        hidden=HIDDEN,
        activation=st.sampled_from(["tanh", "relu"]),
        value_network=st.sampled_from(["shared", "separate"]),
        batch=positive,
        batch_unit=UNITS,
        epochs=positive,
        minibatches=positive,
        max_lag=st.none() | st.integers(0, 9),
        learning_rate=schedules(1),
        entropy=schedules(1),
        gamma=share,
        gae_lambda=share,
        clip=above_zero,
        clip_value=st.none() | above_zero,
        target_kl=st.none() | above_zero,
        normalise_advantages=st.booleans(),
        scale_rewards=st.booleans(),
    ),
    "dqn": part(
        "dqn",
        hidden=HIDDEN,
        double=st.booleans(),
        dueling=st.booleans(),
        n_step=st.integers(1, 9),
        rollout=st.integers(9, 10**6),
        rollout_unit=UNITS,
        min_size=st.integers(1, 1000),
        learning_rate=schedules(1),
        epsilon=schedules(1),
        polyak=st.none() | st.floats(1e-6, 1),
        huber_delta=above_zero,
    ),
    "tabular_q": part(
        "tabular_q", batch=positive, step=st.sampled_from(["visits", "constant"]), power=share, epsilon=schedules(1)
    ),
}
SOLVERS = {
    **{name: part(name) for name in META_SOLVERS},
    "nash": part(
        "nash",
        method=st.sampled_from(["interior_point", "highs"]),
        tolerance=st.floats(1e-12, 0.5),
        slack=st.floats(0, 0.9),
    ),
    "fictitious_play": part("fictitious_play", iterations=positive),
    "projected_replicator_dynamics": part(
        "projected_replicator_dynamics", iterations=positive, dt=st.floats(1e-6, 0.1), gamma=st.floats(0, 1e-3)
    ),
    "uniform": part("uniform"),
    "last": part("last"),
}
COUNTERS = ("decisions", "episodes", "generations", "samples", "steps", "updates")
SINGLE = {
    **{name: st.builds(lambda value, n=name: {n: value}, positive) for name in COUNTERS},
    "seconds": st.builds(lambda value: {"seconds": value}, above_zero),
    "nash_conv": st.builds(lambda value: {"nash_conv": value}, st.floats(0, 9)),
    "win_rate": options(matches=positive).map(lambda more: {"win_rate": {"above": 0.5, **more}}),
    "best_response_gain": options(generations=positive).map(
        lambda more: {"best_response_gain": {"at_most": 0.1, **more}}
    ),
    "no_improvement": options(min_delta=st.floats(0, 1), of=st.sampled_from(["scores", "nash_conv", "win_rates"])).map(
        lambda more: {"no_improvement": {"evaluations": 3, **more}}
    ),
}
several = st.lists(st.one_of(*SINGLE.values()), min_size=1, max_size=3)
stoppers = st.one_of(
    *SINGLE.values(),
    several.map(lambda of: {"any": of}),
    several.map(lambda of: {"all": of}),
    st.just({"episodes": 5, "updates": 7}),
)
switch = st.sampled_from(["auto", "on", "off", True, False])
names = st.text(string.ascii_letters + string.digits + "_.-", max_size=12).filter(lambda t: not t or t[0].isalnum())
rules = st.one_of(
    st.sampled_from(["random", "last", "best"]),
    options(source=st.sampled_from(["random", "last", "best"]), first=positive, last=st.none() | positive).filter(
        lambda rule: (rule.get("last") or rule.get("first", 1)) >= rule.get("first", 1)
    ),
    names.map(lambda path: {"source": "file", "path": path}),
)
ENV = st.just("openspiel/kuhn_poker") | options(
    num_envs=positive,
    tree=switch,
    node_limit=positive,
    workers=st.integers(0, 9),
    deadline=st.none() | above_zero,
    restarts=st.integers(0, 9),
    wrappers=st.sampled_from([[], "flatten_observation", [{"kind": "scale_reward", "factor": 2.0}, "agent_ids"]]),
    options=st.dictionaries(names, positive | names, max_size=2),
).map(lambda given: {"id": "openspiel/kuhn_poker", **given})
OPTIONAL = {
    "algorithm": st.one_of(*ORACLES.values()),
    "algorithms": st.dictionaries(st.sampled_from(["0", "1"]), ORACLES["tabular_q"], max_size=2),
    "meta_solver": st.one_of(
        *(made for name, made in SOLVERS.items() if name != "rectified_nash")
    ),  # which wants responses
    "opponents": st.lists(st.sampled_from(["random", "bot:mcts-20", "mine:Scripted"]), max_size=2, unique=True),
    "responses": st.sampled_from(sorted(RESPONSES)),
    "order": st.sampled_from(["simultaneous", "sequential"]),
    "diversity": st.none()
    | st.builds(dict, kind=st.sampled_from(["behavioural", "response"]), weight=st.floats(0, 10)),
    "generations": st.integers(0, 10**6),
    "response": stoppers | st.none(),
    "stop": stoppers | st.none(),
    "warm_start": rules | st.lists(rules, max_size=3),
    "mode": st.sampled_from(["explore", "greedy"]),
    "share": st.sampled_from(["always", "auto", "never"]),
    "evaluation": options(
        payoffs=st.sampled_from(["auto", "exact", "simulate"]),
        episodes=st.integers(2, 10**6),
        exploitability=st.sampled_from(["auto", "exact", "off", False]),
    ),
    "checkpoints": options(generations=positive, iterations=positive, keep=positive),
    "runtime": st.sampled_from(["inprocess", "ray"])
    | options(
        kind=st.sampled_from(["inprocess", "ray"]),
        workers=positive,
        shards=st.none() | positive,
        address=st.none() | st.just("127.0.0.1:6379"),
        restarts=st.integers(0, 9),
        cpus=share,
        gpus=share,
    ),
    "callbacks": st.lists(
        st.sampled_from(["ludus:Callback", {"kind": "ludus.training.callbacks:Callback"}]), max_size=2
    ),
    "seed": st.integers(0, 2**63),
    "name": names,
    "track": st.lists(st.sampled_from(["tensorboard", {"kind": "tensorboard", "history": False}]), max_size=1),
}
SCENARIOS = st.fixed_dictionaries({"env": ENV}, optional=OPTIONAL)
many = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])


def test_every_shipped_part_is_generated() -> None:
    assert ORACLES.keys() == ALGORITHMS.keys()
    assert SOLVERS.keys() == META_SOLVERS.keys()  # options that are written out must be of one that there is
    assert SINGLE.keys() | {"any", "all"} == STOPPERS.keys()
    assert {"env", *OPTIONAL} == PSRO.model_fields.keys()


# ---------------------------------------------------------------------------------------------- there and back


@many
@given(SCENARIOS)
def test_a_scenario_survives_yaml(given_: dict[str, Any]) -> None:
    scenario = PSRO(**given_)
    text = scenario.to_yaml()
    again = parse_scenario(text)
    assert again == scenario
    assert again.to_yaml() == text
    assert parse_scenario(to_yaml(given_)) == scenario
    assert yaml.safe_load(text)["scenario"] == "psro"  # plain YAML, that others can read


words = st.sampled_from(
    ["on", "no", "null", "1e5", "3e-4", "+.5E+7", "0x1F", "12:30", "2026-11-20", "~", "", "a: b", "- x", "#"]
)
texts = words | st.text(string.printable.replace("\r", "").replace("\x0b", "").replace("\x0c", ""), max_size=10)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@many
@given(plain)
def test_any_value_survives_yaml_with_its_type(value: Any) -> None:
    assert same(from_yaml(to_yaml(value), what="it"), value)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def test_numbers_with_exponents() -> None:
    numbers = {"3e-4": 3e-4, "1E5": 1e5, "-.5e+1": -5.0, "1.e2": 100.0, "1_000": 1000}
    numbers |= {"010": 10, "008": 8, "-07": -7, "0x1F": 31, "0o17": 15}  # as in YAML 1.2
    for text, value in {
        **numbers,
        "'3e-4'": "3e-4",
        "e5": "e5",
        "1e": "1e",
        "1:30": "1:30",
        "2s3z": "2s3z",
        "1e5x": "1e5x",
    }.items():
        assert same(from_yaml(text, what="it"), value), text
        assert same(from_yaml(f"{{a: [{text}]}}", what="it"), {"a": [value]}), text


# ---------------------------------------------------------------------------------------------- misspelt keys


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all keys below a scenario but those of `env.options`, which belong to the environment."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield (*path, key)
            if (*path, key) != ("env", "options"):
                yield from places(below, (*path, key))
    elif isinstance(value, list):
        for k, below in enumerate(value):
            yield from places(below, (*path, k))


def misspelt(draw: st.DrawFn, word: str) -> str:
    """One letter too many, too few, or wrong."""
    at = draw(st.integers(0, len(word) - 1))
    letter = draw(st.sampled_from(string.ascii_lowercase))
    return draw(
        st.sampled_from(
            [word[:at] + letter + word[at:], word[:at] + letter + word[at + 1 :], word[:at] + word[at + 1 :]]
        )
    )


def replaced(value: Any, path: tuple[Any, ...], key: str) -> Any:
    """A copy in which the key at the end of `path` is `key`."""
    head, *rest = path
    if not rest:
        return {(key if k == head else k): v for k, v in value.items()}
    if isinstance(value, list):
        return [replaced(v, tuple(rest), key) if k == head else v for k, v in enumerate(value)]
    return {k: replaced(v, tuple(rest), key) if k == head else v for k, v in value.items()}


@st.composite
def misspelt_scenarios(draw: st.DrawFn) -> tuple[dict[str, Any], str, str]:
    full = {"scenario": "psro", **PSRO(**draw(SCENARIOS)).model_dump(mode="json")}
    path = draw(st.sampled_from([p for p in places(full) if p != ("scenario",)]))
    wrong = draw(st.composite(misspelt)(path[-1]))
    return replaced(full, path, wrong), path[-1], wrong


@many
@given(misspelt_scenarios())
def test_a_misspelt_key_is_refused_and_the_right_one_named(case: tuple[dict[str, Any], str, str]) -> None:
    data, right, wrong = case
    if wrong == right or not wrong:
        return
    with pytest.raises(ConfigError) as caught:
        parse_scenario(to_yaml(data))
    message = str(caught.value)
    if (
        right == "kind"
    ):  # then nothing says whose keys these are, but for the runtime's and inference's, which all kinds share
        assert "a mapping with `kind`" in message or re.search(f"runtime: (inference: )?unknown key {wrong!r}", message)
    elif right != "env" or "env: it is needed" not in message:
        assert repr(wrong) in message or f".{wrong}'" in message
        assert (
            repr(right) in message or f" {right}," in message or f"({right}" in message or f"known: {right}" in message
        )


@many
@given(SCENARIOS, st.text(string.ascii_lowercase, min_size=1, max_size=12), st.data())
def test_a_key_that_nobody_knows_is_refused_anywhere(given_: dict[str, Any], key: str, data: st.DataObject) -> None:
    full = PSRO(**given_).model_dump(mode="json")
    path = data.draw(st.sampled_from([p[:-1] for p in places(full)]))
    here = full
    for step in path:
        here = here[step]
    if key in here:
        return
    here[key] = 1
    try:
        scenario = parse_scenario(to_yaml(full))
    except ConfigError:
        return
    # an optional key of that part, or one more stopper beside another: known, then, and kept
    assert key in str(scenario.to_yaml())
    assert key in {*COUNTERS, "seconds", "matches", "nash_conv"}


# ---------------------------------------------------------------------------------------------- overrides

trees = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))
paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join)


def at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = tree[name]
    return tree


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(tree, Mapping):
        return {path: tree}
    return {k: v for name, below in tree.items() for k, v in leaves(below, f"{path}.{name}".lstrip(".")).items()}


@many
@given(trees, paths, plain)
def test_an_override_sets_one_thing_and_leaves_the_rest(tree: dict[str, Any], path: str, value: Any) -> None:
    before = json.dumps(tree)
    result = override(tree, [f"{path}={json.dumps(value)}"])
    assert json.dumps(tree) == before
    assert same(at(result, path), value)
    kept = {name: leaf for name, leaf in leaves(tree).items() if not _related(name, path)}
    assert {name: at(result, name) for name in kept} == kept


def _related(a: str, b: str) -> bool:
    """One lies on the way to the other."""
    return f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.")


@many
@given(SCENARIOS, SCENARIOS, st.data())
def test_overriding_a_part_is_writing_it(given_: dict[str, Any], other: dict[str, Any], data: st.DataObject) -> None:
    wanted = PSRO(**other).model_dump(mode="json")
    key = data.draw(st.sampled_from(sorted(wanted)))
    text = PSRO(**given_).to_yaml()
    changed = parse_scenario(text, [f"{key}={json.dumps(wanted[key])}"])
    assert changed.model_dump(mode="json") == {**PSRO(**given_).model_dump(mode="json"), key: wanted[key]}


def test_presets_survive_yaml_and_take_overrides() -> None:
    for name in list_presets():
        scenario = load_scenario(name)
        assert parse_scenario(scenario.to_yaml()) == scenario, name
    for name in ("cartpole", "kuhn", "leduc-league"):
        changed = load_scenario(name, ["generations=7", "env.num_envs=3", "seed=1"], seed=2)
        assert (changed.generations, changed.env.num_envs, changed.seed) == (7, 3, 2), name
        assert changed.env.id == load_scenario(name).env.id, name


def test_a_part_that_is_given_whole_undoes_no_option_of_it() -> None:
    """As `--workers 2 runtime=processes`, in which the second comes after the first."""
    changes = ["runtime.workers=3", "algorithm.batch=7", "runtime=processes", "algorithm=a2c", "runtime.workers=2"]
    scenario = parse_scenario("env: openspiel/kuhn_poker", changes)
    assert (scenario.runtime.kind, scenario.runtime.workers) == ("processes", 2)
    assert (type(scenario.algorithm).__name__, scenario.algorithm.batch) == ("A2C", 7)


def test_an_override_reaches_a_part_that_the_file_leaves_out() -> None:
    scenario = parse_scenario(
        "env: openspiel/kuhn_poker", ["algorithm.batch=7", "meta_solver.slack=0.25", "env.num_envs=3"]
    )
    assert (scenario.algorithm.batch, scenario.meta_solver.slack, scenario.env.num_envs) == (7, 0.25, 3)
    assert type(scenario.algorithm) is type(PSRO(env="openspiel/kuhn_poker").algorithm)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("env: a\nenv: b", "key 'env' is given twice"),
        ("env: {id: a, id: b}", "key 'id' is given twice"),
        ("env: a\ngenerations: yes", "generations: a number was expected (given: True)"),
        ("env: a\nalgorithm: {kind: ppo, hidden: [64, yes]}", "hidden: numbers were expected (given: [64, True])"),
        (
            "env: a\nalgorithm: {kind: ppo, clip_value: no}",
            "algorithm: clip_value: a number was expected (given: False)",
        ),
        (
            "env: a\nalgorithm: !!python/object/apply:os.getcwd []",
            "is not valid YAML: could not determine a constructor",
        ),
    ],
)
def test_yaml_rejects_duplicate_keys_and_odd_numbers(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_scenario(text)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 1500, "{a: " * 1500, "- " * 1500, "a: 1\n" * 20_001])
def test_deep_or_long_text_is_not_given_to_libyaml(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_FastLoader", None)  # which would be called
    with pytest.raises(ConfigError, match=r"it is not valid YAML: (it is nested too deeply|key 'a' is given twice)"):
        config.from_yaml(text, what="it")
