"""The linter of the tests: what it reports, and what it lets pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import exact_comparisons as linter

REPORTED = {
    "two kinds of trees": """
def test(name):
    tree, tensors = compile_tree(name), TreeTensors(compile_tree(name), "cpu")
    values, responses = tensors.best_response(0, plans)
    singly = [tree.best_response(0, profile) for profile in profiles]
    np.testing.assert_array_equal(responses.numpy(), np.stack([table for _, table in singly]))
""",
    "zero by logarithms": """
def test():
    surprises = []
    for k in range(3):
        surprises.append(np.log(np.exp(out).sum()) - out[k])
    assert surprises[0] == 0.0
""",
    "a product by hand": "def test():\n    assert learner.values(x).tolist() == (weight @ x).tolist()\n",
    "bits": "def test():\n    assert policy.evaluate(x).tobytes() == torch.tanh(network(x)).numpy().tobytes()\n",
    "who is best": "def test():\n    assert torch.equal(policy.act(x).action, network.forward(x).argmax(dim=1))\n",
    "without tolerance": "def test():\n    np.testing.assert_allclose(softmax(x), kernel(x), rtol=0, atol=0)\n",
    "a reference of the file": """
def by_hand(x):
    return [math.exp(v) for v in x]

def test():
    assert kernel(x).tolist() == by_hand(x)
""",
    "a helper of the file": """
def close(one, other):
    np.testing.assert_array_equal(one.numpy(), other)

class TestIt:
    def test(self):
        close(module(x), np.einsum("ij,j->i", w, x))
""",
    "a fraction": "def test():\n    total = 0.0\n    total += np.mean(rewards)\n    assert total == 0.3\n",
}

PASSED = {
    "the same program twice": "def test():\n    one, other = PPO(), PPO()\n    assert one.update(x) == other.update(y)\n",
    "other arguments": "def test():\n    assert played(workers=1).values(x) == played(workers=4).values(x)\n",
    "approximately": "def test():\n    assert learner.values(x) == pytest.approx(w @ x)\n",
    "by hand": "def test():\n    assert tree.values(profile).tolist() == [2.5, -2.5]\n",
    "with tolerance": "def test():\n    np.testing.assert_allclose(softmax(x), kernel(x), rtol=1e-6)\n",
    "shapes and counts": "def test():\n    assert (w @ x).shape == (3,)\n    assert len(np.exp(x)) == len(x)\n",
    "what was stored": "def test():\n    x = np.exp(y)\n    save(x)\n    assert load().tolist() == [1.0, 2.0]\n",
    "IEEE arithmetic": "def test():\n    assert scale(x) == (x - 0.1) / 3.0\n",
    "values of a dictionary": "def test():\n    assert list(names.values()) == sorted(other.values())\n",
}


@pytest.mark.parametrize("kind", REPORTED)
def test_exact_comparisons_are_reported(kind: str) -> None:
    assert len(linter.findings(REPORTED[kind])) == 1


@pytest.mark.parametrize("kind", PASSED)
def test_tolerant_comparisons_pass(kind: str) -> None:
    assert linter.findings(PASSED[kind]) == []


def test_a_reference_in_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def by_hand(x):\n    return np.log(x)\n")
    code = "from tools import by_hand\n\ndef test():\n    assert kernel(x) == by_hand(x)\n"
    assert len(linter.findings(code, tmp_path)) == 1
    assert linter.findings(code.replace("by_hand", "shown"), tmp_path) == []


def test_entries_cite_rows_and_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(linter, "HERE", tmp_path)
    path = tmp_path / "test_it.py"
    path.write_text(REPORTED["bits"])
    page = "| `resume` | a run |\n"
    assert list(linter.faults([path], {"test_it.py:test": "resume"}, page)) == []
    (fault,) = linter.faults([path], {}, page)
    assert fault.startswith("tests/test_it.py:2: policy.evaluate(x).tobytes() == ")
    (fault,) = linter.faults([path], {"test_it.py:test": "faith"}, page)
    assert "cites the row 'faith', which reproduce.md lacks; it has resume" in fault
    (fault,) = linter.faults([], {"test_it.py:test": "resume"}, page)
    assert fault == "test_it.py:test compares nothing exactly any more: its entry can go"
