"""The pages on several processes and machines name what there is."""

from __future__ import annotations

import re

import pages

PAGES = [pages.ROOT / "docs" / "guides" / f"{name}.md" for name in ("processes", "cluster")]


def test_slurm_script_has_the_names_of_its_page() -> None:
    script = (pages.EXAMPLES / "cluster" / "ludus.sbatch").read_text(encoding="utf-8")
    assert pages.first_cells("docs/guides/cluster.md", "before `sbatch`") == [
        "LUDUS_ENV",
        "LUDUS_SCRATCH",
        "LUDUS_PORT",
    ]
    for name in ("LUDUS_ENV", "LUDUS_SCRATCH", "LUDUS_PORT", "--signal=B:TERM@300", "slurm-$SLURM_JOB_ID-ray-%N.out"):
        assert name in script


def test_files_of_the_kubernetes_page_are_there() -> None:
    named = pages.first_cells("docs/guides/cluster.md", "file")
    assert {*named, "ludus.sbatch"} == {path.name for path in (pages.EXAMPLES / "cluster").iterdir()}


def test_ray_start_has_the_options_that_are_named() -> None:
    from ray.scripts.scripts import start

    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    script = (pages.EXAMPLES / "cluster" / "ludus.sbatch").read_text(encoding="utf-8")
    known = {option for parameter in start.params for option in parameter.opts}
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
    assert used | pinned <= known


def test_rays_settings_are_rays() -> None:
    from ray._raylet import Config

    rows = re.findall(r"^\| `RAY_(health_check_\w+)` \| (\d+) \|", PAGES[1].read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 3
    assert {name: int(value) for name, value in rows} == {name: getattr(Config, name)() for name, _ in rows}
