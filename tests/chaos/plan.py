"""Cases, drawn from a seed: case n of a seed is the same whatever else runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.program import DEVICES, ITERATIONS, SITES, WARM_UP

STATED_WAIT_S = 2.0


@dataclass(frozen=True)
class Case:
    """One thing that goes wrong in one run.

    kind: row of the table.  hosts: how many.  inject: faults of the runtime's own.  victim: a role (victims.py), "" for
    none; which: its number among those of that role.  signal: for it, by name.  phase: of the driver, from which on
    `after` seconds pass before the signal.  resume: seconds until SIGCONT; -1 for as soon as the driver has noticed, 0
    for never.  time_limit: of the run.  expected: see judgement.py.  runs: seconds that the run takes without faults.
    compiles: whether the program is not in the cache, so that the compile process starts.

    processes: of JAX, which step until something happens; 0: the library's driver alone.  launched: by `distxla
    launch`, else by hand.  phase "running": all of them step; "starting": from their start on, or once the victim is
    there.
    """

    seed: int
    number: int
    kind: str
    hosts: int
    expected: str
    inject: tuple[str, ...] = ()
    victim: str = ""
    which: int = 0
    signal: str = ""
    phase: str = "running"
    after: float = 0.0
    resume: float = 0.0
    time_limit: float | None = None
    runs: float = 1.5
    compiles: bool = False
    processes: int = 0
    launched: bool = False

    def __str__(self) -> str:
        what = [*self.inject]
        if self.victim:
            what.append(f"{self.signal} to {self.victim} {self.which} {self.after:.3f} s after {self.phase!r}")
        if self.processes:
            what.append(f"{self.processes} processes, started by {'distxla launch' if self.launched else 'hand'}")
        if self.resume > 0:
            what.append(f"SIGCONT {self.resume:.2f} s later")
        return f"case {self.number} of seed {self.seed}: {self.kind}: {', '.join(what)}"


Draw = Callable[[random.Random], dict[str, object]]
_LOST, _RIGHT, _EITHER = "lost", "right", "either"


def _moment(r: random.Random) -> float:
    return round(r.uniform(0.02, 0.8), 3)


def _signal(victim: str, name: str, expected: str, **more: object) -> Draw:
    def draw(r: random.Random) -> dict[str, object]:
        values = {"victim": victim, "signal": name, "which": r.randrange(DEVICES), "after": _moment(r)}
        return {**values, "expected": expected, **more}

    return draw


def _stop(victim: str) -> Draw:
    def draw(r: random.Random) -> dict[str, object]:
        return {**_signal(victim, "SIGSTOP", _RIGHT)(r), "resume": round(r.uniform(0.1, 1.5), 2)}

    return draw


def _inject(fault: str, expected: str, *, most_ms: int = 0, hosts: int = 0) -> Draw:
    def draw(r: random.Random) -> dict[str, object]:
        pairs = [f"at={r.choice(SITES)}", f"round={(1 + WARM_UP) * ITERATIONS + r.randint(1, 20 * ITERATIONS)}"]
        if fault in ("kill", "stop", "delay"):
            pairs = [f"device={r.randrange(DEVICES)}", *pairs, f"when={r.choice(('before', 'waiting', 'after'))}"]
        elif hosts:
            source, target = r.sample(range(hosts), 2)
            pairs = [f"from={source}", f"to={target}", *pairs]
        else:
            pairs = ["host=1", *pairs]
        if most_ms:
            pairs.append(f"ms={r.randint(1, most_ms)}")
        return {"inject": (f"{fault}:{','.join(pairs)}",), "expected": expected}

    return draw


def _any_moment(name: str, expected: str, seconds: float, phase: str = "starting") -> Draw:
    def draw(r: random.Random) -> dict[str, object]:
        after = round(r.uniform(0, seconds), 3)
        return {"victim": "driver", "signal": name, "phase": phase, "after": after, "expected": expected}

    return draw


def _processes(victim: str, *, first: bool | None = None, launched: bool | None = None) -> Draw:
    """first: whether process 0 is the victim, of those that are processes."""

    def draw(r: random.Random) -> dict[str, object]:
        count = r.choice((2, 2, 3))
        is_running = r.random() < 0.7
        by_launcher = r.random() < 0.5 if launched is None else launched
        which = r.randrange(64) if first is None else 0 if first else r.randrange(1, count)
        return {
            "processes": count,
            "launched": by_launcher,
            "victim": victim,
            "which": which,
            "signal": "SIGKILL",
            "phase": "running" if is_running else "starting",
            "after": _moment(r) if is_running else round(r.uniform(0.0, 3.0), 3),
            "expected": "terminated" if victim == "launcher" else "named",
        }

    return draw


def _hung(r: random.Random) -> dict[str, object]:
    return {**_processes("launcher", launched=True)(r), "signal": "SIGTERM", "phase": "running", "after": _moment(r)}


KINDS: dict[str, tuple[int, int, Draw]] = {  # hosts, weight, the rest
    "kill a device at an instruction": (1, 8, _inject("kill", _LOST)),
    "kill a device": (1, 8, _signal("replica", "SIGKILL", _LOST)),
    "terminate a device": (1, 2, _signal("replica", "SIGTERM", _EITHER)),
    "stop a device at an instruction": (1, 4, _inject("stop", _RIGHT, most_ms=800)),
    "delay a device at an instruction": (1, 2, _inject("delay", _RIGHT, most_ms=300)),
    "stop a device": (1, 6, _stop("replica")),
    "stop a device until noticed": (1, 2, _signal("replica", "SIGSTOP", "noticed", resume=-1.0)),
    "stop a device beyond the limit": (1, 2, _signal("replica", "SIGSTOP", "limit", time_limit=STATED_WAIT_S)),
    "kill the raylet": (1, 3, _signal("raylet", "SIGKILL", _LOST)),
    "kill the gcs": (1, 3, _signal("gcs", "SIGKILL", _EITHER)),
    "kill the supervisor": (1, 3, _signal("supervisor", "SIGKILL", _EITHER)),
    "kill the fork server": (1, 2, _signal("zygote", "SIGKILL", _EITHER)),
    "kill the compiler": (1, 2, _signal("compiler", "SIGKILL", _RIGHT, compiles=True)),
    "interrupt the driver in a run": (1, 6, _signal("driver", "SIGINT", "interrupted")),
    "interrupt the driver at any moment": (1, 6, _any_moment("SIGINT", "interrupted", 4)),
    "interrupt the driver while it closes": (1, 4, _any_moment("SIGINT", "interrupted", 0.3, "closing")),
    "terminate the driver": (1, 3, _any_moment("SIGTERM", "gone", 4)),
    "kill the driver": (1, 6, _any_moment("SIGKILL", "gone", 4)),
    "processes: kill one": (1, 3, _processes("process", first=False)),
    "processes: kill process 0": (1, 2, _processes("process", first=True)),
    "processes: kill the owner": (1, 2, _processes("owner")),
    "processes: kill a device": (1, 2, _processes("replica")),
    "processes: kill the raylet": (1, 1, _processes("raylet")),
    "processes: kill the launcher": (1, 1, _processes("launcher", launched=True)),
    "processes: terminate a hung run": (1, 1, _hung),
    "2 hosts: kill a device at an instruction": (2, 5, _inject("kill", _LOST)),
    "2 hosts: kill a device": (2, 5, _signal("replica", "SIGKILL", _LOST)),
    "2 hosts: stop a device": (2, 3, _stop("replica")),
    "2 hosts: stop a device until noticed": (2, 1, _signal("replica", "SIGSTOP", "noticed", resume=-1.0)),
    "2 hosts: kill an agent": (2, 4, _signal("agent", "SIGKILL", _LOST)),
    "2 hosts: stop an agent": (2, 3, _stop("agent")),
    "2 hosts: stop an agent until noticed": (2, 1, _signal("agent", "SIGSTOP", "noticed", resume=-1.0)),
    "2 hosts: lose a host at an instruction": (2, 3, _inject("host-lost", _LOST)),
    "2 hosts: drop a message": (2, 1, _inject("drop", _EITHER, hosts=2)),
    "2 hosts: duplicate a message": (2, 1, _inject("duplicate", _EITHER, hosts=2)),
    "2 hosts: corrupt a message": (2, 2, _inject("corrupt", _LOST, hosts=2)),
    "2 hosts: delay a message": (2, 1, _inject("late", _RIGHT, most_ms=300, hosts=2)),
    "2 hosts: cut a host off": (2, 1, _inject("cut", _LOST, hosts=2)),
    "2 hosts: interrupt the driver in a run": (2, 3, _signal("driver", "SIGINT", "interrupted")),
    "2 hosts: kill the driver": (2, 3, _any_moment("SIGKILL", "gone", 6)),
}


def draw(seed: int, number: int, kinds: tuple[str, ...]) -> Case:
    """Case `number` of a seed, of one of these kinds."""
    r = random.Random(f"{seed}/{number}")
    kind = r.choices(kinds, [KINDS[kind][1] for kind in kinds])[0]
    hosts, _, rest = KINDS[kind]
    values = rest(r)
    if values.get("resume") == -1.0 or values.get("time_limit"):
        values["runs"] = 3.0
    return Case(seed=seed, number=number, kind=kind, hosts=hosts, **values)  # type: ignore[arg-type]
