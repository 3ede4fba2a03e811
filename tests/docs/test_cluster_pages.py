"""The pages on several processes and machines name what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from pydantic import BaseModel

from ludus.driver.scenario_runtime import RuntimeChoice

PAGES = [pages.ROOT / "docs" / "how-to" / f"{name}.md" for name in ("ray", "cluster", "slurm", "kubernetes")]


@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_keys_are_keys(page: Path) -> None:
    found = set(re.findall(r"\bruntime((?:\.[a-z_]+)+)", page.read_text(encoding="utf-8")))
    assert found, "each of them names some"
    for key in found:
        model: type[BaseModel] = RuntimeChoice
        *inner, last = key.strip(".").split(".")
        for name in inner:
            model = type(model.model_fields[name].get_default())
        assert last in model.model_fields, f"{pages.name(page)} names runtime{key}"


def test_defaults_are_those_of_the_table() -> None:
    cells = dict(
        re.findall(r"^\| `runtime\.(\w+)`[^|]* \| `?(\w+)`? \|", pages.text("docs/how-to/ray.md"), re.MULTILINE)
    )
    fields = RuntimeChoice.model_fields
    for name in ("kind", "mode", "workers", "restarts", "deadline"):
        assert type(fields[name].default)(cells[name]) == fields[name].default


def test_what_the_slurm_page_names_is_in_the_script() -> None:
    script = (pages.EXAMPLES / "cluster" / "ludus.sbatch").read_text(encoding="utf-8")
    assert pages.first_cells("docs/how-to/slurm.md", "before `sbatch`") == ["LUDUS_ENV", "LUDUS_SCRATCH", "LUDUS_PORT"]
    for name in ("LUDUS_ENV", "LUDUS_SCRATCH", "LUDUS_PORT", "--signal=B:TERM@300", "slurm-$SLURM_JOB_ID-ray-%N.out"):
        assert name in script


def test_files_of_the_kubernetes_page_are_there() -> None:
    named = pages.first_cells("docs/how-to/kubernetes.md", "file")
    assert {*named, "ludus.sbatch"} == {path.name for path in (pages.EXAMPLES / "cluster").iterdir()}


def test_ray_start_has_the_options_that_are_named() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    script = (pages.EXAMPLES / "cluster" / "ludus.sbatch").read_text(encoding="utf-8")
    ray = Path(sys.executable).parent / "ray"
    known = subprocess.run([ray, "start", "--help"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in text.splitlines() if line.startswith("ray start ")] + script.splitlines()
    used = {
        word
        for line in lines
        if "ray start" in line or line.startswith("node ")
        for word in re.findall(r" (--[a-z-]+)", line)
    }
    pinned = set(re.findall(r"`(--(?:node|object|min|max)-[a-z-]+)`", text))
    assert len(used) > 6
    assert len(pinned) == 5
    assert {option for option in used | pinned if option not in known} == set()


def test_rays_settings_are_rays() -> None:
    from ray._raylet import Config

    rows = re.findall(r"^\| `RAY_(health_check_\w+)` \| (\d+) \|", PAGES[1].read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 3
    assert {name: int(value) for name, value in rows} == {name: getattr(Config, name)() for name, _ in rows}
