"""The files for Kubernetes: fields that KubeRay knows, one version of everything, room for the workers that are asked for."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pages
import pytest
import yaml

from ludus.cli.main import COMMANDS

FOLDER = pages.EXAMPLES / "cluster"
CLUSTER = {  # of KubeRay's API ray.io/v1, 1.6: names of the fields that may be there
    "RayClusterSpec": {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs", "enableInTreeAutoscaling"},
    "headGroupSpec": {"rayStartParams", "template", "serviceType", "headService", "enableIngress"},
    "workerGroupSpecs": {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template", "numOfHosts"},
}  # fmt: skip
JOB = {
    "entrypoint",
    "backoffLimit",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
    "rayClusterSpec",
    "submissionMode",
    "activeDeadlineSeconds",
}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def cluster_of(name: str) -> dict[str, Any]:
    spec = documents(name)[-1]["spec"]
    found: dict[str, Any] = spec.get("rayClusterSpec", spec)
    return found


def ray_version() -> str:
    (found,) = re.findall(r"^ray==(\S+)$", pages.text("constraints.txt"), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("name", ["ray-job.yaml", "ray-cluster.yaml"])
def test_a_cluster_has_the_fields_that_kuberay_knows(name: str) -> None:
    spec = cluster_of(name)
    assert set(spec) <= CLUSTER["RayClusterSpec"]
    head, workers = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert set(head) <= CLUSTER["headGroupSpec"]
    assert all(set(group) <= CLUSTER["workerGroupSpecs"] for group in workers)
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["rayVersion"] == ray_version()
    for group in (head, *workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values()), "KubeRay wants strings"
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"] == "REGISTRY/ludus:0.2.0"
        assert container["resources"]["requests"] == container["resources"]["limits"], "Ray counts the limits"
    for group in workers:
        assert group["minReplicas"] == group["replicas"] == group["maxReplicas"]
    assert [volume["persistentVolumeClaim"]["claimName"] for volume in head["template"]["spec"]["volumes"]] == [
        "ludus-runs"
    ]


def test_the_job_asks_for_as_many_workers_as_there_is_room_for() -> None:
    claim, job = documents("ray-job.yaml")
    assert (claim["kind"], claim["metadata"]["name"]) == ("PersistentVolumeClaim", "ludus-runs")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert set(job["spec"]) <= JOB
    bash, script, run, scenario, *options = shlex.split(job["spec"]["entrypoint"])
    assert (bash, script, run) == ("bash", "/home/ray/run.sh", "/runs/try1")
    parsed = COMMANDS["train"].parse([scenario, *options])
    room = sum(
        group["replicas"] * float(group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
        for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    )
    assert (parsed.runtime, parsed.address, parsed.workers) == ("ray", "auto", int(room))
    assert job["spec"]["rayClusterSpec"] == cluster_of("ray-cluster.yaml")


def test_the_image_has_the_ray_of_the_constraints() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert f"FROM rayproject/ray:{ray_version()}-py311-cpu\n" in text
    sources = [word for line in re.findall(r"^COPY --chown=ray (.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert {"ludus", "constraints.txt", "examples/cluster/run.sh"} <= set(sources)
    assert all(list(pages.ROOT.glob(source)) for source in sources if not source.startswith("LICENSE"))


@pytest.mark.parametrize(
    ("there", "called"),
    [(False, "train kuhn --workers 3 --trust --run-dir RUN\n"), (True, "resume RUN --workers 3 --trust\n")],
)
def test_a_run_is_trained_or_goes_on(there: bool, called: str, tmp_path: Path) -> None:
    stand_in = tmp_path / "bin" / "ludus"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "$@"\n')
    stand_in.chmod(0o755)
    run = tmp_path / "runs" / "try1"
    run.mkdir(parents=True)
    if there:
        (run / "scenario.yaml").touch()
    said = subprocess.run(
        ["bash", str(FOLDER / "run.sh"), str(run), "kuhn", "--workers", "3"],
        env={"PATH": f"{stand_in.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == called.replace("RUN", str(run))
