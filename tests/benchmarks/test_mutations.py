"""The list of faults fits the tree; and how a fault is played and counted, on a tree of two functions."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import mutations
from benchmarks.machine import ROOT
from benchmarks.mutations import Copy, Fault, Faults, Log, Verdict, outcomes

PACKAGES = {path.parent.name for path in (ROOT / "ludus").glob("*/__init__.py")}


def test_every_fault_can_be_made() -> None:
    faults, sources = Faults.read(), mutations.sources(ROOT)
    for fault in faults.faults:
        fault.made(sources)
        assert fault.find != fault.replace, fault.name
    assert len(faults.faults) >= 80
    assert len({f.name for f in faults.faults}) == len({f.find for f in faults.faults}) == len(faults.faults)
    assert {fault.package for fault in faults.faults} == set(faults.folders) == PACKAGES


def test_files_that_ought_to_notice_are_there() -> None:
    known = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert [fault.name for fault in Faults.read().faults if fault.near and not known & set(fault.near)] == []


def test_a_snippet_stands_there_once() -> None:
    fault = Fault("sign", "core", "a + b", "a - b", ("x + y", "x - y"))
    assert fault.made({Path("x.py"): "c = a + b", Path("y.py"): "c = 1"}) == (Path("x.py"), "c = a - b")
    assert fault.made({Path("x.py"): "c = x + y", Path("y.py"): "c = 1"}) == (Path("x.py"), "c = x - y")
    for text, times in (("c = 1", 0), ("c = a + b; d = a + b", 2)):
        with pytest.raises(LookupError, match=f"'sign' must stand in ludus/ once, and stands there {times} times"):
            fault.made({Path("x.py"): text})


SOURCE = "def f(a, b):\n    return 2 * (a + b)\n\n\ndef g(a):\n    return 3 * a\n"
SIGN, FACTOR = (
    Fault("sign", "core", "a + b", "a - b", near=("test_near.py",)),
    Fault("factor", "core", "2 * (", "4 * ("),
)
UNSEEN = Fault("unseen", "core", "3 * a", "4 * a")


class FakeCopy(Copy):
    """Its tests: one of test_near.py fails whatever happens, one knows the sign; a slow one of test_own.py knows the factor."""

    def _pytest(self, arguments: Sequence[str], *, slow: bool, caches: Path) -> str:
        text = (self._tree / "ludus" / "core" / "sums.py").read_text()
        known = {
            "tests/core/test_near.py::test_broken": not slow,
            "tests/core/test_near.py::test_sign": not slow and SIGN.find not in text,
            "tests/core/test_own.py::test_factor": slow and FACTOR.find not in text,
        }
        chosen = [test for test in known if {test, test.partition("::")[0]} & set(arguments)]
        return next((test for test in chosen if known[test] and f"--deselect={test}" not in arguments), "")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "ludus/core/sums.py": SOURCE,
        **{f"tests/{name}": "" for name in ("core/test_near.py", "core/test_own.py")},
    }
    for name, text in {**files, "tests/cli/test_other.py": ""}.items():
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path / "checkout")], check=True)
    return tmp_path / "checkout"


def test_faults_are_played_until_a_test_fails_by_them(checkout: Path, tmp_path: Path) -> None:
    log, new = Log(tmp_path / "now.json"), Verdict("", "core")
    copy = FakeCopy(checkout, tmp_path / "copy", {"core": ("core", "kernel")}, log)
    verdict = copy.play(SIGN, new, mutations.STAGES)
    assert (verdict.by, verdict.stages) == ("tests/core/test_near.py::test_sign", ("near",))
    assert log.spoilt == ["tests/core/test_near.py::test_broken"]
    fast = copy.play(FACTOR, new, ("near", "package", "all"))
    assert (fast.by, fast.stages, fast.silent) == ("", ("near", "package", "all"), False)
    log.write(fast)
    slow = copy.play(FACTOR, Log(tmp_path / "now.json").verdicts[fast.name], mutations.STAGES)
    assert (slow.by, slow.stages) == ("tests/core/test_own.py::test_factor", mutations.STAGES)
    assert copy.play(replace(FACTOR, near=("test_own.py",)), fast, ("near",)).stages == ("near",)  # anew: stages differ
    assert copy.play(UNSEEN, new, mutations.STAGES).silent
    assert (tmp_path / "copy" / "tree" / "ludus" / "core" / "sums.py").read_text() == SOURCE
    assert (checkout / "ludus" / "core" / "sums.py").read_text() == SOURCE


def test_each_file_is_in_one_fast_stage(checkout: Path, tmp_path: Path) -> None:
    copy = FakeCopy(checkout, tmp_path / "copy", {"core": ("core",)}, Log(tmp_path / "now.json"))
    near, own, other = "tests/core/test_near.py", "tests/core/test_own.py", "tests/cli/test_other.py"
    assert [copy._files(SIGN, stage) for stage in mutations.STAGES] == [[near], [own], [other], [near, own]]


def test_only_what_was_decided_on_both_trees_is_compared(tmp_path: Path) -> None:
    now, before = Log(tmp_path / "now.json"), Log(tmp_path / "before.json")
    faults = (SIGN, FACTOR, UNSEEN)
    for fault, old, new in zip(faults, ("test", "test", ""), ("test", "", "test"), strict=True):
        before.write(Verdict(fault.name, "core", stages=("near",), by=old))  # the last is not decided
        now.write(Verdict(fault.name, "core", stages=mutations.STAGES, by=new))
    silent, more = outcomes(faults, now, before)
    assert (silent.value, silent.verdict) == (1.0, "short")
    assert (more.value, more.verdict) == (-1.0, "short")
    assert [outcome.verdict for outcome in outcomes(faults, Log(tmp_path / "none.json"), before)] == ["unjudged"] * 2


def test_the_command_tells_what_was_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutations, "play", lambda *_args, **_options: None)
    fault = Faults.read().faults[0]
    Log(tmp_path / "now.json").write(Verdict(fault.name, fault.package, stages=mutations.STAGES))
    assert mutations.main(["--results", str(tmp_path), "--only", fault.package]) == 1
    out = capsys.readouterr().out
    assert f"silent now: {fault.package}: {fault.name}\n" in out
    assert "bar faults that no test notices: - (wanted <= 0) unjudged\n" in out
    assert mutations.main(["--results", str(tmp_path / "none"), "--only", fault.package]) == 0
