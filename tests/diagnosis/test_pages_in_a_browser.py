"""Reports as a browser draws them: nothing is clipped, covered or out of the page, at two widths, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from distxla.diagnosis.facts.blocked import DeviceState, Doing, Event
from distxla.diagnosis.facts.processes import Difference, ProcessState
from distxla.diagnosis.report.diagnosis import Diagnosis
from distxla.location import Location
from tests.browser import SCHEMES, WIDTHS, first_row, measured, picture
from tests.diagnosis.made import in_groups, made, made_of

COUNTS = (4, 32, 256)
TEXT = "  all-reduce.17 = (f32[128,1024]{1,0}, f32[128]{0}) all-reduce(fusion.3, fusion.4), channel_id=1, to_apply=add"
PLACE = Location("/a/folder/with/a/long/name/step.hlo", 120, 3, 4, TEXT, frame="/home/user/train/model.py:47:12 in f")
EVENTS = tuple(Event("all-reduce.17", "all-reduce", k, 1, 0, -9.0 + k, -8.4 + k, -8.9 + k) for k in range(1, 9))


def mismatch(count: int) -> Diagnosis:
    """The last device has reached a round with another instruction."""
    group = tuple(range(count))
    devices = {
        d: DeviceState(
            d, Doing.WAITS, "jit_train_step", "all-reduce.17", "all-reduce", PLACE, round=8, group=group, events=EVENTS
        )
        for d in range(count - 1)
    }
    last = (*EVENTS[:-1], Event("all-gather.3", "all-gather", 8, 1, 0, -1.0))
    devices[count - 1] = DeviceState(
        count - 1, Doing.ARRIVED, "jit_train_step", "all-gather.3", "all-gather", PLACE, group=group, events=last
    )
    return made_of("mismatch", f"round 8 of devices 0-{count - 1}: they differ", devices, pair=(0, count - 1))


def loss(count: int) -> Diagnosis:
    """A device was lost while the others computed or waited for it."""
    states = [DeviceState(0, Doing.LOST, "jit_train_step", "fusion.9", events=EVENTS)]
    for device in range(1, count):
        waits = device % 2 == 0
        states.append(
            DeviceState(
                device,
                Doing.WAITS if waits else Doing.COMPUTES,
                "jit_train_step",
                "all-reduce.17" if waits else "fusion.9",
                "all-reduce" if waits else "fusion",
                PLACE if waits else None,
                waits_for=(0,) if waits else (),
                events=EVENTS,
            )
        )
    return Diagnosis("lost", "the process of device 0 was ended by SIGKILL", tuple(states), PLACE)


def processes(count: int) -> Diagnosis:
    """The last of several JAX processes called something else."""
    calls = tuple(f"step_{k} (/home/user/train/main.py:{40 + k} in train_one_epoch)" for k in range(8))
    at = "/home/user/train/main.py:47 in main"
    states = [
        ProcessState(p, Doing.ARRIVED, "step", at, 8, calls=calls, stack=(at, at), pid=1000 + p, host="10.0.0.1")
        for p in range(count - 1)
    ]
    late = "is late: it has not made call 8 yet"
    last = (*calls[:-1], "evaluate (main.py:90)")
    states.append(ProcessState(count - 1, Doing.COMPUTES, "evaluate", at, 8, late, last, pid=7, host="10.0.0.2"))
    differences = (
        Difference("constant", "2", "3" * 80, 0, count - 1, "multiply.2", at, at),
        Difference("order", "", "", sentence="evaluate is next in process 3"),
    )
    summary = "processes disagree in call 8; they differ"
    return Diagnosis("mismatch", summary, processes=tuple(states), process_differences=differences)


PAGES = {
    f"{kind.__name__} {count}": kind(count).page("distxla run step.hlo --args args.npz --report page.html")
    for kind in (made, mismatch, loss)
    for count in COUNTS
} | {f"deadlock {count}": in_groups(count, max(1, count // 16)).page() for count in COUNTS}
PAGES |= {f"processes {count}": processes(count).page() for count in (4, 32)}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_clipped_or_covered(scheme: str, tmp_path: Path) -> None:
    found = measured(PAGES, scheme, tmp_path)
    assert set(found) == {f"{name} {width}" for name in PAGES for width in WIDTHS}
    assert {name: one["faults"] for name, one in found.items() if one["faults"]} == {}
    assert {one["paper"] for one in found.values()} == {
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)"
    }
    pictures = {name: one["pictures"] for name, one in found.items()}
    assert pictures == {name: 0 if name.startswith("processes") else 1 for name in found}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_its_picture(width: int, scheme: str, tmp_path: Path) -> None:
    found = first_row(picture(PAGES["deadlock 256"], width, 900, scheme, tmp_path))
    assert found[:2] == (width, 900)
    assert {*found[2]} == {(255, 255, 255) if scheme == "light" else (13, 17, 23)}


def test_faults_are_found(tmp_path: Path) -> None:
    """Of a page that is too wide, and of one with a text that is cut off."""
    start, end = PAGES["deadlock 4"].split("</main>")
    pages = {
        "wide": f'{start}<div style="width:1500px">wide</div></main>{end}',
        "cut": f'{start}<div style="width:50px;overflow:hidden;white-space:nowrap">a text, cut off</div></main>{end}',
    }
    found = measured(pages, "light", tmp_path)
    assert {name: len(one["faults"]) > 0 for name, one in found.items()} == dict.fromkeys(found, True)
