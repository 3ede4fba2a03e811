"""Files at the root that name what the code has: the citation, the container's, and CI on GitHub. None of them can be run here."""

from __future__ import annotations

import re
import tomllib

import pages
import yaml

import ludus

PROJECT = tomllib.loads(pages.text("pyproject.toml"))["project"]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load(pages.text("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # that the format requires
    assert (citation["version"], citation["license"]) == (ludus.__version__, PROJECT["license"])


def test_the_container_file_copies_what_is_there() -> None:
    text = pages.text("Containerfile")
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    sources = [name for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert [name for name in sources if not (pages.ROOT / name).exists()] == []
    allowed = re.findall(r"^!(.*)$", pages.text(".containerignore"), re.MULTILINE)
    assert set(sources) <= set(allowed)
    assert f"ludus:{ludus.__version__} " in text


def test_github_runs_what_ci_runs() -> None:
    """One command, so that nothing is forgotten there; and the fast tests on each Python that the package allows."""
    jobs = yaml.safe_load(pages.text(".github/workflows/ci.yml"))["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert ".ci/run" in commands["ci"]
    assert commands["versions"] == ["make test"]
    (first,) = [
        step["with"]["python-version"] for step in jobs["ci"]["steps"] if "setup-python" in step.get("uses", "")
    ]
    versions = {first, *jobs["versions"]["strategy"]["matrix"]["python-version"]}
    least, most = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    assert versions == {f"3.{minor}" for minor in range(int(least), int(most))}
