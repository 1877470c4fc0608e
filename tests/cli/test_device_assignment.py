"""`distxla run --device-assignment`: the devices' names in arguments and results, the reference, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.called import call
from tests.runtime.assigned_programs import MEETING, expected_meeting, meeting_args


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "meeting.hlo"
    path.write_text(MEETING)
    return str(path)


@pytest.mark.cluster
def test_arguments_and_results_have_the_clusters_devices(module: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    devices = (4, 1, 0, 2)
    given = {f"arg0@{d}": row[0] for d, row in zip(devices, meeting_args(0), strict=True)}
    np.savez(tmp_path / "args.npz", **given)
    files = ["--args", str(tmp_path / "args.npz"), "--out", str(tmp_path / "out.npz")]
    status, out, _ = call(
        capsys, "run", module, "--device-assignment", "4,1,0,2", *files, "--compare", "reference", "--json"
    )
    assert status == 0
    told = json.loads(out)
    assert told["modules"][0]["devices"] == list(devices)
    with np.load(tmp_path / "out.npz") as found:
        for device, leaves in zip(devices, expected_meeting(0), strict=True):
            for k, leaf in enumerate(leaves):
                assert found[f"out{k}@{device}"].tolist() == leaf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["3,1"], "--device-assignment names 2 devices, the program has 2 replicas x 2 partitions"),
        (["3,1,3,0"], "device 3 is named twice"),
        (["3;1"], "expected device numbers like 3,1, found '3;1'"),
        (["0,1,2,9999"], "device 9999 is beyond the 4096 that a run may have"),
        (["0,1,2,4", "--devices-per-host", "4"], "names device 4, --devices-per-host gives devices 0 to 3"),
        (["0,1,2,3", "--backend", "reference"], "--device-assignment needs the backend of a cluster"),
    ],
)
def test_what_cannot_be_is_refused(module: str, options: list[str], message: str, capsys) -> None:  # type: ignore[no-untyped-def]
    status, _, err = call(capsys, "run", module, "--device-assignment", *options)
    assert status == 2
    assert message in err


def test_devices_are_said_once(module: str, capsys) -> None:  # type: ignore[no-untyped-def]
    status, _, err = call(capsys, "run", f"{module}@0-3", "--device-assignment", "0,1,2,3")
    assert status == 2
    assert "both say where a program runs" in err
    status, _, err = call(capsys, "run", module, module, "--device-assignment", "0,1,2,3")
    assert status == 2
    assert "with several programs each needs its devices" in err
