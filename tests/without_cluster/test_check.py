"""`distxla.check`: the same as `distxla check --json`, without a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import distxla as dx
from tests.browser import in_a_cell
from tests.cli.called import call

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
HEAD = f"HloModule sum, num_partitions=4\n{ADD}ENTRY main {{ x = f32[8] parameter(0)\n"
SUM = HEAD + " ROOT y = f32[8] all-reduce(x), to_apply=add, channel_id=1 }\n"
ALONE = HEAD + " ROOT y = f32[8] all-reduce(x), to_apply=add }\n"
PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
RING = f"""HloModule ring, num_partitions=2, is_scheduled=true
ENTRY main {{ x = f32[4] parameter(0)
 t = token[] after-all()
 r = (f32[4], u32[], token[]) recv(t), channel_id=1, {PAIRS}
 rd = (f32[4], token[]) recv-done(r), channel_id=1
 v = f32[4] get-tuple-element(rd), index=0
 s = (f32[4], u32[], token[]) send(v, t), channel_id=1, {PAIRS}
 sd = token[] send-done(s), channel_id=1
 ROOT y = f32[4] copy(v) }}
"""
OWN = """HloModule m, num_partitions=2
ENTRY main_spmd { x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
 ROOT y = f32[4] negate(x), sharding={replicated} }
"""
REFUSED = (
    'HloModule m\nENTRY main { x = f32[2] parameter(0)\n ROOT y = f32[2] custom-call(x), custom_call_target="f" }\n'
)
LONELY = """HloModule m, num_partitions=2
ENTRY main { x = f32[4] parameter(0)
 t = token[] after-all()
 s = (f32[4], u32[], token[]) send(x, t), channel_id=1, PAIRS
 sd = token[] send-done(s), channel_id=1
 ROOT y = f32[4] copy(x) }
""".replace("PAIRS", PAIRS)
PROGRAMS = {
    "safe": (SUM, "safe", True),
    "deadlock": (RING, "deadlock", False),
    "refused": (REFUSED, "safe", False),
    "alone": (ALONE, "safe", True),
    "declared the same": (OWN, "safe", True),
    "a send without a recv": (LONELY, "deadlock", False),
    "nothing communicates": ("HloModule m\nENTRY main { ROOT x = f32[2] parameter(0) }\n", "safe", True),
}


@pytest.mark.parametrize(("text", "outcome", "ok"), PROGRAMS.values(), ids=PROGRAMS)
def test_the_result_is_the_commands_json(
    text: str, outcome: str, ok: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(text)
    found = dx.check(dx.load(path))
    status, printed, _ = call(capsys, "check", "--json", str(path))
    assert json.loads(json.dumps(found.as_json())) == json.loads(printed)
    assert (found.outcome, found.ok, found.exit_status) == (outcome, ok, status)
    assert found.outcome.value == outcome
    assert found.text == str(found) == found.as_json()["text"]
    assert (found.diagnosis is None) == (outcome == "safe")


def test_the_parts_of_the_result() -> None:
    (row,) = dx.check(dx.parse(SUM)).communication
    assert (row["program"], row["kind"], row["groups"], row["bytes_in_all"]) == ("<string>", "all-reduce", "{0-3}", 128)
    (refused,) = dx.check(dx.parse(REFUSED)).refused
    assert (refused["instruction"], refused["program"]) == ("y", "<string>")
    (warning,) = dx.check(dx.parse(ALONE)).warnings
    assert warning.startswith("y (<string>:6:7) has groups of one device each among 4 devices")
    (own,) = dx.check(dx.parse(OWN)).replication
    assert (own["program"], own["result"], own["devices"], own["instruction"]) == ("<string>", 0, [0, 1], "y")
    assert dx.check(dx.parse(SUM)).replication == ()
    assert dx.check(dx.parse(RING)).diagnosis is not None


def test_counts_come_from_arguments_too() -> None:
    plain = SUM.replace(", num_partitions=4", "")
    assert dx.check(dx.parse(plain), replicas=2, partitions=3).communication[0]["groups"] == "{0-5}"
    with pytest.raises(dx.ArgumentError, match="<string> says num_partitions=4, the argument partitions says 2"):
        dx.check(dx.parse(SUM), partitions=2)
    with pytest.raises(dx.ArgumentError, match="replicas: expected a positive number, found 0"):
        dx.check(dx.parse(SUM), replicas=0)


def test_several_programs() -> None:
    sends = LONELY.replace("HloModule m, num_partitions=2", "HloModule a").replace(f", {PAIRS}", "")
    receives = (
        "HloModule b\nENTRY main { t = token[] after-all()\n r = (f32[4], u32[], token[]) recv(t), channel_id=1\n"
        " rd = (f32[4], token[]) recv-done(r), channel_id=1\n ROOT y = f32[4] get-tuple-element(rd), index=0 }\n"
    )
    programs = [(range(2), dx.parse(sends, "a.hlo")), ([2, 3], dx.parse(receives, "b.hlo"))]
    found = dx.check(programs)
    assert (found.ok, found.verdict.devices) == (True, 4)
    assert [(row["program"], row["groups"]) for row in found.communication] == [
        ("a.hlo", "0 to 2, 1 to 3"),
        ("b.hlo", "0 to 2, 1 to 3"),
    ]
    with pytest.raises(dx.ArgumentError, match=r"device 1 is given to both a\.hlo and b\.hlo"):
        dx.check([programs[0], ((1,), programs[1][1])])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("step.hlo", "expected a Module or a list of"),
        ([], "found an empty list"),
        ([dx.parse(SUM)], "expected \\(devices, module\\) for each program"),
        ([((0, 0), dx.parse(SUM))], "a device is named twice"),
        ([((), dx.parse(SUM))], "expected at least one"),
        ([((-1,), dx.parse(SUM))], "expected ids below"),
        ([((0, "a"), dx.parse(SUM))], "expected ids below 4096, found 'a'"),
        ([((0, None), dx.parse(SUM))], "expected ids below 4096, found None"),
        (np.zeros(3), "found ndarray array"),
        ([("0-3", dx.parse(SUM))], "expected flattened ids"),
    ],
)
def test_what_is_no_program(module: object, message: str) -> None:
    with pytest.raises(dx.ArgumentError, match=message):
        dx.check(module)  # type: ignore[arg-type]


def test_ids_may_be_numpys() -> None:
    assert dx.check([(np.arange(4), dx.parse(SUM))]).verdict.devices == 4


def test_a_broken_rule_is_raised_with_the_counts_that_are_missing() -> None:
    text = SUM.replace(", num_partitions=4", "").replace("channel_id=1", "replica_groups={{0,1}}")
    with pytest.raises(dx.VerificationError, match=r"all-reduce\.C5") as caught:
        dx.check(dx.parse(text))
    assert caught.value.__notes__ == [
        "neither the header nor the arguments replicas, partitions say how many devices: one is assumed",
        "the program's groups and pairs imply replicas=2",
    ]


UNDECIDED = f"""HloModule m, replica_count=2
{ADD}with {{ x = f32[4] parameter(0)
 ROOT y = f32[4] all-reduce(x), to_apply=add }}
without {{ ROOT x = f32[4] parameter(0) }}
ENTRY main {{ x = f32[4] parameter(0)
 p = pred[] parameter(1)
 ROOT y = f32[4] conditional(p, x, x), true_computation=with, false_computation=without }}
"""


def test_what_only_the_run_can_tell_is_ok_unless_strict() -> None:
    found = dx.check(dx.parse(UNDECIDED))
    assert (found.outcome, found.ok) == ("unknown", True)
    assert not dx.check(dx.parse(UNDECIDED), strict=True).ok


def test_a_time_limit_ends_it() -> None:
    with pytest.raises(dx.TimeLimitError, match="the time limit of 1e-09 s ran out"):
        dx.check(dx.parse(SUM), time_limit=1e-9)


def test_neither_ray_nor_llvm_nor_jax_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(SUM)
    program = (
        f"import sys, distxla\nassert distxla.check(distxla.load({str(path)!r})).ok\n"
        "print(sorted({'ray', 'llvmlite', 'jax', 'click', 'rich'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "[]\n"


def test_how_a_notebook_shows_it() -> None:
    safe, refused = in_a_cell(dx.check(dx.parse(SUM))), in_a_cell(dx.check(dx.parse(REFUSED)))
    assert safe.startswith('<div class="dx">')
    assert "<li><b>1</b>instruction communicates</li>" in safe
    assert '<td data-name="kind">all-reduce</td>' in safe
    assert "<h2>What can't be executed</h2>" in refused
    assert '<td data-name="instruction">y</td>' in refused
