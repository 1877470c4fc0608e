"""What a planted program is, and where its marks are.

A program's builder takes an element type and whether the bug is in, and returns the sharded function, the unsharded
one, and their global arguments. The comment `# planted: NAME` stands on the statement of the fault,
`# planted-use: NAME` on statements that use the wrong value: an answer that names a line of any of them is right.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh

FOLDER: Final = Path(__file__).parent
DEVICES: Final = 8
TYPES: Final = ("float32", "bfloat16", "float16")
FAMILIES: Final = (
    "missing_psum", "missing_psum_gradient", "missing_psum_later", "doubled_psum", "wrong_axis", "psum_for_pmean",
    "uneven_mean", "dropout_key", "wrong_spec", "permute", "stale_halo", "fsdp", "all_to_all", "softmax", "axis_offset",
    "nested", "both_forms", "reports",
)  # fmt: skip
RIGHT_ONES: Final = ("right", "right_manual")
MARK: Final = re.compile(r"# planted(?P<use>-use)?: (?P<names>[\w, ]+)$")

Built = tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Program:
    """kind: of the bug.  twin: "one", the same function on a mesh of one device per axis, or "plain", one written
    separately.  has_bug: false for programs of which only the right form exists.  of: the program that its marks name,
    where this is one with another unsharded form."""

    name: str
    kind: str
    twin: str
    build: Callable[[Any, bool], Built]
    has_bug: bool = True
    of: str = ""

    def lines(self) -> dict[str, str]:
        """Its marked lines as "file.py:12": "planted" or "planted-use"."""
        return marks().get(self.of or self.name, {})


PROGRAMS: Final[dict[str, Program]] = {}
on_one_device: Final[ContextVar[bool]] = ContextVar("on_one_device", default=False)  # all meshes have one device


def planted(kind: str, *, twin: str, has_bug: bool = True, of: str = "") -> Callable[[Any], Any]:
    """Register the builder below under its name."""

    def register(build: Callable[[Any, bool], Built]) -> Callable[[Any, bool], Built]:
        name = build.__name__
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(name, kind, twin, build, has_bug, of)
        return build

    return register


def load(*families: str) -> dict[str, Program]:
    """The programs of these families (modules of this folder), of all by default."""
    chosen = families or FAMILIES + RIGHT_ONES
    for family in chosen:
        importlib.import_module(f"{__package__}.{family}")
    modules = {f"{__package__}.{family}" for family in chosen}
    return {name: program for name, program in PROGRAMS.items() if program.build.__module__ in modules}


@cache
def marks() -> dict[str, dict[str, str]]:
    """For each program, the lines of its marked statements as "file.py:12": "planted" or "planted-use"."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(FOLDER.glob("*.py")):
        text = path.read_text()
        spans = statements(text)
        for number, line in enumerate(text.split("\n"), start=1):
            if (match := MARK.search(line)) and path.name != "program.py":
                for name, at in product(match["names"].split(", "), spans.get(number, [number])):
                    lines = found.setdefault(name, {})
                    if lines.get(f"{path.name}:{at}") != "planted":
                        lines[f"{path.name}:{at}"] = "planted" + (match["use"] or "")
    return found


def statements(text: str) -> dict[int, range]:
    """The lines of the simple statement that each line belongs to."""
    simple = ast.Assign, ast.AugAssign, ast.Return, ast.Expr
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, simple)]
    spans = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in nodes]
    return {line: span for span in spans for line in span}


def mesh(*sizes: int, names: tuple[str, ...] = ("data", "model")) -> Mesh | AbstractMesh:
    """Of the first devices; an abstract one where this process has fewer devices."""
    axes, types = names[: len(sizes)], (AxisType.Auto,) * len(sizes)
    sizes = (1,) * len(sizes) if on_one_device.get() else sizes
    count = int(np.prod(sizes))
    if len(jax.devices()) < count:
        return AbstractMesh(sizes, axes, axis_types=types)
    return jax.make_mesh(sizes, axes, axis_types=types, devices=jax.devices()[:count])


def numbers(seed: int, *shape: int, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
    """Normal ones; the same in each element type but for rounding."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(dtype)


def integers(seed: int, high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, size=shape).astype(np.int32)


def key(seed: int) -> np.ndarray:
    """A raw key of Threefry, as `jax.random.PRNGKey` makes it."""
    return np.array([0, seed], np.uint32)
