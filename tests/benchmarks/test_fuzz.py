"""Mutated inputs are answered, or refused in one line: a short form of `benchmarks.fuzz`, and the inputs that once failed."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from safetensors.numpy import save

from benchmarks import fuzz_http
from benchmarks.fuzz_judge import Wrong, flaw, judge, own_temporary_files
from benchmarks.fuzz_kinds import KINDS, Kind, case, fill, remember_seeds
from benchmarks.fuzz_mutators import mutate_bytes, mutate_json, mutate_safetensors, mutate_tree
from benchmarks.fuzz_seeds import CORPUS
from ludus.core.errors import LONGEST, LudusError
from ludus.core.types import PolicySpec
from ludus.policies.file import load_policy
from ludus.policies.specs import action_values_spec, actor_critic_spec, body_config

GENEROUS = 4 << 30
"""Bytes of address space: other tests of the process import and compile meanwhile."""
FIRST = 7_000_000
"""Number of the first case: others than those of the campaign."""
FAILED = sorted((CORPUS / "failed").glob("*.json"))
FEW = {
    "scenario": 10,
    "malib": 15,
    "experiment": 15,
    "sweep": 10,
    "database": 8,
    "log": 6,
    "replay": 20,
    "nfg": 25,
    "efg": 25,
}
"""Of kinds of which an input takes long, the inputs of the short form."""


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "box"
    fill(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    own_temporary_files(folder)
    yield folder
    fuzz_http.close_pages()


def judged(kind: Kind, data: bytes, box: Path) -> tuple[str, str]:
    kind.place(data, box)
    verdict = judge(lambda: kind.parse(box), len(data), box, stranger=kind.stranger, allowance=GENEROUS)
    return verdict.kind, verdict.detail


def mutated(name: str, first: int, inputs: int, box: Path) -> None:
    kind, counts = remember_seeds(KINDS[name]), Counter[str]()
    for number in range(first, first + inputs):
        verdict, detail = judged(kind, case(kind, number, box.parent), box)
        counts[verdict] += 1
        assert verdict in ("answer", "refused"), f"--case {name}:{number}: {verdict}: {detail}"
    assert counts["answer"] or inputs < 30, "nothing passes: the seeds do not fit the parser"


@pytest.mark.parametrize("name", KINDS)
def test_mutations_are_answered_or_refused(name: str, box: Path) -> None:
    mutated(name, FIRST, FEW.get(name, 60), box)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_more_mutations_are_answered_or_refused(name: str, box: Path) -> None:
    mutated(name, FIRST + 1000, 4 * FEW.get(name, 100), box)


@pytest.mark.parametrize("name", KINDS)
def test_seeds_are_answered(name: str, box: Path) -> None:
    kind = KINDS[name]
    for seed in kind.seeds()[:3]:
        assert judged(kind, seed, box) == ("answer", "")


@pytest.mark.parametrize("path", FAILED, ids=lambda path: path.stem)
def test_inputs_that_failed_once(path: Path, box: Path) -> None:
    entry = json.loads(path.read_text(encoding="utf-8"))
    data = entry["text"].encode() if "text" in entry else zlib.decompress(base64.b64decode(entry["zlib"]))
    verdict, detail = judged(KINDS[entry["kind"]], data, box)
    assert verdict in ("answer", "refused"), f"{detail} (it was {entry['was']})"


# --------------------------------------------------------------------------------------------------------------------
# Memory: a header's numbers are compared with what the file holds before anything is made of them.

HUGE = 10**7  # with itself as a matrix, 400 TB


CHOICE = {"kind": "categorical", "actions": 2}
SMALL, WIDE = (body_config(hidden=[width], activation="relu") for width in (2, HUGE))


@pytest.mark.parametrize(
    "spec",
    [
        actor_critic_spec(action=CHOICE, shape=(HUGE,), body=WIDE),
        actor_critic_spec(action={**CHOICE, "actions": HUGE}, shape=(3, 9999, 9999), body=body_config(kind="nature")),
        actor_critic_spec(action=CHOICE, shape=(2,), body=SMALL, agents=HUGE),
        action_values_spec(actions=2, shape=(3, 9999, 9999), body=body_config(kind="impala")),
        action_values_spec(actions=2, shape=(HUGE,), body=WIDE, core="gru", width=HUGE),
    ],
)
def test_a_policy_takes_no_memory_on_its_header_s_word(box: Path, spec: PolicySpec) -> None:
    (small,) = (CORPUS / "seeds" / "policies").glob("r.safetensors")
    load_policy(small)  # what is imported for the first policy
    header = json.dumps({"format": 2, "kind": spec.kind, "config": dict(spec.config)})
    (box / "p.safetensors").write_bytes(save({"a": np.zeros(1, np.float32)}, metadata={"ludus": header}))
    verdict = judge(lambda: load_policy(box / "p.safetensors"), 0, box)
    assert verdict.kind == "refused", verdict
    assert "weights" in verdict.detail


# --------------------------------------------------------------------------------------------------------------------
# Messages.


@pytest.mark.parametrize(
    "text", ["a\nb", "a\rb\x0bc", "a\x1b[31mb", "a\u2028b", "a\x85b", "a\ud800b", "a\x00b", "a\tb"]
)
def test_messages_are_one_line_without_control_characters(text: str) -> None:
    message = str(LudusError(text))
    assert flaw(message) == ""
    assert message[0] == "a"
    assert message[-1] == text[-1]
    message.encode()


def test_messages_stay_as_they_are_where_they_can() -> None:
    assert str(LudusError("'a  b' was given; ü expected.")) == "'a  b' was given; ü expected."
    assert len(str(LudusError("x" * 100_000))) <= LONGEST + 3


# --------------------------------------------------------------------------------------------------------------------
# The judge itself finds faults, and the mutators change what they are to change.


def _hang() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("act", "wanted"),
    [
        (lambda: None, "answer"),
        (lambda: int("x"), "traceback"),
        (lambda: bytearray(1 << 40), "memory"),
        (_hang, "hang"),
        (lambda: Path("../outside").write_text("x", encoding="utf-8"), "outside"),
        (lambda: Path("../decoy/policy.safetensors").read_bytes(), "outside"),
        (lambda: (_ for _ in ()).throw(Wrong("two")), "wrong"),
        (lambda: (_ for _ in ()).throw(LudusError("")), "message"),
        (lambda: (_ for _ in ()).throw(LudusError("no")), "refused"),
    ],
)
def test_planted_faults_are_found(act: object, wanted: str, box: Path) -> None:
    assert callable(act)
    assert judge(act, 0, box, allowance=1 << 32, seconds=0.2).kind == wanted


def test_a_case_is_the_same_input_again(tmp_path: Path) -> None:
    for kind in KINDS.values():
        assert case(kind, 3, tmp_path) == case(kind, 3, tmp_path)


def test_mutations_differ() -> None:
    data = (CORPUS / "seeds" / "policies" / "r.safetensors").read_bytes()
    assert len({mutate_safetensors(Random(k), data) for k in range(100)}) > 80
    assert len({mutate_bytes(Random(k), data) for k in range(100)}) > 80
    assert len({mutate_json(Random(k), b'{"a": [1, 2, {"b": "c"}]}') for k in range(100)}) > 50
    assert len({str(mutate_tree(Random(k), {"a": 1})) for k in range(100)}) > 20
