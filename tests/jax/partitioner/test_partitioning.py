"""XLA's partitioner through jaxlib: results are JAX's, and nothing of the module is lost."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

import distxla.jax as dxj
from distxla.compiler.partitioners import device_program
from distxla.errors import ArgumentError, PartitioningError, TimeLimitError, UnsupportedOpError
from distxla.jax.partitioner.partition_server import SERVER
from distxla.jax.partitioner.partition_worker import difference, last_dump
from distxla.jax.private import names as private_names
from distxla.text.parser import parse_module
from distxla.time_limit import time_limit
from tests.jax import each_version
from tests.jax.programs import P, assert_as_jax, lowered, mesh, numbers, run, stablehlo
from tests.stopwatch import Stopwatch

X, Y = mesh(4), mesh(2, 4)
TABLE = np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096
SYMMETRIC = np.eye(8, dtype=np.float32) * 4 + numbers(8, 8) @ numbers(8, 8).T


def psum(x: Any) -> Any:
    def local(x: Any) -> Any:
        return jax.lax.psum(x * 2, "x")

    return jax.shard_map(local, mesh=X, in_specs=P("x"), out_specs=P())(x)


def psum_of_all(x: Any) -> Any:
    return (x * 2).reshape(4, 2, 3).sum(0)


def einsum(a: Any, b: Any) -> Any:
    return jnp.einsum("bij,bjk->ik", a, b)


def train(w: dict[str, Any], x: Any) -> Any:
    def loss(w: dict[str, Any]) -> Any:
        return jnp.mean(jnp.tanh(x @ w["a"] @ w["b"]) ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient)


def with_table(x: Any) -> Any:
    return x @ TABLE


def solve(a: Any, b: Any) -> Any:
    return jnp.linalg.cholesky(a) @ b, jnp.linalg.eigvalsh(a)


@pytest.mark.parametrize(
    ("f", "on", "args", "specs"),
    [
        (einsum, Y, (numbers(4, 8, 16), numbers(4, 16, 8)), (P("x", None, "y"), P("x", "y"))),
        (with_table, Y, (numbers(16, 64),), (P("x", "y"),)),
        (solve, X, (SYMMETRIC, numbers(8, 8)), (P(), P("x"))),
    ],
)
def test_results_are_jaxs(f: Callable[..., Any], on: Any, args: Any, specs: Any) -> None:
    made = dxj.partition_module(stablehlo(lowered(f, on, args, specs)), partitions=on.size)
    assert "{...}" not in made.text
    assert_as_jax(f, made, args)


def test_manual_regions() -> None:
    x = numbers(8, 3)
    made = dxj.partition_module(stablehlo(lowered(psum, X, (x,), (P("x"),))), partitions=4)
    assert_as_jax(psum_of_all, made, (x,))


def test_a_training_step_keeps_shardings_donation_and_source_lines() -> None:
    w, x = {"a": numbers(16, 32), "b": numbers(32, 8)}, numbers(8, 16)
    cut = {"a": NamedSharding(Y, P(None, "y")), "b": NamedSharding(Y, P("y"))}
    given = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), w, cut)
    rows = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(Y, P("x")))
    step = jax.jit(train, donate_argnums=0, out_shardings=(NamedSharding(Y, P()), cut))
    made = dxj.partition_module(stablehlo(step.trace(given, rows).lower(lowering_platforms=("cpu",))), partitions=8)
    assert made.parameter_shapes == ("f32[16,32]{1,0}", "f32[32,8]{1,0}", "f32[8,16]{1,0}")
    assert [a.shard_shape.dims for a in made.parameters] == [(16, 8), (8, 8), (4, 16)]
    assert [a.shard_shape.dims for a in made.results] == [(), (16, 8), (8, 8)]
    module = parse_module(made.text)
    assert (module.num_partitions, module.replica_count) == (8, None)
    assert {name for name, _ in module.header} & {"input_output_alias", "buffer_donor"}
    assert_as_jax(lambda a, b, x: train({"a": a, "b": b}, x), made, (w["a"], w["b"], x))
    lines, first = inspect.getsourcelines(train)
    line = first + next(k for k, text in enumerate(lines) if "jnp.tanh" in text)
    frames = [module.frame(i) or "" for i in module.entry_computation if i.opcode == "all-reduce"]
    assert any(frame.startswith(f"{__file__}:{line}") for frame in frames), frames


GSPMD = """
module @rows attributes {mhlo.num_partitions = 4 : i32} {
  func.func public @main(%x: tensor<8x4xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}"}) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
    return %sum : tensor<4xf32>
  }
}
"""


def test_a_program_without_parameters() -> None:
    """XLA states no shardings of none."""

    def ids() -> Any:
        return jax.shard_map(lambda: jax.lax.axis_index("x")[None], mesh=X, in_specs=(), out_specs=P("x"))()

    made = dxj.partition_module(stablehlo(lowered(ids, X, (), ())), partitions=4)
    assert (made.parameters, [a.shard_shape.dims for a in made.results]) == ((), [(1,)])
    assert run(made, ())[0].tolist() == [0, 1, 2, 3]


def test_annotations_of_gspmd() -> None:
    made = dxj.partition_module(GSPMD, partitions=4)
    assert [a.shard_shape.dims for a in made.parameters] == [(2, 4)]
    assert "all-reduce" in made.text
    assert_as_jax(lambda x: x.sum(0), made, (numbers(8, 4),))


LATE = """HloModule caller, num_partitions=2
inner { i = f32[8] parameter(0)
  ROOT n = f32[8] negate(i) }
outer { o = f32[8] parameter(0)
  c = f32[8] call(o), to_apply=inner, frontend_attributes={inlineable="xla_late",kept="1"}
  ROOT s = f32[8] add(c, o) }
ENTRY main {
  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  d = f32[8] add(x, x)
  c = f32[8] call(d), to_apply=outer, frontend_attributes={inlineable="xla_late"}
  ROOT r = f32[8] multiply(c, x)
}
"""


@pytest.mark.parametrize("form", ["HLO", "StableHLO", "proto"])
def test_calls_that_xla_compiles_apart_are_parts_of_the_module(form: str) -> None:
    given: str | bytes = LATE
    if form != "HLO":
        given = private_names.stablehlo_of_text(LATE)
    if form == "proto":
        given = private_names.proto_of_stablehlo(given)
    assert b"xla_late" in (given.encode() if isinstance(given, str) else given)
    made = dxj.partition_module(given, partitions=2)
    assert made.text.startswith("HloModule caller")
    assert "xla_late" not in made.text
    assert_as_jax(lambda x: (-2 * x + 2 * x) * x, made, (numbers(8),))


@pytest.mark.parametrize("f", [psum, einsum])
def test_one_partition(f: Callable[..., Any]) -> None:
    """Manual regions and annotations are identities."""
    one = mesh(1, 1)

    def whole(x: Any) -> Any:
        return jax.shard_map(lambda x: jax.lax.psum(x * 2, "x"), mesh=one, in_specs=P("x"), out_specs=P())(x)

    args, specs = ((numbers(8, 3),), (P("x"),)) if f is psum else ((numbers(2, 4, 4),) * 2, (P("x"),) * 2)
    made = dxj.partition_module(stablehlo(lowered(whole if f is psum else f, one, args, specs)), partitions=1)
    assert made.parameter_shardings == ("{replicated}",) * len(args)
    assert_as_jax((lambda x: x * 2) if f is psum else f, made, args)


def forms() -> dict[str, str | bytes]:
    """One program as everything that is accepted."""
    from jax import export  # no attribute of jax 0.6

    module = lowered(einsum, Y, (numbers(4, 8, 16), numbers(4, 16, 8)), (P("x", None, "y"), P("x", "y")))
    text = stablehlo(module)
    exported = export.export(jax.jit(einsum), platforms=["cpu"])(*jax.tree.leaves(module.in_avals))
    hlo = module.compiler_ir("hlo")
    assert hlo is not None
    proto = hlo.as_serialized_hlo_module_proto()
    options = private_names.private("HloPrintOptions")()
    return {
        "text": text,
        "bytecode": private_names.stablehlo_of_lowered(module),
        "portable": exported.mlir_module_serialized,
        "proto": proto,
        "HLO": hlo.get_hlo_module().to_string(options),
    }


@pytest.fixture(scope="module")
def each_form() -> dict[str, str | bytes]:
    return forms()


@pytest.mark.parametrize("form", ["text", "bytecode", "portable", "proto", "HLO"])
def test_every_form_of_a_module(each_form: dict[str, str | bytes], form: str) -> None:
    made = dxj.partition_module(each_form[form], partitions=8)
    assert_as_jax(einsum, made, (numbers(4, 8, 16), numbers(4, 16, 8)))
    if form != "portable":  # exported without shardings of its arguments
        assert [a.shard_shape.dims for a in made.parameters] == [(2, 8, 4), (2, 4, 8)]
    module = parse_module(made.text)
    dots = [module.frame(i) or "" for i in module.entry_computation if i.opcode == "dot"]
    assert dots
    assert all(frame.startswith(__file__) for frame in dots), (dots, made.text)


# --- what goes wrong

HLO = """HloModule wrong, num_partitions=4
ENTRY main {
  a = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  ROOT p = f32[8] CALL
}
"""
ABORTS = 'custom-call(a), custom_call_target="_SPMDInternalOp_RotateRight", backend_config="dimension=7,amount=-1"'


def test_xla_refuses_a_module() -> None:
    with pytest.raises(PartitioningError, match=r"XLA refuses the module: INVALID_ARGUMENT: .*device"):
        dxj.partition_module(GSPMD.replace("[4,1]<=[4]", "[8,1]<=[8]"), partitions=4)
    with pytest.raises(PartitioningError, match="expected attribute value"):
        dxj.partition_module(GSPMD[:200], partitions=4)
    with pytest.raises(PartitioningError, match="Unknown opcode"):
        dxj.partition_module(HLO.replace("CALL", "foo(a)"), partitions=4)


def test_a_crash_of_xla_costs_one_error() -> None:
    call = ABORTS + ", sharding={devices=[4]<=[4]}"
    dxj.partition_module(GSPMD.replace("@rows", "@before_the_crash"), partitions=4)
    waiting = SERVER.pid
    with pytest.raises(PartitioningError, match="XLA's partitioner ended with signal SIG"):
        dxj.partition_module(HLO.replace("CALL", call), partitions=4)
    made = dxj.partition_module(GSPMD.replace("@rows", "@after_the_crash"), partitions=4)
    assert not made.is_cached
    assert SERVER.pid == waiting


def test_a_failed_check_is_quoted() -> None:
    call = 'custom-call(a), custom_call_target="xla.sdy.GlobalToLocalShape"'
    with pytest.raises(PartitioningError, match="ended with signal SIGABRT: Check failed: "):
        dxj.partition_module(HLO.replace("CALL", call), partitions=4, use_shardy=True)


def test_a_lost_process_is_replaced() -> None:
    dxj.partition_module(GSPMD.replace("@rows", "@first"), partitions=4)
    assert SERVER.pid is not None
    os.kill(SERVER.pid, signal.SIGKILL)
    assert not dxj.partition_module(GSPMD.replace("@rows", "@second"), partitions=4).is_cached


def test_a_module_is_partitioned_once() -> None:
    module = GSPMD.replace("@rows", "@kept")
    made = dxj.partition_module(module, partitions=4)
    again = dxj.partition_module(module, partitions=4)
    assert (made.is_cached, again.is_cached) == (False, True)
    assert made == again
    assert not dxj.partition_module(module, partitions=4, replicas=2).is_cached


def test_time_limit() -> None:
    with time_limit(0.001), pytest.raises(TimeLimitError):
        dxj.partition_module(GSPMD.replace("@rows", "@late"), partitions=4)
    assert dxj.partition_module(GSPMD.replace("@rows", "@late"), partitions=4).partitions == 4


def test_only_dumps_of_the_given_module_are_read(tmp_path: Path) -> None:
    """XLA may compile parts of it as modules of their own, at the same time; the whole is the first one."""
    options = private_names.PartitionerOptions(4, 1, False, (True,), (True,))
    after = "spmd-partitioner.after_spmd-partitioning.before_call-inliner.hlo.pb"
    for name in (f"module_0004.part.0001.{after}", "module_0003.whole.before_optimizations.hlo.pb"):
        (tmp_path / name).touch()
    assert last_dump(str(tmp_path), options) is None
    (tmp_path / f"module_0003.whole.0001.{after}").touch()
    assert last_dump(str(tmp_path), options) == f"module_0003.whole.0001.{after}"


@pytest.mark.parametrize(
    ("made", "what"),
    [
        ("HloModule part\n\nENTRY main { x = f32[2] parameter(0)\n ROOT y = f32[2] negate(x) }", "it begins with"),
        (
            "HloModule m\n\nENTRY main { x = s32[2] parameter(0)\n ROOT y = f32[2] convert(x) }",
            "its parameters",
        ),
        ("HloModule m\n\nENTRY main { x = f32[2] parameter(0)\n ROOT y = f32[2,1] reshape(x) }", "its results are"),
        (
            "HloModule m\n\nENTRY main { x = f32[2] parameter(0)\n"
            ' ROOT y = f32[2] custom-call(x), custom_call_target="_xla_multi_module_call" }',
            "a call is compiled apart",
        ),
        ("HloModule m\n\nENTRY main { x = f32[2] parameter(0)\n ROOT y = f32[2] negate(x) }", ""),
    ],
)
def test_another_module_than_the_given_one_is_told(made: str, what: str) -> None:
    def description(text: str) -> private_names.HloDescription:
        module = private_names.private("hlo_module_from_text")(text)
        return private_names.describe_hlo(module.as_serialized_hlo_module_proto())

    given = description("HloModule m\n\nENTRY main { x = f32[4] parameter(0)\n ROOT y = f32[4] negate(x) }")
    found = difference(description(made), given)
    assert found.startswith(what)
    assert bool(found) == bool(what)


LEFT_OUT = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[4,4] parameter(0), sharding={devices=[2,1]<=[2]}
  c = f32[4,4] constant({...})
  ROOT r = f32[4,4] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
}
"""


def test_constants_that_the_text_leaves_out_are_not_partitioned() -> None:
    """XLA's parser gives them the bits 0, 1, 2, .. as values."""
    module = parse_module(LEFT_OUT, "m.hlo")
    for partition in (device_program, dxj.partition):
        with pytest.raises(UnsupportedOpError, match="the text elides the constant's value") as caught:
            partition(module)
        assert str(caught.value.location) == "m.hlo:4:16"
    with pytest.raises(PartitioningError, match="line 4 leaves out a constant's values as"):
        dxj.partition_module(LEFT_OUT, partitions=2)


def test_uneven_parts_are_refused() -> None:
    made = dxj.partition_module(GSPMD.replace("8x4", "10x4"), partitions=4, propagate_to_parameters=False)
    with pytest.raises(UnsupportedOpError, match=r"parameter 0 of the partitioned module: f32\[10,4\] cannot be cut"):
        _ = made.parameters


def test_options_of_other_counts_are_refused() -> None:
    with pytest.raises(ArgumentError, match="compile_options are of 0 replicas"):
        dxj.partition_module(GSPMD, partitions=4, compile_options=b"\0")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "jax: partitioning needs jaxlib, which is not installed: pip install 'distxla[jax]'"),
        ("raise OSError('no libcudart')", "cannot be imported: OSError: no libcudart"),
        ("", "has no jaxlib._jax.get_tfrt_cpu_client or jaxlib.xla_extension.get_tfrt_cpu_client: the name has moved"),
    ],
)
def test_missing_and_broken_jaxlib(tmp_path: Path, content: str | None, message: str) -> None:
    """In a process that has another jaxlib, or none."""
    hidden = "import sys; sys.modules['jaxlib'] = None\n" if content is None else ""
    if content is not None:
        (tmp_path / "jaxlib").mkdir()
        (tmp_path / "jaxlib" / "__init__.py").write_text("")
        (tmp_path / "jaxlib" / "_jax.py").write_text(content)
    script = (
        f"{hidden}import distxla.jax as dxj, distxla as dx\n"
        "try: dxj.partition_module('module {}', partitions=2)\n"
        "except dx.JaxError as error: print(error)\n"
        "print(len(dx.parse('HloModule m\\nENTRY e { ROOT p = f32[] parameter(0) }').computations))"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert message in first
    assert second == "1"


def test_the_reason_is_told_where_jaxlib_is_broken(tmp_path: Path) -> None:
    (tmp_path / "jaxlib").mkdir()
    (tmp_path / "jaxlib" / "__init__.py").write_text("raise ImportError('libcudart.so: cannot open')")
    path = tmp_path / "m.hlo"
    path.write_text(
        "HloModule m, num_partitions=2\nENTRY e { ROOT x = f32[8] parameter(0), sharding={devices=[2]<=[2]} }"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "distxla", "check", str(path)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "cannot be imported: ImportError: libcudart.so: cannot open" in done.stderr
    assert "distxla[jax]" not in done.stderr


def test_the_process_ends_with_this_one() -> None:
    """However it ends."""
    script = (
        "import distxla.jax as dxj, os, signal\nfrom distxla.jax.partitioner.partition_server import SERVER\n"
        f"dxj.partition_module({GSPMD.replace('@rows', '@ends')!r}, partitions=4)\n"
        "print(SERVER.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    watch = Stopwatch()
    while is_alive(pid):
        assert watch.seconds < 10
        time.sleep(0.01)


KILLED_WHILE = {
    "the process starts": "threading.Thread(target=kill, args=(lambda: SERVER.pid,)).start()",
    "XLA works": "threading.Thread(target=kill, args=(lambda: glob.glob('distxla-partition-*'),)).start()",
    "it takes the answer": "shutil.rmtree = lambda *_, **__: kill(lambda: True)",
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("step", KILLED_WHILE)
def test_no_files_are_left_where_the_parent_is_killed_while(step: str, tmp_path: Path) -> None:
    script = (
        "import distxla.jax as dxj, glob, os, shutil, signal, threading\n"
        "from distxla.jax.partitioner.partition_server import SERVER\n"
        "def kill(step):\n  while not step(): pass\n"
        "  print(SERVER.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{KILLED_WHILE[step]}\n"
        "for k in range(1000):\n"  # until it is killed: on a full machine the folder may be gone before it is seen
        f"  dxj.partition_module({GSPMD!r}.replace('@rows', f'@killed{{k}}'), partitions=4)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    pid, watch = int(done.stdout), Stopwatch()
    while is_alive(pid):
        assert watch.seconds < 20
        time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []


def is_alive(pid: int) -> bool:
    """Zombies, whose parent in this container may never ask for them, are not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_importing_distxla_imports_no_jax() -> None:
    script = (
        "import sys, distxla, distxla.jax, distxla.jax.partitioner.partitioning\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('jax', 'jaxlib')])\n"
        "from distxla.jax.private import names\n"
        "names.import_jaxlib()\n"  # as the partitioner's process does
        "print('jaxlib' in sys.modules, 'jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nTrue False\n"


def test_every_tested_version_is_in_the_table_of_versions() -> None:
    page = (Path(__file__).parents[3] / "docs" / "jax_versions.md").read_text()
    assert tuple(re.findall(r"^\| [\d.]+ \| ([\d.]+), Python", page, re.MULTILINE)) == each_version.RELEASES


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("CustomSPMDPartitioning", "jax.experimental.custom_partitioning"),
        ("InspectSharding", "jax.debug.inspect_array_sharding"),
    ],
)
def test_addresses_of_functions_of_another_process_are_refused(target: str, name: str) -> None:
    """XLA would call whatever lies there in the partitioner's process."""
    text = stablehlo(lowered(lambda x: x * 2, X, [numbers(8)], [P("x")]))
    line = next(line for line in text.splitlines() if "stablehlo.multiply" in line)
    call = f"stablehlo.custom_call @{target}({line.split()[0]})"
    attributes = 'backend_config = "94390021", has_side_effect = true'
    called = text.replace(line, f"{line}\n    %none = {call} {{{attributes}}} : (tensor<8xf32>) -> tuple<>")
    with pytest.raises(UnsupportedOpError, match=f"{target}: {name} needs a function of the process") as caught:
        dxj.partition_module(called, partitions=4)
    assert caught.value.__notes__[0].startswith("hint: ")
