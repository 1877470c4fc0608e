"""Modules in files of every form, recognised by their content: layer.jax_export is a file of jax 0.6.2."""

from __future__ import annotations

import io
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jaxlib")

import distxla as dx
from distxla.compiler.partitioners import device_program
from distxla.errors import ArgumentError, DistxlaError
from distxla.ir.counts import Counts
from distxla.jax.partitioner.exported import Exported, read_exported
from distxla.jax.private import names as private_names
from distxla.oracle.lockstep import run_reference
from tests.jax.programs import numbers

FILE = Path(__file__).parent / "layer.jax_export"


def exported() -> Exported:
    found = read_exported(FILE.read_bytes())
    assert found is not None
    return found


STABLEHLO = """
#mesh = loc("layer.py":9:4)
module @jit_layer attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(%w: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
                         %x: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<16x4xf32> {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32> loc(#mesh)
    %z = stablehlo.tanh %y : tensor<16x4xf32>
    return %z : tensor<16x4xf32>
  }
}
"""
FORMS: dict[str, Callable[[], bytes]] = {
    "jax.export": FILE.read_bytes,
    "portable artifact": lambda: exported().module,
    "StableHLO": STABLEHLO.encode,
    "HloModuleProto": lambda: private_names.proto_of_stablehlo(STABLEHLO.encode()),
    "HLO text": lambda: str(dx.load(FILE)).encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_loaded_and_partitioned(form: str, tmp_path: Path) -> None:
    path = tmp_path / "module.hlo"
    path.write_bytes(FORMS[form]())
    module = dx.load(path)
    assert module.num_partitions == (None if form == "HloModuleProto" else 4)
    whole = device_program(module, 4)
    assert whole is not None
    w, x = numbers(8, 4), numbers(16, 8)
    rows = [[a.shards.split(v, d) for a, v in zip(whole.parameters, (w, x), strict=True)] for d in range(4)]
    outs = run_reference(whole.module, rows, Counts(1, 4))
    np.testing.assert_allclose(whole.results[0].shards.join([row[0] for row in outs]), np.tanh(x @ w), rtol=1e-5)
    (dot,) = [i for i in module.entry_computation if i.opcode == "dot"]
    assert (module.frame(dot) or "").startswith("layer.py:9")


@pytest.mark.parametrize("wrap", [lambda proto: proto, lambda proto: b"\n" + varint(len(proto)) + proto])
def test_protos_that_were_cut_off(wrap: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "module.hlo.pb"
    proto = wrap(FORMS["HloModuleProto"]())
    for size in (len(proto) // 2, len(proto) * 3 // 4):
        path.write_bytes(proto[:size])
        with pytest.raises(dx.ArgumentError, match="begins as a serialized HloModuleProto, but is none: it may"):
            dx.load(path)


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128, *varint(number >> 7)]) if number > 127 else bytes([number])


def test_lines_of_mlir_without_locations_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "plain.mlir"
    path.write_text(STABLEHLO.replace(" loc(#mesh)", ""))
    module = dx.load(path)
    (dot,) = [i for i in module.entry_computation if i.opcode == "dot"]
    assert (module.frame(dot) or "").startswith(f"{path}:7")


def test_a_byte_order_mark_is_no_part_of_stablehlo(tmp_path: Path) -> None:
    path = tmp_path / "module.mlir"
    path.write_bytes(b"\xef\xbb\xbf" + STABLEHLO.encode())
    module = dx.load(path)
    assert module.num_partitions == 4
    assert module.stablehlo == STABLEHLO.encode()


@pytest.mark.parametrize("value", ["dense_resource<__elided__>", 'dense<"__elided__">'])
def test_constants_that_mlir_leaves_out_are_named(value: str, tmp_path: Path) -> None:
    path = tmp_path / "module.mlir"
    path.write_text(
        "module @m { func.func public @main() -> tensor<9xf32> { "
        f"%c = stablehlo.constant {value} : tensor<9xf32> return %c : tensor<9xf32> }} }}"
    )
    with pytest.raises(ArgumentError, match="leaves out the values of constants, as __elided__: print it with them"):
        dx.load(path)


def test_what_jax_export_says() -> None:
    assert (exported().name, exported().devices) == ("layer", 4)
    assert exported().module.startswith(b"ML\xefR")


SEVERAL_PLATFORMS = """
module @jit_f {
  func.func public @main(%platform: tensor<i32> {jax.global_constant = "_platform_index"},
                         %x: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) -> tensor<4xf32> {
    %y = "stablehlo.case"(%platform) ({
      %doubled = stablehlo.add %x, %x : tensor<4xf32>
      stablehlo.return %doubled : tensor<4xf32>
    }, {
      %negative = stablehlo.negate %x : tensor<4xf32>
      stablehlo.return %negative : tensor<4xf32>
    }) : (tensor<i32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
"""


def exported_for(platforms: list[str], devices: int = 1) -> bytes:
    """SEVERAL_PLATFORMS as jax.export would write it, as far as distxla reads that."""
    with private_names.mlir_context():
        bytecode = io.BytesIO()
        private_names.mlir_module("ir").Module.parse(SEVERAL_PLATFORMS).operation.write_bytecode(bytecode)

    def counted(data: bytes) -> bytes:
        return struct.pack("<I", len(data)) + data + b"\0" * (-len(data) % 4)

    names = [counted(name.encode()) for name in platforms]
    at = 4 * (1 + len(names))  # behind the vector of offsets
    offsets = [at + sum(map(len, names[:number])) - 4 * (1 + number) for number in range(len(names))]
    vector = struct.pack(f"<I{len(names)}I", len(names), *offsets) + b"".join(names)
    parts = {1: counted(b"f"), 9: vector, 13: counted(bytecode.getvalue())}
    entries = {1: 4, 9: 8, 13: 12, 18: 16}  # field to place in the table
    vtable = struct.pack("<2H", 4 + 2 * 19, 20) + struct.pack("<19H", *(entries.get(k, 0) for k in range(19))) + b"\0\0"
    start = 4 + len(vtable)
    table, behind = struct.pack("<i", len(vtable)), 20
    for field, part in parts.items():
        table += struct.pack("<I", behind - entries[field])
        behind += len(part)
    return struct.pack("<I", start) + vtable + table + struct.pack("<I", devices) + b"".join(parts.values())


@pytest.mark.parametrize(
    ("platforms", "factor"), [(["tpu", "cpu"], -1), (["cpu", "cuda"], 2), (["cpu", "cuda", "tpu"], 2)]
)
def test_an_export_for_several_platforms_runs_as_for_cpu(platforms: list[str], factor: int, tmp_path: Path) -> None:
    path = tmp_path / "f.jax_export"
    path.write_bytes(exported_for(platforms))
    module = dx.load(path)
    assert [i.shape.dims for i in module.entry_computation if i.opcode == "parameter"] == [(4,)]
    x = numbers(4)
    (row,) = run_reference(module, [[x]], Counts(1, 1))
    np.testing.assert_array_equal(np.asarray(row[0]), factor * x)


def test_an_export_for_several_platforms_is_partitioned(tmp_path: Path) -> None:
    path = tmp_path / "f.jax_export"
    path.write_bytes(exported_for(["tpu", "cpu"], devices=2))
    whole = device_program(dx.load(path))
    assert whole is not None
    x = numbers(4)
    rows = run_reference(whole.module, [[x[:2]], [x[2:]]], Counts(1, 2))
    np.testing.assert_array_equal(whole.results[0].shards.join([np.asarray(row[0]) for row in rows]), -x)


def test_an_export_for_several_platforms_without_cpu_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.jax_export"
    path.write_bytes(exported_for(["cuda", "tpu"]))
    with pytest.raises(ArgumentError, match="for several platforms: expected cpu among them, found cuda, tpu"):
        dx.load(path)


@pytest.mark.parametrize("form", FORMS)
def test_files_that_are_cut_off_give_one_clear_error(form: str, tmp_path: Path) -> None:
    data = FORMS[form]()
    for part in (len(data) - 7, len(data) // 2, 40):
        path = tmp_path / f"cut{part}"
        path.write_bytes(data[:part])
        with pytest.raises(DistxlaError) as caught:
            device_program(dx.load(path))
        assert caught.value.exit_status == 2
        assert str(path) in str(caught.value)


def test_random_bytes_around_bytecode_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise"
    path.write_bytes(b"\x08\0\0\0" + os.urandom(50) + b"ML\xefR" + os.urandom(50))
    with pytest.raises(DistxlaError, match="noise"):
        dx.load(path)


@pytest.mark.parametrize("form", ["jax.export", "portable artifact", "StableHLO", "HloModuleProto"])
def test_without_jaxlib_the_error_names_the_extra(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "module"
    path.write_bytes(FORMS[form]())
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    with pytest.raises(DistxlaError) as caught:
        dx.load(path)
    assert "pip install 'distxla[jax]'" in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
