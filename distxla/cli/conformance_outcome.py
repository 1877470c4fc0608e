"""The outcome of a case of `distxla conformance`: an executor's results compared with the expected ones."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from distxla.cli.array_files import read_leaves, to_file, write_arrays
from distxla.cli.comparison import compare
from distxla.cli.foreign_executor import CaseFiles, Failure
from distxla.conformance.case import Case
from distxla.errors import ArgumentError
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]
Kind = Literal["same", "differs", "no results", "refused", "crashed", "time limit"]


@dataclass(frozen=True)
class Outcome:
    """One case. message: of what was not run, or of results that can't be compared.

    Of results that differ: the first leaf and the first device on which they do (leaf by leaf, on each device by
    device), the index of the first element beyond (of sums in any order, the worst), both values, and how many elements
    of this array differ.
    """

    case: str
    kind: Kind
    message: str = ""
    leaf: int | None = None
    device: int | None = None
    index: tuple[int, ...] = ()
    expected: Any = None
    found: Any = None
    differing: int = 0
    size: int = 0

    @property
    def where(self) -> str:
        """`out0@2[1,3]`, as files name it; empty where there is no such place."""
        if self.leaf is None:
            return ""
        return f"out{self.leaf}@{self.device}" + (f"[{','.join(map(str, self.index))}]" if self.index else "")

    def as_json(self) -> dict[str, Any]:
        values: dict[str, str | None] = {"expected": _shown(self.expected), "found": _shown(self.found)}
        return {
            "case": self.case,
            "kind": self.kind,
            "message": self.message or None,
            "leaf": self.leaf,
            "device": self.device,
            "index": list(self.index) if self.leaf is not None else None,
            **(dict.fromkeys(values) if self.leaf is None else values),
            "differing": self.differing,
            "size": self.size,
        }


def _shown(value: Any) -> str:
    """A value as text, which tells signed zeros and all NaNs of a type; JSON has no number for some."""
    return str(value)


def write_case(case: Case, files: CaseFiles, expected: list[list[Array]]) -> None:
    """Write module, arguments and expected results into the case's folder, which is made."""
    files.folder.mkdir(parents=True, exist_ok=True)
    files.module.write_text(case.text)
    files.out.unlink(missing_ok=True)
    files.log.unlink(missing_ok=True)
    arguments = {
        f"arg{k}@{d}": to_file(array, shape.dtype)
        for d, row in enumerate(case.arguments())
        for k, (array, shape) in enumerate(zip(row, case.operands, strict=True))
    }
    write_arrays(str(files.args), arguments)
    results = {
        f"out{k}@{d}": to_file(array, shape.dtype)
        for d, row in enumerate(expected)
        for k, (array, shape) in enumerate(zip(row, case.result_shapes(), strict=True))
    }
    write_arrays(str(files.expected), results)


def judged(case: Case, files: CaseFiles, expected: list[list[Array]], failure: Failure | None) -> Outcome:
    """The outcome of a case that has been run. Reads the results."""
    if failure is not None:
        return Outcome(case.name, failure.kind, failure.message)
    if not files.out.exists():
        return Outcome(case.name, "no results", f"it has written no {files.out.name}")
    shapes = case.result_shapes()
    try:
        found = read_leaves(str(files.out), "out", dict.fromkeys(range(case.devices), shapes))
    except ArgumentError as error:
        message = error.message.replace(str(files.out), files.out.name).removeprefix(f"{files.out.name}: ")
        return Outcome(case.name, "no results", message)
    for leaf, shape in enumerate(shapes):
        for device, row in enumerate(expected):
            if (leaf, device) not in found:
                return Outcome(case.name, "no results", f"it has written no out{leaf}@{device}")
            outcome = _compared(case, leaf, device, found[leaf, device], row[leaf], shape)
            if outcome is not None:
                return outcome
    return Outcome(case.name, "same")


def _compared(case: Case, leaf: int, device: int, found: Array, wanted: Array, shape: Shape) -> Outcome | None:
    """None: they agree."""
    if case.any_order:
        off = compare(found, wanted, shape.dtype, leaf=leaf, device=device)
        if off.fits:
            return None
        index, count = off.at, off.differing
    else:
        wrong = ~same_bits(found, wanted)
        if not wrong.any():
            return None
        index, count = tuple(int(i) for i in np.argwhere(wrong)[0]), int(wrong.sum())
    values = {"expected": wanted[index], "found": found[index], "differing": count, "size": wanted.size}
    return Outcome(case.name, "differs", "", leaf, device, index, **values)


def same_bits(a: Array, b: Array) -> Array:
    """Elementwise; any NaN is the same as any other, zeros of different sign are not. Arrays of one shape and type."""
    width = a.dtype.itemsize
    raw = [np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(-1, width) for x in (a, b)]
    same = (raw[0] == raw[1]).all(axis=1).reshape(a.shape)
    if a.dtype.kind in "fcV":
        with np.errstate(all="ignore"):
            same = same | (np.asarray(a != a) & np.asarray(b != b))
    return np.asarray(same)


__all__ = ["Outcome", "judged", "same_bits", "write_case"]
