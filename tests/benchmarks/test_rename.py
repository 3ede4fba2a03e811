"""The codemod renames by scope: one function's variable, what a module exports, never an attribute of that name."""

from __future__ import annotations

from benchmarks import rename
from benchmarks.rename import RenameMap, Renamer, Report

SOURCE = '''"""About `Old`."""
from ludus.a import share
from ludus.b import told


def first(found, row):
    other = [found for found in row.found]
    return f"{told(found)} {share}", other, Old


def second(told):
    found = told.share
    return share(found=found)
'''
RENAMED = '''"""About `New`."""
from ludus.a import fraction
from ludus.b import told


def first(result, row):
    other = [result for result in row.found]
    return f"{told(result)} {fraction}", other, New


def second(told):
    found = told.share
    return fraction(found=found)
'''


def test_renames_keep_to_their_scope(tmp_path, monkeypatch):
    monkeypatch.setattr(rename, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    names = RenameMap({"Old": "New"}, {"ludus.a:share": "fraction"}, {}, {"module.py": {"first": {"found": "result"}}})
    report = Report()
    Renamer(names, {}, report).file(path)
    assert path.read_text() == RENAMED
    assert not report.left


def test_local_name_stays_where_the_new_one_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(rename, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    report = Report()
    Renamer(RenameMap(locals={"module.py": {"first": {"found": "row"}}}), {}, report).file(path)
    assert path.read_text() == SOURCE
    assert report.left == ["module.py: first: row is used already, found stays"]
