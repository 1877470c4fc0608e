"""Collectives of a random program, over all devices or within two groups of them."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.xla.exact_values import COMPLEX, FLOATS, Value
from tests.fuzz.xla.writer import MOST_ELEMENTS, Writer, is_possible, sized


def _groups(w: Writer) -> tuple[str, int]:
    """The attribute, and the size of a group."""
    n = w.module.devices
    order = w.random.sample(range(n), n)
    size = n if n < 4 or w.random.random() < 0.5 else n // 2
    groups = [order[k : k + size] for k in range(0, n, size)]
    text = ",".join("{" + ",".join(map(str, group)) + "}" for group in groups)
    return f"{w.module.channel()}replica_groups={{{text}}}", size


def _global(w: Writer) -> str:
    """Where groups are of partitions, they are numbered among all devices."""
    return ", use_global_device_ids=true" if w.module.partitioned else ""


def _array(w: Writer) -> Value:
    found = w.pick(lambda v: v.is_exact and v.element not in ("pred", *COMPLEX))
    return found or w.need(w.random.choice(FLOATS), w.dims())


def _lead(w: Writer, a: Value, size: int) -> Value:
    """An array like `a` whose first dimension is a multiple of `size`."""
    return w.need(a.element, (size * w.random.choice([1, 2]), *a.dims[1:]))


def _opcode(w: Writer) -> str:
    return w.random.choice(["add", "add", "maximum", "minimum"])


def all_reduce(w: Writer) -> None:
    a, opcode = _array(w), _opcode(w)
    groups, size = _groups(w)
    made = sized(a, bound=a.bound * size if opcode == "add" else a.bound)
    if is_possible(made):
        call = w.module.scalar(a.element, opcode)
        _add(w, made, "all-reduce", a, f"{groups}{_global(w)}, to_apply={call}")


def reduce_scatter(w: Writer) -> None:
    groups, size = _groups(w)
    a, opcode = _lead(w, _array(w), size), _opcode(w)
    made = sized(a, dims=(a.dims[0] // size, *a.dims[1:]), bound=a.bound * size if opcode == "add" else a.bound)
    if is_possible(made):
        call = w.module.scalar(a.element, opcode)
        _add(w, made, "reduce-scatter", a, f"{groups}{_global(w)}, dimensions={{0}}, to_apply={call}")


def all_gather(w: Writer) -> None:
    groups, size = _groups(w)
    a = w.pick(lambda v: v.rank > 0) or w.need("f32", w.dims(1))
    d = w.random.randrange(a.rank)
    made = a.like("", (*a.dims[:d], a.dims[d] * size, *a.dims[d + 1 :]))
    if made.size <= MOST_ELEMENTS:
        _add(w, made, "all-gather", a, f"{groups}{_global(w)}, dimensions={{{d}}}")


def all_to_all(w: Writer) -> None:
    groups, size = _groups(w)
    a = _lead(w, _array(w), size)
    _add(w, a, "all-to-all", a, f"{groups}, dimensions={{0}}")


def permute(w: Writer) -> None:
    a = w.some()
    n = w.module.devices
    targets = w.random.sample(range(n), n)
    pairs = ",".join(f"{{{k},{t}}}" for k, t in enumerate(targets) if w.random.random() < 0.8) or "{0,1}"
    _add(w, a, "collective-permute", a, f"{w.module.channel()}source_target_pairs={{{pairs}}}")


def device(w: Writer) -> None:
    """The number of the replica; XLA takes no partition-id in partitioned modules."""
    if not w.module.partitioned:
        w.add("device", Value("", "u32", (), w.module.devices - 1.0), "replica-id", [])


def _add(w: Writer, made: Value, opcode: str, a: Value, attributes: str) -> None:
    w.add("collective", made, opcode, [a], attributes)
    w.pool[-1] = replace(w.pool[-1], uniform=False)


MAKERS = (all_reduce, all_reduce, reduce_scatter, all_gather, all_to_all, permute, device)
