"""send and recv between the devices of one program, and collectives with channels in loops, branches and calls."""

from __future__ import annotations

from collections.abc import Iterator

from distxla.conformance import all_reduce, collective_permute
from distxla.conformance.case import Case
from distxla.conformance.groups import ALL, BY_NAME
from distxla.conformance.program_text import computation, program
from distxla.conformance.values import bits, exact_sums, given
from distxla.ir.element_type import F32, PRED, S32, element_type
from distxla.ir.shape import Shape

RING, CHAIN, SWAP = "{{0,1},{1,2},{2,3},{3,0}}", "{{0,1},{1,2},{2,3}}", "{{0,1},{1,0}}"
# name, replicas, partitions, channel (0: ids of replicas, else of partitions), pairs
SENDS = (
    ("ring", 4, 1, 0, RING),
    ("chain", 4, 1, 0, CHAIN),
    ("one-pair", 4, 1, 0, "{{3,1}}"),
    ("partitions", 1, 4, 1, RING),
    ("partition-chain", 1, 4, 1, CHAIN),
    ("cross-replica", 2, 2, 0, SWAP),
    ("cross-partition", 2, 2, 1, SWAP),
)
X = Shape(F32, (3,))


def transfer(name: str, operand: str, shape: Shape, channel: int, pairs: str) -> list[str]:
    """Lines that send the operand and receive {name}; devices to which nobody sends receive zeros."""
    rest = f'channel_id={channel}, frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"}}'
    return [
        f"{name}.t = token[] after-all()",
        f"{name}.r = ({shape}, u32[], token[]) recv({name}.t), {rest}",
        f"{name}.s = ({shape}, u32[], token[]) send({operand}, {name}.t), {rest}, control-predecessors={{{name}.r}}",
        f"{name}.rd = ({shape}, token[]) recv-done({name}.r), channel_id={channel}",
        f"{name}.sd = token[] send-done({name}.s), channel_id={channel}, control-predecessors={{{name}.rd}}",
        f"{name} = {shape} get-tuple-element({name}.rd), index=0",
    ]


def send_recv() -> Iterator[Case]:
    """send and recv with source-target pairs."""
    for name, replicas, partitions, channel, pairs in SENDS:
        yield _sent(f"send-recv/{name}/f32/rank-1", replicas, partitions, channel, pairs, X)
    for kind in map(element_type, ("pred", "s4", "u8", "s64", "f16", "bf16", "f64", "c64")):
        yield _sent(f"send-recv/chain/{kind}/rank-2", 4, 1, 0, CHAIN, Shape(kind, (2, 3)))
    for what, dims in (("rank-0", ()), ("empty", (0, 2)), ("large", (20_011,))):
        yield _sent(f"send-recv/chain/f32/{what}", 4, 1, 0, CHAIN, Shape(F32, dims))
    name = "send-recv/two-channels/f32/rank-1"
    lines = [
        f"x0 = {X} parameter(0)",
        *transfer("y", "x0", X, 1, RING),
        *transfer("z", "y", X, 2, "{{3,2},{2,1},{1,0}}"),
        f"r = ({X}, {X}) tuple(y, z)",
    ]
    yield Case(name, program(name, 1, 4, lines), 1, 4, (X,), bits)
    name = "send-recv/ring-in-loop/f32/rank-1"
    step = transfer("next", "value", X, 0, RING)
    yield Case(name, _loop(name, 4, step), 4, 1, (X,), bits)


def _sent(name: str, replicas: int, partitions: int, channel: int, pairs: str, shape: Shape) -> Case:
    lines = [f"x0 = {shape} parameter(0)", *transfer("y", "x0", shape, channel, pairs), f"r = {shape} copy(y)"]
    return Case(name, program(name, replicas, partitions, lines), replicas, partitions, (shape,), bits)


def control_flow() -> Iterator[Case]:
    """Collectives in loops, branches and calls, and values that they decide."""
    reduced, ring = all_reduce.of(ALL, "max", X), collective_permute.of(collective_permute.RING, X)
    name = "loop/all-reduce/all/f32/add"
    total = all_reduce.of(ALL, "add", X)
    yield Case(name, _loop(name, 4, [total.line(["value"], "next")], total.computations), 4, 1, (X,), exact_sums)
    name = "loop/collective-permute/ring/f32/rank-1"
    yield Case(name, _loop(name, 4, [ring.line(["value"], "next")]), 4, 1, (X,), bits)
    yield _counted()
    name = "call/all-reduce/all/f32/max"
    called = computation("called", [f"x = {X} parameter(0)", reduced.line(["x"])])
    lines = [f"x0 = {X} parameter(0)", f"r = {X} call(x0), to_apply=called"]
    yield Case(name, program(name, 4, 1, lines, reduced.computations + called), 4, 1, (X,), exact_sums)
    for which in (True, False):
        yield _branch(which=which)
    yield _branches_of_groups()


STATE = f"(s32[], {X})"
READ = [f"p = {STATE} parameter(0)", "i = s32[] get-tuple-element(p), index=0"]
VALUE = f"value = {X} get-tuple-element(p), index=1"


def _loop(name: str, replicas: int, step: list[str], computations: str = "", trips: str = "") -> str:
    """Three iterations of the step from `value` to `next`; trips: the line of another number `n`."""
    test = [*READ, VALUE, trips or "n = s32[] constant(3)", "more = pred[] compare(i, n), direction=LT"]
    body = [*READ, VALUE, *step, "one = s32[] constant(1)", "j = s32[] add(i, one)", f"q = {STATE} tuple(j, next)"]
    entry = [
        f"x0 = {X} parameter(0)",
        "zero = s32[] constant(0)",
        f"begin = {STATE} tuple(zero, x0)",
        f"end = {STATE} while(begin), condition=test, body=body",
        f"r = {X} get-tuple-element(end), index=1",
    ]
    found = computations + computation("test", test) + computation("body", body)
    return program(name, replicas, 1, entry, found)


def _counted() -> Case:
    """A loop whose number of iterations the devices agree on by an all-reduce in its condition."""
    name = "loop/all-reduce/all/s32/agreed-trip-count"
    state = "(s32[], s32[])"
    read = [f"p = {state} parameter(0)", *(f"{n} = s32[] get-tuple-element(p), index={k}" for k, n in enumerate("iw"))]
    agreed = all_reduce.of(ALL, "max", Shape(S32))
    test = computation("test", [*read, agreed.line(["w"], "n"), "more = pred[] compare(i, n), direction=LT"])
    body = computation("body", [*read, "one = s32[] constant(1)", "j = s32[] add(i, one)", f"q = {state} tuple(j, w)"])
    entry = [
        "x0 = s32[] parameter(0)",
        "zero = s32[] constant(0)",
        f"begin = {state} tuple(zero, x0)",
        f"end = {state} while(begin), condition=test, body=body",
        "r = s32[] get-tuple-element(end), index=0",
    ]
    text = program(name, 4, 1, entry, agreed.computations + test + body)
    return Case(name, text, 4, 1, (Shape(S32),), given([2, 5, 1, 0]))


def _branch(*, which: bool) -> Case:
    """All devices take the same branch."""
    taken = all_reduce.of(ALL, "max", X)
    name = f"branch/all-reduce/all/f32/{'true' if which else 'false'}"
    return _conditional(name, [taken.line(["x"])], [f"r = {X} negate(x)"], taken.computations, [which] * 4)


def _branches_of_groups() -> Case:
    """Devices 0 and 2 take a branch with a collective of theirs, 1 and 3 the other one with another."""
    groups = BY_NAME["subgroups"]
    one, other = all_reduce.of(groups, "max", X), all_reduce.of(groups, "max", X)
    name = "branch/all-reduce/subgroups/f32/each-group-its-own"
    lines = [one.line(["x"])], ["y = f32[3] negate(x)", other.line(["y"])]
    return _conditional(name, *lines, one.computations, [True, False, True, False])


def _conditional(name: str, yes: list[str], no: list[str], computations: str, which: list[bool]) -> Case:
    read = f"x = {X} parameter(0)"
    branches = computation("yes", [read, *yes]) + computation("no", [read, *no])
    entry = [
        f"x0 = {X} parameter(0)",
        "x1 = pred[] parameter(1)",
        f"r = {X} conditional(x1, x0, x0), true_computation=yes, false_computation=no",
    ]

    values = given([], which, others=exact_sums)
    return Case(name, program(name, 4, 1, entry, computations + branches), 4, 1, (X, Shape(PRED)), values)


# name, replicas, partitions
IDS = (("replicas", 4, 1), ("partitions", 1, 4), ("both", 2, 3), ("one-device", 1, 1))


def ids() -> Iterator[Case]:
    """replica-id and partition-id, and which device is which flattened id."""
    for where, replicas, partitions in IDS:
        name = f"ids/{where}/u32/replica-and-partition"
        lines = ["a = u32[] replica-id()", "b = u32[] partition-id()", "r = (u32[], u32[]) tuple(a, b)"]
        yield Case(name, program(name, replicas, partitions, lines), replicas, partitions, (), bits)
    for where, replicas, partitions in IDS[2:]:
        name = f"ids/{where}/u32/gathered"
        members = ",".join(map(str, range(replicas * partitions)))
        lines = [
            "a = u32[] replica-id()",
            "b = u32[] partition-id()",
            "n = u32[] constant(100)",
            "c = u32[] multiply(a, n)",
            "d = u32[] add(c, b)",
            "e = u32[1] reshape(d)",
            f"r = u32[{replicas * partitions}] all-gather(e), channel_id=1, replica_groups={{{{{members}}}}}, "
            "use_global_device_ids=true, dimensions={0}",
        ]
        yield Case(name, program(name, replicas, partitions, lines), replicas, partitions, (), bits)
