"""HLO text of large programs for `distxla check`: every device executes about as many communicating instructions as
asked for, in each of the shapes that such programs have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

SHAPE = "f32[4]"
CONTEXT = f"({SHAPE}, u32[], token[])"
SUM = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""
STAGES = 8  # of a pipeline whose stages are different programs, or different branches


@dataclass(frozen=True)
class Checked:
    """programs: (first device, last device, text).  outcome: what `check` says of them."""

    name: str
    devices: int
    programs: tuple[tuple[int, int, str], ...]
    outcome: str = "safe"


def checked(devices: int, count: int) -> list[Checked]:
    """Every shape. devices: a multiple of 2 * STAGES.  count: of communicating instructions, a multiple of 8."""
    return [make(name, devices, count) for name in SHAPES]


def make(name: str, devices: int, count: int) -> Checked:
    return SHAPES[name](name, devices, count)


def _one(name: str, devices: int, text: str, outcome: str = "safe") -> Checked:
    return Checked(name, devices, ((0, devices - 1, text),), outcome)


def _entry(lines: Sequence[str], result: str, before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule checked\n{SUM}{before}ENTRY main {{\n  v0 = {SHAPE} parameter(0)\n{body}\n" \
           f"  ROOT z = {SHAPE} negate({result})\n}}\n"  # fmt: skip


def _listed(groups: Sequence[Sequence[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def _reduce(name: str, operand: str, groups: str = "{}") -> str:
    return f"{name} = {SHAPE} all-reduce({operand}), replica_groups={groups}, to_apply=sum"


def _all_reduces(name: str, devices: int, count: int) -> Checked:
    return _one(name, devices, _entry([_reduce(f"v{k + 1}", f"v{k}") for k in range(count)], f"v{count}"))


def _mesh(devices: int) -> tuple[str, str, str]:
    """Groups of a mesh with as many columns as halves the devices longest, by rows, by columns, and pairs of rows."""
    columns = max(c for c in range(1, int(devices**0.5) + 1) if devices % c == 0)
    rows = [range(r * columns, (r + 1) * columns) for r in range(devices // columns)]
    pairs = [[*rows[k], *rows[k + 1]] for k in range(0, len(rows) - 1, 2)] + [list(r) for r in rows[len(rows) & ~1 :]]
    return _listed(rows), _listed([range(c, devices, columns) for c in range(columns)]), _listed(pairs)


def _meshes(name: str, devices: int, count: int) -> Checked:
    groups = _mesh(devices)
    lines = [_reduce(f"v{k + 1}", f"v{k}", groups[k % 3]) for k in range(count)]
    return _one(name, devices, _entry(lines, f"v{count}"))


def _permutes(name: str, devices: int, count: int) -> Checked:
    """Each with another distance."""
    lines = []
    for k in range(count):
        pairs = _listed([(d, (d + 1 + k) % devices) for d in range(devices) if (1 + k) % devices])
        lines.append(f"v{k + 1} = {SHAPE} collective-permute(v{k}), source_target_pairs={pairs}")
    return _one(name, devices, _entry(lines, f"v{count}"))


def _halves(name: str, devices: int, count: int) -> Checked:
    """Starts and dones, two in flight at a time."""
    lines, value = [], "v0"
    for k in range(0, count, 4):
        lines += [
            f"s{k} = {SHAPE} all-reduce-start({value}), replica_groups={{}}, to_apply=sum",
            f"t{k} = {SHAPE} all-reduce-start({value}), replica_groups={{}}, to_apply=sum",
            f"u{k} = {SHAPE} all-reduce-done(s{k})",
            f"w{k} = {SHAPE} all-reduce-done(t{k})",
        ]
        value = f"w{k}"
    return _one(name, devices, _entry(lines, value))


def _iterations(name: str, devices: int, count: int) -> Checked:
    return _one(name, devices, _loop([_reduce("u", "v")], str(count)))


def _loop(body: Sequence[str], iterations: str) -> str:
    state = f"(s32[], {SHAPE})"
    lines = "\n".join(f"  {line}" for line in body)
    return f"""HloModule checked
{SUM}body {{
  q = {state} parameter(0)
  i = s32[] get-tuple-element(q), index=0
  v = {SHAPE} get-tuple-element(q), index=1
{lines}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT o = {state} tuple(j, u)
}}
more {{
  q = {state} parameter(0)
  i = s32[] get-tuple-element(q), index=0
  n = s32[] constant({iterations})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = {SHAPE} parameter(0)
  zero = s32[] constant(0)
  q = {state} tuple(zero, x)
  w = {state} while(q), condition=more, body=body
  ROOT r = {SHAPE} get-tuple-element(w), index=1
}}
"""


def _transfer(k: int | str, value: str, pairs: str, order: str, channel: int = 1) -> list[str]:
    """The four instructions in an order of the letters r, s, R, S (dones); the value is v{k}."""
    rest = f"channel_id={channel}" + (
        f', frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"}}' if pairs else ""
    )
    texts = {
        "r": f"r{k} = {CONTEXT} recv(t{k}), {rest}",
        "s": f"s{k} = {CONTEXT} send({value}, t{k}), {rest}",
        "R": f"R{k} = ({SHAPE}, token[]) recv-done(r{k}), channel_id={channel}",
        "S": f"S{k} = token[] send-done(s{k}), channel_id={channel}",
    }
    lines = [f"t{k} = token[] after-all()"]
    for letter in order:
        lines.append(texts[letter])
        if letter == "R":
            lines.append(f"v{k} = {SHAPE} get-tuple-element(R{k}), index=0")
    return lines


def _ring(devices: int) -> str:
    return _listed([(d, (d + 1) % devices) for d in range(devices)])


def _chain(devices: int) -> str:
    return _listed([(d, d + 1) for d in range(devices - 1)])


def _transfers(name: str, devices: int, count: int) -> Checked:
    """Round a ring, recvs posted first."""
    lines = [x for k in range(count // 4) for x in _transfer(k + 1, f"v{k}", _ring(devices), "rsRS")]
    return _one(name, devices, _entry(lines, f"v{count // 4}"))


def _pipeline(name: str, devices: int, count: int) -> Checked:
    """Each device hands on what it has received."""
    lines: list[str] = []
    for k in range(1, count // 4 + 1):
        lines += _transfer(k, f"v{k}", _chain(devices), "rRsS")
    return _one(name, devices, _entry(lines, f"v{count // 4}"))


def _there_and_back(name: str, devices: int, count: int) -> Checked:
    """Down a pipeline on one channel, up on another."""
    up = _listed([(d + 1, d) for d in range(devices - 1)])
    lines: list[str] = []
    for k in range(1, count // 8 + 1):
        lines += _transfer(f"d{k}", f"vd{k}", _chain(devices), "rRsS")
        lines += _transfer(f"u{k}", f"vu{k}", up, "rRsS", 2)
    return _one(name, devices, _entry(lines, f"vu{count // 8}"))


def _stuck_ring(name: str, devices: int, count: int) -> Checked:
    """The last of many transfers closes a cycle."""
    lines = [x for k in range(count // 4 - 1) for x in _transfer(k + 1, f"v{k}", _chain(devices), "rsRS")]
    last = count // 4
    lines += _transfer(last, f"v{last}", _ring(devices), "rRsS", 2)
    return _one(name, devices, _entry(lines, f"v{last}"), "deadlock")


def _branches(name: str, devices: int, count: int) -> Checked:
    """Each instruction in a branch that the device's id chooses."""
    halves = _listed([range(devices // 2), range(devices // 2, devices)])
    computations = "".join(
        f"{branch}{k} {{\n  p = {SHAPE} parameter(0)\n  {_reduce('ROOT q', 'p', halves)}\n}}\n"
        for k in range(count)
        for branch in ("a", "b")
    )
    lines = ["id = u32[] replica-id()", f"half = u32[] constant({devices // 2})",
             "low = pred[] compare(id, half), direction=LT"]  # fmt: skip
    for k in range(count):
        branches = f"true_computation=a{k}, false_computation=b{k}"
        lines.append(f"v{k + 1} = {SHAPE} conditional(low, v{k}, v{k}), {branches}")
    return _one(name, devices, _entry(lines, f"v{count}", computations))


def _stage(devices: int, stage: int, count: int, prefix: str = "v") -> list[str]:
    """What a stage of a pipeline does: it receives from the one before it, sums among itself, and sends on.

    Devices of a stage stand beside each other; the i-th of one sends to the i-th of the next.
    """
    size = devices // STAGES
    groups = _listed([range(s * size, (s + 1) * size) for s in range(STAGES)])
    lines: list[str] = []
    value, k = f"{prefix}0", 0
    while k < count:
        if stage:
            pairs = _listed([(d - size, d) for d in range(stage * size, (stage + 1) * size)])
            rest = f'channel_id={stage}, frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"}}'
            lines += [f"t{k} = token[] after-all()", f"r{k} = {CONTEXT} recv(t{k}), {rest}",
                      f"R{k} = ({SHAPE}, token[]) recv-done(r{k}), channel_id={stage}",
                      f"g{k} = {SHAPE} get-tuple-element(R{k}), index=0"]  # fmt: skip
            value, k = f"g{k}", k + 2
        lines += [_reduce(f"y{k}", value, groups), _reduce(f"{prefix}{k + 1}", f"y{k}", groups)]
        value, k = f"{prefix}{k + 1}", k + 2
        if stage < STAGES - 1:
            pairs = _listed([(d, d + size) for d in range(stage * size, (stage + 1) * size)])
            rest = f'channel_id={stage + 1}, frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"}}'
            lines += [f"t{k} = token[] after-all()", f"s{k} = {CONTEXT} send({value}, t{k}), {rest}",
                      f"S{k} = token[] send-done(s{k}), channel_id={stage + 1}"]  # fmt: skip
            k += 2
    lines.append(f"out = {SHAPE} copy({value})")
    return lines


def _rounds(stage: int, count: int) -> int:
    """So that all stages send and receive as often."""
    inner = count // 6
    return inner * (4 if stage in (0, STAGES - 1) else 6)


def _programs(name: str, devices: int, count: int) -> Checked:
    """Stages of a pipeline, each a program of its own."""
    size = devices // STAGES
    programs = tuple(
        (s * size, (s + 1) * size - 1, _entry(_stage(devices, s, _rounds(s, count)), "out")) for s in range(STAGES)
    )
    return Checked(name, devices, programs)


def _stages(name: str, devices: int, count: int) -> Checked:
    """Stages of a pipeline, each a branch."""
    size = devices // STAGES
    computations = ""
    for s in range(STAGES):
        lines = "\n".join(f"  {line}" for line in _stage(devices, s, _rounds(s, count)))
        computations += f"b{s} {{\n  v0 = {SHAPE} parameter(0)\n{lines}\n  ROOT z = {SHAPE} negate(out)\n}}\n"
    names = ", ".join(f"b{s}" for s in range(STAGES))
    given = ", ".join(["v0"] * STAGES)
    lines = ["id = u32[] replica-id()", f"size = u32[] constant({size})", "stage = u32[] divide(id, size)",
             "which = s32[] convert(stage)",
             f"r = {SHAPE} conditional(which, {given}), branch_computations={{{names}}}"]  # fmt: skip
    return _one(name, devices, _entry(lines, "r", computations))


def _different(name: str, devices: int, count: int) -> Checked:
    """The last round of many differs on one device."""
    lines = [_reduce(f"v{k + 1}", f"v{k}") for k in range(count)]
    branch = "ROOT q = f32[4] all-reduce(p), replica_groups={}, to_apply=sum"
    other = "ROOT q = f32[4] all-reduce(p), replica_groups={}, to_apply=most"
    most = "most {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] maximum(a, b)\n}\n"
    computations = most + "".join(
        f"{n} {{\n  p = {SHAPE} parameter(0)\n  {text}\n}}\n" for n, text in (("a", branch), ("b", other))
    )
    branches = "true_computation=a, false_computation=b"
    lines += ["id = u32[] replica-id()", f"last = u32[] constant({devices - 1})",
              "before = pred[] compare(id, last), direction=LT",
              f"u = {SHAPE} conditional(before, v{count}, v{count}), {branches}"]  # fmt: skip
    return _one(name, devices, _entry(lines, "u", computations), "deadlock")


SHAPES: dict[str, Callable[[str, int, int], Checked]] = {
    "all-reduces of all": _all_reduces,
    "groups of a mesh": _meshes,
    "permutes, each of another distance": _permutes,
    "starts and dones": _halves,
    "iterations of a loop": _iterations,
    "transfers round a ring": _transfers,
    "transfers down a pipeline": _pipeline,
    "down a pipeline and up": _there_and_back,
    "branches by device": _branches,
    f"{STAGES} stages as branches": _stages,
    f"{STAGES} stages as programs": _programs,
    "a cycle in the last transfer": _stuck_ring,
    "another reduction in the last round": _different,
}

__all__ = ["SHAPES", "STAGES", "Checked", "checked", "make"]
