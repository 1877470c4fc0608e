"""Custom-calls of the user's own: C functions and Python callables, compiled and by the reference, and their errors."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.cache_key import program_key
from distxla.compiler.obstacles import obstacles
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.runtime.cluster import Cluster
from distxla.testing import ClusterPool
from tests.runtime.shared_library import build
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster
DEVICES = 2
X, Y = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)

CALL = """HloModule call
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  made = f32[4] custom-call(x, y), custom_call_target="TARGET", metadata={source_file="model.py" source_line=7}
  ROOT r = f32[4] all-reduce(made), replica_groups={{0,1}}, to_apply=add
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[Cluster]:
    with cluster_pool.lease(replicas=DEVICES) as opened:
        yield opened


@pytest.fixture(autouse=True)
def registrations_end_with_the_test() -> Iterator[None]:
    from distxla.ops.custom_calls import user

    yield
    user.registered.clear()


def both(cluster: Cluster, text: str, *args: Any) -> list[list[Any]]:
    """Device 0's results of the compiled program and of the reference."""
    module = dx.parse(text, "call.hlo")
    compiled = [np.asarray(leaf) for leaf in cluster.compile(module)(list(args))[0] if leaf.hlo_shape.is_array]
    other = run_reference(module, [list(args)] * DEVICES, Counts(DEVICES, 1))[0]
    return [compiled, [leaf for leaf in other if leaf is not None]]


def called(target: str) -> str:
    return CALL.replace("TARGET", target)


def entry(*lines: str) -> str:
    return "ENTRY main {\n  " + "\n  ".join(lines) + "\n}\n"


# --- C functions


def test_a_c_function(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("saxpy", library=library)
    for (result,) in both(cluster, called("saxpy"), X, Y):
        assert np.array_equal(result, DEVICES * (2 * X + Y))


def test_the_example_of_the_specification(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("the page's", library=str(library), symbol="myfunc")
    text = entry(
        "x = f32[2] constant({1, 2})",
        "y = f32[2,3] constant({{10, 20, 30}, {40, 50, 60}})",
        'ROOT z = f32[3,3] custom-call(x, y), custom_call_target="the page\'s"',
    )
    for (result,) in both(cluster, text):
        assert np.array_equal(result, np.array([[42, 1, 2], [3, 4, 5], [6, 7, 8]], np.float32))


def test_tuples_are_tables_and_tokens_null(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("nested", library=library)
    text = entry(
        "a = f32[2] parameter(0)",
        "n = s32[] parameter(1)",
        "t = token[] after-all()",
        "inner = (s32[], f32[2]) tuple(n, a)",
        "given = (f32[2], (s32[], f32[2])) tuple(a, inner)",
        'ROOT z = ((f32[2], s32[]), f32[2]) custom-call(given, t), custom_call_target="nested"',
    )
    a = np.array([1, 2], np.float32)
    for first, second, third in both(cluster, text, a, np.int32(4)):
        assert np.array_equal(first, a + 1)
        assert second == 40
        assert np.array_equal(third, -a)


def test_arrays_are_handed_over_in_the_stated_layouts(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("in_memory", library=library)
    text = entry(
        "x = f32[2,3]{1,0} parameter(0)",
        "ROOT z = (f32[2,3]{1,0}, f32[2,3]{0,1}) custom-call(x), "
        'custom_call_target="in_memory", operand_layout_constraints={f32[2,3]{0,1}}',
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for first, second in both(cluster, text, x):
        assert np.array_equal(first.ravel(), x.ravel(order="F"))
        assert np.array_equal(second, np.arange(6, dtype=np.float32).reshape((2, 3), order="F"))


def test_an_aliased_operand_is_where_the_result_is(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("in_place", library=library, symbol="add_in_place")
    text = entry(
        "x = f32[4] parameter(0)",
        'ROOT z = f32[4] custom-call(x), custom_call_target="in_place", output_to_operand_aliasing={{}: (0, {})}',
    )
    for (result,) in both(cluster, text, X):
        assert np.array_equal(result, X + 1)


def test_a_buffer_is_changed_in_place_from_iteration_to_iteration(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("in_place", library=library, symbol="add_in_place")
    same = "output_to_operand_aliasing={{}: (0, {})}"
    text = f"""
c {{ p = (s32[], b(f32[4])) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT l = pred[] compare(i, n), direction=LT }}
b {{ p = (s32[], b(f32[4])) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  o = s32[] constant(1)
  b = b(f32[4]) get-tuple-element(p), index=1
  w = b(f32[4]) custom-call(b), custom_call_target="in_place", {same}
  j = s32[] add(i, o)
  ROOT t = (s32[], b(f32[4])) tuple(j, w) }}
""" + entry(
        "x = f32[4] parameter(0)",
        "z = s32[] constant(0)",
        f'b = b(f32[4]) custom-call(x), custom_call_target="Pin", {same}',
        "t = (s32[], b(f32[4])) tuple(z, b)",
        "w = (s32[], b(f32[4])) while(t), condition=c, body=b",
        "g = b(f32[4]) get-tuple-element(w), index=1",
        f'u = f32[4] custom-call(g), custom_call_target="Unpin", {same}',
        'e = b(f32[4]) custom-call(), custom_call_target="CreateBuffer"',
        f'f = b(f32[4]) custom-call(e), custom_call_target="in_place", {same}',
        f'v = f32[4] custom-call(f), custom_call_target="Unpin", {same}',
        "ROOT r = (f32[4], f32[4], f32[4]) tuple(u, v, x)",
    )
    for in_loop, from_zero, untouched in both(cluster, text, X):
        assert np.array_equal(in_loop, X + 5)
        assert np.array_equal(from_zero, np.ones(4, np.float32))
        assert np.array_equal(untouched, X)


def test_in_a_loop(cluster: Cluster, library: Path) -> None:
    dx.register_custom_call("saxpy", library=library)
    text = """
c { p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT }
b { p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  o = s32[] constant(1)
  x = f32[4] get-tuple-element(p), index=1
  y = f32[4] custom-call(x, x), custom_call_target="saxpy"
  j = s32[] add(i, o)
  ROOT t = (s32[], f32[4]) tuple(j, y) }
""" + entry(
        "x = f32[4] parameter(0)",
        "z = s32[] constant(0)",
        "t = (s32[], f32[4]) tuple(z, x)",
        "w = (s32[], f32[4]) while(t), condition=c, body=b",
        "ROOT r = f32[4] get-tuple-element(w), index=1",
    )
    for (result,) in both(cluster, text, X):
        assert np.array_equal(result, 27 * X)


# --- Python callables


def test_a_callable(cluster: Cluster) -> None:
    factor = 3
    dx.register_custom_call("f", lambda x, y: factor * x + y)  # sent with what it refers to
    for (result,) in both(cluster, called("f"), X, Y):
        assert np.array_equal(result, DEVICES * (3 * X + Y))


def test_tuples_tokens_constants_and_every_width(cluster: Cluster) -> None:
    def f(pair: Any, token: Any, flag: Any) -> Any:
        assert token is None
        assert not pair[0].flags.writeable
        return pair[0].astype(np.float32), ((pair[1] + pair[1]).astype(pair[1].dtype), bool(flag))

    dx.register_custom_call("f", f)
    text = entry(
        "a = bf16[3] parameter(0)",
        "b = s4[0,2] parameter(1)",
        "p = pred[] constant(true)",
        "t = token[] after-all()",
        "pair = (bf16[3], s4[0,2]) tuple(a, b)",
        'ROOT z = (f32[3], (s4[0,2], pred[])) custom-call(pair, t, p), custom_call_target="f"',
    )
    module = dx.parse(text)
    a, b = (leaf.dtype.dtype for p in module.entry_computation.parameters[:2] for leaf in p.shape.leaves())
    for first, second, third in both(cluster, text, np.array([1, 2, 3], a), np.empty((0, 2), b)):
        assert np.array_equal(first, [1, 2, 3])
        assert second.shape == (0, 2)
        assert third


def only_on_device_1(x: Any, y: Any) -> Any:
    """Fails where y holds a 1."""
    if y[0] == 1:
        raise ValueError(f"no good: {y[0]}")
    return x


def test_an_exception_is_told_by_device_instruction_and_traceback(cluster: Cluster) -> None:
    dx.register_custom_call("check", only_on_device_1)
    step = cluster.compile(dx.parse(called("check"), "call.hlo"))
    args = [[X, np.full(4, device, np.float32)] for device in range(DEVICES)]
    with pytest.raises(dx.ExecutionError, match='made on device 1: "check" raised ValueError: no good: 1') as caught:
        step(args, time_limit=20)  # device 0 waits in the all-reduce and is released
    message = str(caught.value)
    assert message.startswith("call.hlo:8:")
    assert "from model.py:7" in message
    (note,) = caught.value.__notes__
    assert "in only_on_device_1" in note
    assert "raise ValueError" in note
    again = cluster.compile(dx.parse(called("check"), "again.hlo"))
    assert again.cached
    with pytest.raises(dx.ExecutionError, match=r"^again\.hlo:8:"):
        again(args, time_limit=20)
    outs = step([X, np.zeros(4, np.float32)])  # and the cluster goes on
    assert np.array_equal(np.asarray(outs[1][0]), DEVICES * X)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, y: x.astype(np.float64), r'"f" returned float64\[4\] where f32\[4\] is due'),
        (lambda x, y: x[:3], r'"f" returned float32\[3\] where f32\[4\] is due'),
        (lambda x, y: (x, y), r'"f" returned object|"f" returned float32\[2,4\] where f32\[4\] is due'),
        (lambda x, y: [[1], [1, 2]], r'"f" returned no f32\[4\]'),
        (lambda x, y: x.__setitem__(0, 1), "raised ValueError: assignment destination is read-only"),
        (lambda x: x, "raised TypeError"),
    ],
)
def test_what_a_callable_may_not_do(cluster: Cluster, function: Any, message: str) -> None:
    dx.register_custom_call("f", function)
    module = dx.parse(called("f"))
    with pytest.raises(dx.ExecutionError, match=message):
        cluster.compile(module)([X, Y])
    with pytest.raises(dx.ExecutionError, match=message):
        run_reference(module, [[X, Y]] * DEVICES, Counts(DEVICES, 1))


def test_a_call_whose_result_nobody_reads_is_made(cluster: Cluster, tmp_path: Path) -> None:
    def note(x: Any) -> Any:
        (tmp_path / "called").touch()
        return x

    dx.register_custom_call("note", note)
    text = entry(
        "x = f32[4] parameter(0)", 'n = f32[4] custom-call(x), custom_call_target="note"', "ROOT r = f32[4] negate(x)"
    )
    cluster.compile(dx.parse(text))([X])
    assert (tmp_path / "called").exists()


# --- registration


def test_a_new_registration_is_for_programs_compiled_afterwards(cluster: Cluster, library: Path) -> None:
    module = dx.parse(called("f"))
    dx.register_custom_call("f", lambda x, y: x)
    first = cluster.compile(module)
    dx.register_custom_call("f", library=library, symbol="saxpy")
    second = cluster.compile(module)
    assert np.array_equal(np.asarray(first([X, Y])[0][0]), DEVICES * X)
    assert np.array_equal(np.asarray(second([X, Y])[0][0]), DEVICES * (2 * X + Y))


def test_the_cache_tells_kinds_of_routines_apart(library: Path) -> None:
    module = dx.parse(called("f"))
    keys = {program_key(module, Counts(2, 1))}
    dx.register_custom_call("f", lambda x, y: x)
    keys.add(program_key(module, Counts(2, 1)))
    dx.register_custom_call("f", library=library, symbol="saxpy")
    keys.add(program_key(module, Counts(2, 1)))
    assert len(keys) == 3
    dx.register_custom_call("unrelated", lambda: 0)
    assert program_key(module, Counts(2, 1)) in keys


def test_registrations_that_are_refused(library: Path) -> None:
    for arguments, message in [
        ({"name": "f", "library": "/nowhere/libf.so"}, "cannot load /nowhere/libf.so"),
        ({"name": "f", "library": library, "symbol": "g"}, "has no symbol 'g'"),
        ({"name": "f"}, "give either a callable, or library= and symbol="),
        ({"name": "f", "function": abs, "library": library}, "give either"),
        ({"name": "f", "function": abs, "stub": "zeros"}, "give either"),
        ({"name": "f", "stub": "ones"}, "stub='ones': expected \"zeros\""),
        ({"name": "f", "stub": "zeros", "symbol": "g"}, "a stub has neither symbol= nor stages="),
        ({"name": "TopK", "stub": "zeros"}, "comes with distxla"),
        ({"name": "f", "function": 3}, "int is not callable"),
        ({"name": "", "function": abs}, "needs a name"),
        ({"name": "TopK", "function": abs}, "comes with distxla"),
    ]:
        with pytest.raises(dx.ArgumentError, match=message):
            dx.register_custom_call(**arguments)  # type: ignore[arg-type]
    with pytest.raises(dx.ArgumentError, match="not registered"):
        dx.unregister_custom_call("f")


def test_a_callable_that_cannot_be_sent_is_told_before_anything_runs(cluster: Cluster) -> None:
    lock = __import__("threading").Lock()
    dx.register_custom_call("f", lambda x, y: lock and x)
    with pytest.raises(dx.ArgumentError, match=r'"f": the callable cannot be sent to the replicas'):
        cluster.compile(dx.parse(called("f")))([X, Y])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("called_computations={add}, api_version=API_VERSION_STATUS_RETURNING", "calls computations, which"),
        ("called_computations={add}", "calls computations, which a registered routine cannot be given"),
        ("operand_layout_constraints={f32[4]{0:T(8)}, f32[4]{0}}", "with an array in tiles"),
        ("api_version=API_VERSION_UNSPECIFIED", "API_VERSION_UNSPECIFIED, which does not say how to call it"),
    ],
)
def test_calls_that_a_c_function_cannot_have(library: Path, attributes: str, message: str) -> None:
    dx.register_custom_call("saxpy", library=library)
    text = called("saxpy").replace('target="saxpy"', f'target="saxpy", {attributes}')
    ((_, why),) = obstacles(dx.parse(text))
    assert message in why


def test_a_module_cannot_name_a_library(library: Path) -> None:
    ((_, why),) = obstacles(dx.parse(called(f"{library}:saxpy")))
    assert why.startswith("nothing executes the custom-call target")
    assert "dx.register_custom_call or --custom-call" in why


# --- crashes


def test_a_crash_is_told_by_signal_instruction_and_source_line(library: Path) -> None:
    dx.register_custom_call("crash", library=library)
    with Cluster(DEVICES) as cluster:
        step = cluster.compile(dx.parse(called("crash"), "call.hlo"))
        with pytest.raises(dx.ReplicaLostError) as caught:
            step([X, Y])
    message = str(caught.value)
    assert message.startswith("call.hlo:8:3: lost: the replica of device ")
    assert "ended during a call by SIGSEGV (at address 0x0) in made" in message
    assert "from model.py:7" in message
    assert caught.value.exit_status == 4


def test_a_replica_that_is_killed_is_told_with_what_it_ran(library: Path) -> None:
    dx.register_custom_call("forever", library=library)
    with Cluster(DEVICES) as cluster:
        step = cluster.compile(dx.parse(called("forever"), "call.hlo"))
        pid = cluster.replicas_info[1][2]
        import threading

        timer = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
        timer.start()
        watch = Stopwatch()
        with pytest.raises(dx.ReplicaLostError) as caught:
            step([X, Y])
        assert watch.seconds < 15  # device 0 never ends, and is made to
    message = str(caught.value)
    # the signal is told where the kernel keeps it (Linux 6.15), or the process's parent has not asked for it yet
    told = rf"the replica of device 1 \(process {pid}\) ended during a call( by SIGKILL)? in made"
    assert re.search(told, message), message
    assert "device 0 computes made (call.hlo:8:3)" in message


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("file", ["first.hlo", "from_the_cache.hlo"])
def test_a_time_limit_says_what_computes(library: Path, file: str) -> None:
    dx.register_custom_call("forever", library=library)
    text = entry("x = f32[4] parameter(0)", 'ROOT made = f32[4] custom-call(x), custom_call_target="forever"')
    with Cluster(1) as cluster:
        step = cluster.compile(dx.parse(text, file))
        with pytest.raises(dx.TimeLimitError, match=rf"device 0 computes made \({file}:3:8\)"):
            step([X], time_limit=1)
