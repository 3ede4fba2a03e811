"""The JSON schema of scenario files: every preset fits, slips do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import ludus
from ludus.apps.options.fields import fields_of
from ludus.apps.options.schema import is_typed, scenario_schema, sweep_schema
from ludus.cli.main import main
from ludus.core.config import from_yaml

PRESETS = Path(ludus.__file__).parent / "runs" / "presets"
RESOLVED = Path(__file__).parents[1] / "snapshots" / "presets"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    jsonschema.Draft7Validator.check_schema(scenario_schema())
    return jsonschema.Draft7Validator(scenario_schema())


def as_json(text: str) -> Any:
    """YAML as an editor has it: its keys are texts."""
    return json.loads(json.dumps(from_yaml(text, what="the scenario")))


def faults(validator: jsonschema.Draft7Validator, text: str) -> list[str]:
    return [f"{fault.json_path}: {fault.message[:200]}" for fault in validator.iter_errors(as_json(text))]


def test_presets_fit_as_they_are_and_resolved(validator: jsonschema.Draft7Validator) -> None:
    """Resolved as tests/snapshots compares them."""
    files = [*PRESETS.glob("*.yaml"), *RESOLVED.glob("*.yaml")]
    assert len(files) > 150
    wrong = {path: slips for path in files if (slips := faults(validator, path.read_text(encoding="utf-8")))}
    assert wrong == {}


@pytest.mark.parametrize(
    "text",
    [
        "{env: openspiel/kuhn_poker}",
        "{env: my_games:Nim, algorithm: my_algorithms:Mine, meta_solver: {kind: my_solvers:Newest, count: 3}}",
        "{env: {id: openspiel/kuhn_poker, options: {anything: 1}}, scenario: my_schedules:Ladder, rungs: 5}",
        "{env: a/b, algorithm: {kind: ppo, learning_rate: 0.001, network: {kind: my_networks:Body, width: 3}}}",
        "{env: a/b, algorithms: {1: dqn, main_exploiter: {kind: ppo, clip: 0.2}}, scenario: league}",
        "{env: a/b, response: {episodes: 100, updates: 5}, stop: {any: [{seconds: 60}, {nash_conv: 0.1}]}}",
        "{env: a/b, stop: {my_stoppers:Reduced: 0.1}, opponents: bot:random, warm_start: last}",
        "{env: a/b, opponents: [random, {policy: try1@best, weight: 2}], runtime: ray, import: my_games}",
        "{env: a/b, evaluation: {exploitability: off}, callbacks: my_callbacks:ToCsv}",
    ],
)
def test_what_a_file_may_say(validator: jsonschema.Draft7Validator, text: str) -> None:
    assert faults(validator, text) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{}", "$"),
        ("{env: a/b, generation: 3}", "$"),
        ("{env: a/b, generations: -1}", "$.generations"),
        ("{env: a/b, generations: many}", "$.generations"),
        ("{env: a/b, scenario: leage}", "$.scenario"),
        ("{env: a/b, league_exploiters: 2}", "$"),  # of psro, which has none
        ("{env: a/b, algorithm: pppo}", "$.algorithm"),
        ("{env: a/b, algorithm: {kind: ppo, clipp: 0.2}}", "$.algorithm"),
        ("{env: a/b, algorithm: {kind: dqn, clip: 0.2}}", "$.algorithm"),
        ("{env: a/b, algorithm: {clip: 0.2}}", "$.algorithm"),
        ("{env: {id: a/b, num_envs: 0}}", "$.env"),
        ("{env: {id: a/b, tre: off}}", "$.env"),
        ("{env: a/b, response: {episode: 5}}", "$.response"),
        ("{env: a/b, meta_solver: {kind: nash, tolerances: 1}}", "$.meta_solver"),
        ("{env: a/b, evaluation: {payoffs: exactly}}", "$.evaluation.payoffs"),
        ("{env: a/b, runtime: {mode: asynch}}", "$.runtime"),
    ],
)
def test_slips_are_seen(validator: jsonschema.Draft7Validator, text: str, place: str) -> None:
    assert [fault.partition(": ")[0] for fault in faults(validator, text)] == [place]


def test_every_field_says_what_it_takes() -> None:
    """A field that no type describes has a rule in `ludus.apps.options.schema`."""
    vague = [
        f"{name} {field}"
        for name, definition in scenario_schema()["definitions"].items()
        for field, schema in definition.get("properties", {}).items()
        if not (is_typed(schema) or "allOf" in schema) and (name, field) != ("Environment", "source")
    ]
    assert vague == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("{scenario: leduc, options: {algorithm.batch: {choices: [500, 1000]}}, trials: 20, sampler: random}", []),
        ("{scenario: leduc, options: {a: {low: 1, high: 2}}, sampler: {kind: tpe, seed: 1}, pruner: none}", []),
        ("{scenario: leduc, options: {}}", ["$.options"]),
        ("{scenario: leduc, options: {a: {lo: 1}}}", ["$.options.a"]),
        ("{scenario: leduc, options: {a: {low: 1, high: 2}}, sampler: tep}", ["$.sampler"]),
        ("{options: {a: {low: 1, high: 2}}}", ["$"]),
    ],
)
def test_sweeps(text: str, places: list[str]) -> None:
    jsonschema.Draft7Validator.check_schema(sweep_schema())
    slips = jsonschema.Draft7Validator(sweep_schema()).iter_errors(as_json(text))
    assert [slip.json_path for slip in slips] == places


def test_fields_of_what_has_none() -> None:
    assert fields_of(int) == {}


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == scenario_schema()
