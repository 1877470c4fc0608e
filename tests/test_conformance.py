"""Single operations and small programs with results that others computed: a corpus outside this repository.

    pytest tests/test_conformance.py --conformance FOLDER        (or DISTXLA_CONFORMANCE=FOLDER)

FOLDER holds manifest.json, {"format": 1, "cases": [..]}; a case names its programs (HLO text), the grid of devices
with the program of each, its inputs (in.npz) and outputs (out.npz) with element types and tolerances. Without the
option this file is not collected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distxla.ir.element_type import ElementType, element_type
from distxla.ir.module import Module
from distxla.passes.verify import require_executable, verify_module
from distxla.reference.lockstep import run_reference
from distxla.runtime.compiler import compile_module
from distxla.text.parser import parse_module
from tests.codegen.runner import run_devices
from tests.conftest import conformance_folder
from tests.tolerances import ulps_between

Array = np.ndarray[Any, Any]
Case = Mapping[str, Any]

# XLA CPU contradicts the source of these cases; both answers are accepted there, see the corpus.
DISPUTED = "disputed"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = conformance_folder(metafunc.config)
    if folder is None or "case" not in metafunc.fixturenames:
        return
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == 1, f"format {manifest['format']} of the corpus is not known"
    cases = [case for case in manifest["cases"] if not case.get("transfers")]
    metafunc.parametrize("case", cases, ids=[f"{case['family']}/{case['name']}" for case in cases])


@pytest.fixture
def folder(case: Case, request: pytest.FixtureRequest) -> Path:
    root = conformance_folder(request.config)
    assert root is not None
    return root / str(case["dir"])


def test_reference(case: Case, folder: Path) -> None:
    module = _module(case, folder)
    _check(case, folder, run_reference(module, _arguments(case, folder), **_counts(case)))


def test_compiled(case: Case, folder: Path) -> None:
    module = _module(case, folder)
    require_executable(module)
    _check(case, folder, run_devices(compile_module(module, **_counts(case)), _arguments(case, folder)))


def _module(case: Case, folder: Path) -> Module:
    (program,) = case["programs"]
    module = parse_module((folder / program).read_text(), program)
    verify_module(module)
    return module


def _counts(case: Case) -> dict[str, int]:
    return {"replicas": case["replicas"], "partitions": case["partitions"]}


def _prefixes(case: Case) -> list[str]:
    """What the keys of each device begin with, by flattened id."""
    replicas, partitions = case["replicas"], case["partitions"]
    if replicas * partitions == 1:
        return [""]
    return [f"r{r}p{p}_" for r in range(replicas) for p in range(partitions)]


def _arguments(case: Case, folder: Path) -> list[list[Array]]:
    """args[d][k], each in its own type."""
    arguments: list[list[Array]] = []
    with np.load(folder / "in.npz") as stored:
        for prefix in _prefixes(case):
            keys = [key for key in case["inputs"] if key.startswith(f"{prefix}p")]
            keys.sort(key=lambda key: int(key.removeprefix(f"{prefix}p")))
            arguments.append([_typed(stored[key], element_type(case["inputs"][key]["type"])) for key in keys])
    return arguments


def _check(case: Case, folder: Path, outs: list[list[Any]]) -> None:
    with np.load(folder / "out.npz") as stored:
        for prefix, results in zip(_prefixes(case), outs, strict=True):
            keys = [key for key in case["outputs"] if key.startswith(f"{prefix}o")]
            assert len(results) == len(keys), f"{len(results)} results instead of {len(keys)}"
            for number, result in enumerate(results):
                key = f"{prefix}o{number}"
                stated = case["outputs"][key]
                element, got = element_type(stated["type"]), np.asarray(result)
                assert got.dtype == element.dtype, f"{key} is {got.dtype} instead of {stated['type']}"
                assert list(got.shape) == stated["shape"], f"{key} is {list(got.shape)} instead of {stated['shape']}"
                sources = [key, f"xla_{key}"] if case.get(DISPUTED) else [key]
                wanted = [_typed(stored[k], element) for k in sources if k in stored]
                if not any(_within(got, want, stated["tol"]).all() for want in wanted):
                    bad = np.argwhere(~_within(got, wanted[0], stated["tol"]))
                    at = tuple(int(i) for i in bad[0])
                    raise AssertionError(
                        f"{key}: {len(bad)} of {got.size} elements are not within {stated['tol']}; "
                        f"first {list(at)}: {got[at]!r} instead of {wanted[0][at]!r}"
                    )


def _typed(stored: Array, element: ElementType) -> Array:
    """NumPy's types as they are; others stand as bit patterns, integers below a byte as one byte a value."""
    if stored.dtype == element.dtype:
        return stored
    if element.is_float:
        return stored.view(element.dtype)
    return stored.astype(element.dtype)


def _within(got: Array, wanted: Array, tolerance: Mapping[str, Any]) -> Array:
    """Elementwise; NaN equals NaN, and -0.0 equals 0.0."""
    if tolerance["kind"] == "ulp":
        return np.asarray(ulps_between(got, wanted) <= tolerance["max"])
    if np.iscomplexobj(wanted):
        return _within(got.real, wanted.real, tolerance) & _within(got.imag, wanted.imag, tolerance)
    if got.dtype.kind in "iub" or "int" in got.dtype.name:
        a, b = got.astype(object), wanted.astype(object)
        return np.asarray(np.abs(a - b) <= tolerance.get("tol", 0) if tolerance["kind"] == "abs" else a == b, bool)
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if tolerance["kind"] == "eq":
            return same
        if tolerance["kind"] == "abs":
            return same | (np.abs(a - b) <= tolerance["tol"])
        assert tolerance["kind"] == "rel", tolerance
        return same | (np.abs(a - b) <= tolerance["atol"] + tolerance["rtol"] * np.abs(b))
