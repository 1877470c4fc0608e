"""Random computations: any graph of kernels of several sizes, with effects, tuples and updates in place."""

from __future__ import annotations

from hypothesis import strategies as st

UNIT = 1024  # elements

HEAD = """HloModule m, replica_count=2
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
"""
KINDS = ("join", "cut", "negate", "update", "all-reduce", "pair", "permute", "tuple")


class _Text:
    """The text of an entry computation while it grows. sizes: of each array, in units."""

    def __init__(self) -> None:
        self.lines = [" zero = s32[] constant(0)"]
        self.sizes: dict[str, int] = {}

    def add(self, size: int, what: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f" {name} = f32[{size * UNIT}] {what}")
        self.sizes[name] = size
        return name

    def cut(self, name: str, size: int) -> str:
        if size == self.sizes[name]:
            return name
        return self.add(size, f"slice({name}), slice={{[0:{size * UNIT}]}}")


@st.composite
def computations(draw: st.DrawFn, most: int = 14, kinds: tuple[str, ...] = KINDS) -> str:
    """The text of a module."""
    text = _Text()
    for k in range(draw(st.integers(1, 3))):
        text.add(draw(st.integers(1, 4)), f"parameter({k})")
    for _ in range(draw(st.integers(1, most))):
        names = list(text.sizes)
        kind, a, b = draw(st.sampled_from(kinds)), draw(st.sampled_from(names)), draw(st.sampled_from(names))
        mine, other = text.sizes[a], text.sizes[b]
        if kind == "join" and mine + other <= 8:
            text.add(mine + other, f"concatenate({a}, {b}), dimensions={{0}}")
        elif kind == "cut":
            text.cut(a, draw(st.integers(1, mine)))
        elif kind == "update" and a != b:
            text.add(mine, f"dynamic-update-slice({a}, {text.cut(b, min(mine, other))}, zero)")
        elif kind == "all-reduce":
            text.add(mine, f"all-reduce({a}), to_apply=sum")
        elif kind == "pair":
            started = text.add(mine, f"all-reduce-start({a}), to_apply=sum")
            del text.sizes[started]
            text.add(mine, f"all-reduce-done({started})")
        elif kind == "permute":
            array, number = f"f32[{mine * UNIT}]", len(text.lines)
            what = f"({array}, {array}) collective-permute-start({a}), source_target_pairs={{{{0,1}}}}"
            text.lines.append(f" p{number} = {what}")
            text.add(mine, f"collective-permute-done(p{number})")
        elif kind == "tuple":
            text.lines.append(f" t{len(text.lines)} = (f32[{mine * UNIT}], f32[{other * UNIT}]) tuple({a}, {b})")
            whole = text.lines[-1].split()[0]
            text.add(other, f"get-tuple-element({whole}), index=1")
        else:
            text.add(mine, f"negate({a})")
    roots = draw(st.lists(st.sampled_from(list(text.sizes)), min_size=1, max_size=3, unique=True))
    shape = ", ".join(f"f32[{text.sizes[name] * UNIT}]" for name in roots)
    text.lines.append(f" ROOT r = ({shape}) tuple({', '.join(roots)})")
    lines = "\n".join(text.lines)
    return f"{HEAD}ENTRY e {{\n{lines}\n}}\n"
