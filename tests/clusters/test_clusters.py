"""What clusters/ offers: scripts are run on this machine, files for clouds and Kubernetes are read as those would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CLUSTERS = ROOT / "clusters"
STEP = ROOT / "examples/dp_mlp"
RUN = ["run", str(STEP / "partitioned.hlo"), "--args", str(STEP / "args.npz"), "--expected", str(STEP / "expected.npz")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """For scripts: a home and a directory of Ray's own."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="c-") as directory:
        yield {
            # not the token, nor the other variables, of the Ray that this process may have joined
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "HOME": str(tmp_path),
            "RAY_TMPDIR": directory,
            "DISTXLA_PORT": str(free_port()),
            "DISTXLA_IP": "127.0.0.1",
            "VENV": sys.prefix,
        }


@pytest.mark.parametrize("path", sorted(p for p in CLUSTERS.iterdir()), ids=lambda p: p.name)
def test_the_first_line_says_what_it_is_for(path: Path) -> None:
    lines = path.read_text().splitlines()
    first = lines[1] if lines[0].startswith("#!") else lines[0]
    assert first.startswith("# ")
    assert len(first.split()) > 8


@pytest.mark.parametrize("path", sorted(CLUSTERS.glob("*.sh")), ids=lambda p: p.name)
def test_scripts_are_executable_and_say_how_they_are_used(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)
    outcome = subprocess.run([path], capture_output=True, text=True)
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("usage: ")


def distxla(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "distxla", *arguments]


def of_json(outcome: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert outcome.returncode == 0, outcome.stderr
    return dict(json.loads(outcome.stdout))


SUM = """HloModule sum, num_partitions=2
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[4] constant({1, 2, 3, 4})
  ROOT r = f32[4] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
}
"""


@pytest.mark.exhaustive
@pytest.mark.cluster
@pytest.mark.slow
def test_one_machine(environment: dict[str, str], tmp_path: Path) -> None:
    address = f"127.0.0.1:{environment['DISTXLA_PORT']}"
    (tmp_path / "sum.hlo").write_text(SUM)
    run = distxla("run", str(tmp_path / "sum.hlo"), "--compare", "reference", "--address", address, "--json")
    command = [str(CLUSTERS / "one_machine.sh"), *run]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert of_json(outcome)["comparisons"]


# what they have in their environment, what they are told
STRANGERS = (
    (
        {"RAY_AUTH_MODE": "disabled"},
        "the Ray at {address} admits only clients with its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or "
        "RAY_AUTH_TOKEN_PATH, a file; ~/.ray/auth_token by default)",
    ),
    (
        {"RAY_AUTH_TOKEN": "0" * 64},
        "the Ray at {address} wants another token than RAY_AUTH_TOKEN or its file gives",
    ),
    (
        {},
        "RAY_AUTH_MODE=token, but there is no token: put it into RAY_AUTH_TOKEN, or its file into RAY_AUTH_TOKEN_PATH",
    ),
)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.exhaustive
def test_by_hand(environment: dict[str, str], tmp_path: Path) -> None:
    """Both nodes on this machine, which two hosts only differ from in their addresses."""
    script, address = str(CLUSTERS / "by_hand.sh"), f"127.0.0.1:{environment['DISTXLA_PORT']}"
    environment["DISTXLA_CPUS"] = "4"
    refused = subprocess.run([script, "join", address], env=environment, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "auth_token is missing: copy it from the first host" in refused.stderr
    head = subprocess.Popen([script, "head"], env=environment, stdout=subprocess.PIPE, text=True)
    nodes = [head]
    try:
        assert head.stdout is not None
        assert f"clusters/by_hand.sh join {address}" in head.stdout.readline()
        token = tmp_path / ".ray/auth_token"
        assert token.stat().st_mode & 0o777 == 0o600
        wait_for_port(int(environment["DISTXLA_PORT"]))
        nodes.append(subprocess.Popen([script, "join", address], env=environment))
        environment = {**environment, "RAY_AUTH_MODE": "token"}
        wait_for_nodes(2, address, environment)
        for options in ([], ["--devices-per-host", "3,5"]):
            command = distxla(*RUN, "--address", address, "--json", *options)
            outcome = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
            assert of_json(outcome)["comparisons"]
        for changed, words in STRANGERS:
            stranger = {**environment, "HOME": str(tmp_path / "nowhere"), **changed}
            outcome = subprocess.run(
                distxla(*RUN, "--address", address), env=stranger, capture_output=True, text=True, timeout=20
            )
            assert (outcome.returncode, outcome.stderr) == (1, f"error: cluster: {words.format(address=address)}\n")
    finally:
        for node in reversed(nodes):
            node.send_signal(signal.SIGINT)
        for node in reversed(nodes):
            node.wait(30)


def wait_for_port(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the head did not start")


def wait_for_nodes(count: int, address: str, environment: dict[str, str]) -> None:
    code = f"""
import time, ray
ray.init({address!r}, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < {count}:
    time.sleep(0.2)
"""
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


def test_the_cloud_file_is_one_of_rays() -> None:
    import jsonschema
    import ray.autoscaler
    from ray.autoscaler._private.util import fill_node_type_min_max_workers

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    config = yaml.safe_load((CLUSTERS / "cloud.yaml").read_text())
    jsonschema.validate(config, schema)
    kinds = config["available_node_types"]
    assert config["head_node_type"] in kinds
    assert kinds["head"]["resources"] == {"CPU": 0}
    families = {kind["node_config"]["InstanceType"].partition(".")[0] for kind in kinds.values()}
    assert len(families) == 1, "programs are compiled for the head's CPU"
    fill_node_type_min_max_workers(config)
    assert kinds["worker"]["max_workers"] == config["max_workers"]
    for where in ("head", "worker"):
        assert any("RAY_AUTH_MODE=token" in command for command in config[f"{where}_start_ray_commands"])
    targets = [path for path in config["file_mounts"] if path.endswith("auth_token")]
    assert targets == ["/home/ubuntu/.ray/auth_token"]


def test_the_manifest_is_a_ray_cluster_of_kuberay() -> None:
    (manifest,) = yaml.safe_load_all((CLUSTERS / "kuberay.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayCluster")
    spec = manifest["spec"]
    assert set(spec) == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert spec["authOptions"] == {"mode": "token"}
    head, (workers,) = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    images = set()
    for group in (head, workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values()), (
            "Kubernetes takes strings only"
        )
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        images.add(container["image"])
        assert container["resources"]["requests"] == container["resources"]["limits"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert pod["nodeSelector"] == head["template"]["spec"]["nodeSelector"]
    assert len(images) == 1
    cpus = workers["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    assert workers["rayStartParams"]["num-cpus"] == cpus


def test_all_ask_for_the_ray_that_the_project_pins() -> None:
    pins = (ROOT / "requirements/pinned.txt").read_text()
    (version,) = [line.partition("==")[2].split()[0] for line in pins.splitlines() if line.startswith("ray==")]
    assert yaml.safe_load((CLUSTERS / "kuberay.yaml").read_text())["spec"]["rayVersion"] == version
    assert f"rayproject/ray:{version}-py311" in (CLUSTERS / "Dockerfile").read_text()
