"""Single operations and small programs with results that others computed: a corpus outside this repository.

    pytest tests/test_conformance.py --conformance FOLDER        (or DISTXLA_CONFORMANCE=FOLDER)

FOLDER holds manifest.json, {"format": 1, "cases": [..]}; a case names its programs (HLO text), the grid of devices
with the program of each, its inputs (in.npz) and outputs (out.npz) with element types and tolerances. Without the
option this file is not collected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import TimeLimitError
from distxla.ir.counts import Counts
from distxla.ir.element_type import ElementType, element_type
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs
from distxla.oracle.streams import Streams
from distxla.program.options import CompileOptions
from distxla.runtime.cluster import Cluster
from distxla.text.parser import parse_module
from tests.compiler.runner import Devices
from tests.conftest import conformance_folder
from tests.executable import require_executable
from tests.gpu_driver import gpu_driver  # noqa: F401 - a fixture
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
    cases = manifest["cases"]
    if metafunc.function is test_interpreted:
        cases = cases[::8]
    metafunc.parametrize("case", cases, ids=[f"{case['family']}/{case['name']}" for case in cases])


@pytest.fixture
def folder(case: Case, request: pytest.FixtureRequest) -> Path:
    root = conformance_folder(request.config)
    assert root is not None
    return root / str(case["dir"])


def test_reference(case: Case, folder: Path) -> None:
    modules, arguments = _modules(case, folder), _arguments(case, folder)
    streams = Streams()
    _feed(case, folder, streams)
    outs = run_programs(dict(enumerate(modules)), dict(enumerate(arguments)), Counts(**_counts(case)), streams=streams)
    _check(case, folder, [outs[device] for device in range(len(modules))])
    _check_transfers(case, folder, streams)


def test_compiled(case: Case, folder: Path) -> None:
    modules, arguments = _modules(case, folder), _arguments(case, folder)
    for module in modules:
        require_executable(module)
    if len(case["programs"]) > 1:
        _check_on_cluster(case, folder, modules, arguments)
        return
    _check_in_process(case, folder, modules[0], arguments, None)


def test_interpreted(case: Case, folder: Path) -> None:
    """The compiled program with NumPy's kernels."""
    modules, arguments = _modules(case, folder), _arguments(case, folder)
    for module in modules:
        require_executable(module)
    if len(case["programs"]) == 1:
        _check_in_process(case, folder, modules[0], arguments, "interpreted")


def test_kernels_on_a_grid(case: Case, folder: Path) -> None:
    """The compiled program with kernels for a GPU, which an emulator runs."""
    modules, arguments = _modules(case, folder), _arguments(case, folder)
    for module in modules:
        require_executable(module)
    if len(case["programs"]) == 1:
        _check_in_process(case, folder, modules[0], arguments, "nvptx")


def _check_in_process(
    case: Case, folder: Path, module: Module, arguments: list[list[Array]], target: str | None
) -> None:
    devices = Devices(compile_module(module, Counts(**_counts(case)), CompileOptions(target=target)))
    try:
        _feed(case, folder, devices.streams)
        _check(case, folder, devices(arguments))
        _check_transfers(case, folder, devices.streams)
    finally:
        devices.close()


def _check_on_cluster(case: Case, folder: Path, modules: list[Module], arguments: list[list[Array]]) -> None:
    """Several programs at once: the same, with a process a device."""
    with Cluster(**_counts(case)) as cluster:
        cluster.wait_started()
        streams = SimpleNamespace(
            infeed=lambda d, channel: cluster.infeed(d) if channel is None else cluster.host_channel(d, channel),
            outfeed=lambda d, channel: cluster.outfeed(d) if channel is None else cluster.host_channel(d, channel),
        )
        _feed(case, folder, streams)
        outs = cluster.run(dict(enumerate(modules)), dict(enumerate(arguments)))
        _check(case, folder, [[np.asarray(leaf) for leaf in outs[device]] for device in range(len(modules))])
        _check_transfers(case, folder, streams)


def _modules(case: Case, folder: Path) -> list[Module]:
    """The module of each device, by flattened id."""
    modules = [parse_module((folder / program).read_text(), program) for program in case["programs"]]
    for module in modules:
        verify_module(module)
    return [modules[number] for row in case["grid"] for number in row]


def _transfers(case: Case, op: str) -> Iterator[tuple[int, int | None, str]]:
    """(device, channel, key) of the host's transfers in their order."""
    names = [f"r{r}p{p}" for r in range(case["replicas"]) for p in range(case["partitions"])]
    for transfer in case.get("transfers", ()):
        if transfer["op"] == op:
            for device, name in enumerate(names):
                if transfer["process"] in ("*", name):
                    yield device, transfer.get("channel"), transfer["key"]


def _feed(case: Case, folder: Path, streams: Any) -> None:
    """Put what the host has to give."""
    with np.load(folder / "in.npz") as stored:
        for op in ("infeed", "recv"):
            for device, channel, key in _transfers(case, op):
                streams.infeed(device, channel).put(_typed(stored[key], element_type(case["inputs"][key]["type"])))


def _check_transfers(case: Case, folder: Path, streams: Any) -> None:
    """What the host gets, no more and no less."""
    with np.load(folder / "out.npz") as stored:
        for op in ("outfeed", "send"):
            for device, channel, key in _transfers(case, op):
                stated, got = case["outputs"][key], streams.outfeed(device, channel).get(5)
                while isinstance(got, tuple):
                    (got,) = got
                wanted = _typed(stored[key], element_type(stated["type"]))
                assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
                assert _within(got, wanted, stated["tol"]).all(), f"{key}: {got} instead of {wanted}"
            for device, channel, _ in _transfers(case, op):
                with pytest.raises(TimeLimitError):
                    streams.outfeed(device, channel).get(0)


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
            stated_keys = case["outputs"].items()
            keys = [key for key, stated in stated_keys if key.startswith(f"{prefix}o") and not stated.get("host")]
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
