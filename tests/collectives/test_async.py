"""Asynchronous rounds: members begin them, do something else, and end them in any order, beside whole rounds."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import permutations, product

import numpy as np
import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import group as group_words
from distxla.ir.element_type import F32
from distxla.ir.module import Module
from distxla.ir.replica_groups import ReplicaGroups
from distxla.ir.shape import Shape
from distxla.ops.all_gather import AllGather
from distxla.ops.all_reduce import AllReduce
from distxla.ops.all_to_all import AllToAll
from distxla.ops.collective_broadcast import CollectiveBroadcast
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.reduce_scatter import ReduceScatter
from distxla.ops.support.collective_start_done import TICKET, AsyncPart, async_part, start_shape
from distxla.ops.support.executable import CollectiveOp
from distxla.program.abi import Status
from tests.collectives.devices import Code, World, layout, module_of, reduction
from tests.collectives.transports.shared_memory.emitter_cases import (
    Array,
    Case,
    case_of,
    formula,
    permuted,
    values,
)

DEVICES = 4
RING = ((0, 1), (1, 2), (2, 3), (3, 0))
# Elements a row: sent in a message and done by one member alone; copied from where they are; work that is shared out.
SMALL, MIDDLE, LARGE = 8, 10_000, 60_000


def cases(count: int, devices: int = DEVICES) -> dict[str, Case]:
    x = Shape(F32, (devices, count))
    groups = ReplicaGroups((tuple(range(devices)),))
    return {
        "all-reduce": case_of(AllReduce(to_apply="combine", replica_groups=groups), [x, x], devices),
        "all-gather": case_of(AllGather(dimensions=(1,), replica_groups=groups), [x], devices),
        "reduce-scatter": case_of(
            ReduceScatter(to_apply="combine", dimensions=(0,), replica_groups=groups), [x], devices
        ),
        "all-to-all": case_of(AllToAll(dimensions=(0,), replica_groups=groups), [x], devices),
        "collective-broadcast": case_of(CollectiveBroadcast(replica_groups=groups), [x], devices),
        "collective-permute": Case(CollectivePermute(source_target_pairs=RING[:devices]), (x, x), Shape.tuple((x, x))),
        "permute of some": Case(CollectivePermute(source_target_pairs=((0, 1), (1, 2))), (x,), x),
    }


def modules(case: Case) -> list[Module]:
    """The synchronous instruction, its start and its done."""
    assert isinstance(case.op, CollectiveOp)
    called = [reduction(case.reducer, case.operands[0])]
    begun = start_shape(case.operands, case.result)
    return [
        case.module,
        module_of(async_part(case.op, AsyncPart.START), case.operands, begun, called),
        module_of(async_part(case.op, AsyncPart.DONE), [begun], case.result, called),
    ]


# what most tests take, compiled together
COMMON = tuple(product(("all-reduce", "all-gather", "collective-permute", "permute of some"), (SMALL, MIDDLE, LARGE)))


@functools.cache
def known(keys: tuple[tuple[str, int], ...]) -> tuple[Code, list[Case]]:
    """Code of the cases of these names and counts, in their order."""
    found = [cases(count)[name] for name, count in keys]
    return Code([module for case in found for module in modules(case)], DEVICES, 1), found


@dataclass
class Use:
    """A round of a case, with its own memory on every device. site: of the synchronous form; start and done follow."""

    site: int
    case: Case
    operands: list[int]
    results: list[int]
    ticket: int
    inputs: list[list[Array]] = field(default_factory=list)


class Devices:
    """A world in which each of `uses` is one round of its case."""

    def __init__(self, *uses: tuple[str, int], cores: int | None = None) -> None:
        keys = COMMON if {*uses} <= {*COMMON} else tuple(sorted(set(uses)))
        code, found = known(keys)
        self.uses: list[Use] = []
        end = 64
        for key in uses:
            number = keys.index(key)
            case = found[number]
            operands, end = layout(case.operands, end)
            results, end = layout(case.results, end)
            (ticket,), end = layout([TICKET], end)
            self.uses.append(Use(3 * number, case, operands, results, ticket))
        self.world = World(code, DEVICES, 1, end, cores)
        for k, use in enumerate(self.uses):
            use.inputs = [
                [values(s, 100 * k + 10 * d + i) for i, s in enumerate(use.case.operands)] for d in range(DEVICES)
            ]
            for d in range(DEVICES):
                for offset, shape, array in zip(use.operands, use.case.operands, use.inputs[d], strict=True):
                    self.world.array(d, offset, shape)[...] = array

    def whole(self, device: int, k: int) -> int:
        use = self.uses[k]
        return self.world.call(device, use.site, use.operands, use.results)

    def begin(self, device: int, k: int) -> int:
        use = self.uses[k]
        return self.world.call(device, use.site + 1, use.operands, [*use.results, use.ticket])

    def end(self, device: int, k: int) -> int:
        use = self.uses[k]
        return self.world.call(device, use.site + 2, [*use.results, use.ticket], use.results)

    def run(self, *programs: Callable[[int], Iterator[int]]) -> None:
        """One generator of statuses a device; the last one is that of all the others, too."""

        def all_of(device: int) -> int:
            program = programs[min(device, len(programs) - 1)]
            return next((status for status in program(device) if status), 0)

        found = self.world.run([functools.partial(all_of, d) for d in range(DEVICES)])
        assert found == [0] * DEVICES

    def check(self) -> None:
        """Every device has every use's result."""
        for use in self.uses:
            if isinstance(use.case.op, CollectivePermute):
                expected = permuted(use.case, DEVICES, 1, use.inputs)
            else:
                expected = formula(use.case, list(range(DEVICES)), use.inputs)
            for device in range(DEVICES):
                for offset, shape, want in zip(use.results, use.case.results, expected[device], strict=True):
                    np.testing.assert_array_equal(self.world.array(device, offset, shape), want)


@pytest.fixture(scope="module", autouse=True)
def common_code() -> Code:
    """So that one worker has all tests here: another one would compile the code again."""
    return known(COMMON)[0]


@pytest.mark.sampled(one_in=15)
@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("name", cases(SMALL))
def test_pairs_meet_pairs_and_synchronous_ones(name: str, count: int) -> None:
    """Devices 0 and 1 come with start and done, the others in one instruction, each late in turn."""
    devices = Devices(*[(name, count)] * 4)

    def pairs(device: int) -> Iterator[int]:
        for k in range(4):
            time.sleep(0.003 * (k == device))
            yield devices.begin(device, k)
            time.sleep(0.002 * (k % 2))
            yield devices.end(device, k)

    def wholes(device: int) -> Iterator[int]:
        for k in range(4):
            time.sleep(0.003 * (k == device))
            yield devices.whole(device, k)

    devices.run(pairs, pairs, wholes)
    devices.check()


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("name", cases(SMALL))
def test_to_begin_waits_for_nobody_and_one_may_end_for_all(name: str, count: int) -> None:
    """All in one thread: a wait would never end. Once all have begun, each can finish without the others."""
    devices = Devices((name, count), (name, count))
    for order in ((0, 1, 2, 3), (2, 0, 3, 1)):
        k = int(order[0] > 0)
        assert [devices.begin(device, k) for device in order] == [0] * 4
        assert [devices.end(device, k) for device in reversed(order)] == [0] * 4
    devices.check()


@pytest.mark.parametrize("name", ["all-reduce", "collective-permute"])
@pytest.mark.parametrize("count", [SMALL, MIDDLE])
def test_rounds_end_in_any_order(name: str, count: int) -> None:
    orders = list(permutations(range(3)))
    devices = Devices(*[(name, count)] * 3 * len(orders))

    def program(device: int) -> Iterator[int]:
        for n, order in enumerate(orders):
            for k in range(3):
                yield devices.begin(device, 3 * n + k)
            for k in order if device % 2 else reversed(order):
                yield devices.end(device, 3 * n + k)

    devices.run(program)
    devices.check()


@pytest.mark.parametrize("name", ["all-reduce", "collective-permute", "permute of some"])
@pytest.mark.parametrize("count", [SMALL, MIDDLE])
def test_more_rounds_in_flight_than_the_state_holds(name: str, count: int) -> None:
    """Who begins one too many ends its oldest; its own end then comes later, and finds it over."""
    uses = 2 * group_words.ROUNDS + 3
    devices = Devices(*[(name, count)] * uses)

    def program(device: int) -> Iterator[int]:
        for k in range(uses):
            yield devices.begin(device, k)
        for k in range(uses) if device else reversed(range(uses)):
            yield devices.end(device, k)

    devices.run(program)
    devices.check()


@pytest.mark.parametrize("name", ["all-reduce", "all-gather", "collective-permute"])
def test_synchronous_rounds_between_start_and_done_of_another(name: str) -> None:
    devices = Devices(*[(name, SMALL) if kind else ("all-reduce", LARGE) for kind in (1, 1, 0, 1, 0)])

    def program(device: int) -> Iterator[int]:
        yield devices.begin(device, 0)
        yield devices.whole(device, 1)
        yield devices.begin(device, 2)
        yield devices.whole(device, 3)
        yield devices.end(device, 0)
        yield devices.whole(device, 4)
        yield devices.end(device, 2)

    devices.run(program)
    devices.check()


def test_who_ends_does_the_shared_work_of_those_that_compute() -> None:
    """The last to come shares the work out and goes on; the first to end does all of it."""
    devices = Devices(("all-reduce", LARGE), cores=1)
    for device in range(4):
        assert devices.begin(device, 0) == 0
    before = devices.world.array(2, devices.uses[0].results[0], devices.uses[0].case.results[0]).copy()
    assert not before.any()
    assert devices.end(3, 0) == 0
    devices.check()
    assert [devices.end(device, 0) for device in range(3)] == [0, 0, 0]


def test_a_late_round_counts_on_while_others_are_in_flight() -> None:
    """Many generations of every area, with one round that stays open as long as it can."""
    devices = Devices(("all-reduce", SMALL), ("all-reduce", SMALL))

    def program(device: int) -> Iterator[int]:
        for n in range(60):
            yield devices.begin(device, 0)
            for _ in range(n % (group_words.ROUNDS + 2)):
                yield devices.whole(device, 1)
            yield devices.end(device, 0)

    devices.run(program)
    devices.check()


@pytest.mark.parametrize(("key", "waits_for"), [(("all-reduce", SMALL), -1), (("collective-permute", LARGE), 3)])
def test_a_wait_for_the_end_says_so_and_can_be_aborted(key: tuple[str, int], waits_for: int) -> None:
    devices = Devices(key, cores=1)
    world = devices.world
    found: list[int] = []
    assert devices.begin(0, 0) == 0

    def watch() -> int:
        end = time.monotonic() + 10
        while world.record(0, control_words.R_STATE) != control_words.ReplicaState.WAITING and time.monotonic() < end:
            time.sleep(0.001)
        found.extend(
            world.record(0, name) for name in (control_words.R_SITE, control_words.R_ROUND, control_words.R_WAITS_FOR)
        )
        world.release()
        return 0

    assert world.run([lambda: devices.end(0, 0), watch]) == [Status.ABORTED, 0]
    assert found == [devices.uses[0].site + 2, 1, waits_for & 0xFFFFFFFF]


@pytest.mark.parametrize("name", ["all-reduce", "collective-permute"])
@pytest.mark.parametrize("other", [MIDDLE, LARGE])
def test_starts_of_different_instructions_get_mismatch(name: str, other: int) -> None:
    devices = Devices((name, SMALL), (name, other))

    def program(device: int) -> int:
        k = int(device == 2)
        status = devices.begin(device, k) or devices.end(device, k)
        if status == Status.MISMATCH:
            devices.world.release()
        return status

    found = devices.world.run([functools.partial(program, d) for d in range(DEVICES)])
    assert Status.MISMATCH in found
    for device, status in enumerate(found):
        if status == Status.MISMATCH:
            assert (device == 2) != (devices.world.record(device, control_words.R_MISMATCH_DEVICE) == 2)


@dataclass
class Plan:
    """What one device does, in order: ("whole" | "begin" | "end", use)."""

    steps: list[tuple[str, int]]
    delays: list[float]


def random_plan(rng: random.Random, uses: int, most: int) -> Plan:
    """Every use in order, in one of both forms; rounds in flight end whenever it reaches them."""
    steps: list[tuple[str, int]] = []
    in_flight: list[int] = []
    for k in range(uses):
        while in_flight and (len(in_flight) >= most or rng.random() < 0.35):
            steps.append(("end", in_flight.pop(rng.randrange(len(in_flight)))))
        if rng.random() < 0.3:
            steps.append(("whole", k))
        else:
            steps.append(("begin", k))
            in_flight.append(k)
    rng.shuffle(in_flight)
    steps += [("end", k) for k in in_flight]
    return Plan(steps, [rng.choice((0, 0, 0, 0, 0.0005, 0.002)) for _ in steps])


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("seed", range(6))
def test_random_orders_and_delays(seed: int) -> None:
    """Three communicators, every device with its own choice of forms and of when to end what it began."""
    rng = random.Random(seed)
    names = ("all-reduce", "all-gather", "collective-permute", "permute of some")
    drawn = [(rng.choice(names), rng.choice((SMALL, SMALL, MIDDLE, LARGE))) for _ in range(24)]
    devices = Devices(*drawn, cores=rng.choice((1, 2, 16)))
    plans = [random_plan(rng, len(drawn), most=12) for _ in range(DEVICES)]

    def program(device: int) -> Iterator[int]:
        for (what, k), delay in zip(plans[device].steps, plans[device].delays, strict=True):
            if delay:
                time.sleep(delay)
            yield getattr(devices, what)(device, k)

    devices.run(program)
    devices.check()
