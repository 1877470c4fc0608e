"""Functions of the driver that devices call (rewrites/host_calls.py): order, results, errors, limits, refusals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.verify.visible_obstacles import refuse, visible_obstacles
from distxla.rewrites.driver_steps import after_driver_steps
from distxla.runtime.cluster import Cluster
from distxla.text.printer import print_module
from tests.runtime.arrays.host_calls_cases import ARGS, CALLS, PYTHON, Calls, check_results

LOOP = f"""HloModule loop
more {{
  p = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(30)
  ROOT c = pred[] compare(i, n), direction=LT
}}
odd {{
  x = f32[1000] parameter(0)
  ROOT y = f32[1000] custom-call(x), {PYTHON % 1}
}}
even {{
  x = f32[1000] parameter(0)
  told = () custom-call(x), {PYTHON % 0}
  one = f32[] constant(1)
  ones = f32[1000] broadcast(one), dimensions={{}}
  ROOT y = f32[1000] add(x, ones)
}}
body {{
  p = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[1000] get-tuple-element(p), index=1
  two = s32[] constant(2)
  parity = s32[] remainder(i, two)
  y = f32[1000] conditional(parity, x, x), branch_computations={{even, odd}}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT q = (s32[], f32[1000]) tuple(j, y)
}}
ENTRY main {{
  x = f32[1000] parameter(0)
  zero = s32[] constant(0)
  p = (s32[], f32[1000]) tuple(zero, x)
  w = (s32[], f32[1000]) while(p), condition=more, body=body
  ROOT r = f32[1000] get-tuple-element(w), index=1
}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with dx.Cluster(partitions=2) as opened:
        yield opened


@pytest.mark.cluster
def test_functions_get_arrays_and_their_results_go_on(cluster: Cluster) -> None:
    calls = Calls()
    step = cluster.compile(dx.parse(CALLS), host_calls=calls.functions())
    for _ in range(5):
        check_results(step(ARGS))
    for device in range(2):
        assert [number for number, of in calls.seen if of == device] == [0, 1, 2] * 5
    calls.seen.clear()
    step(ARGS, repeat=3)
    assert [number for number, of in calls.seen if of == 1] == [0, 1, 2] * 3


@pytest.mark.cluster
def test_an_executable_keeps_the_module_that_the_drivers_steps_give(cluster: Cluster) -> None:
    module = dx.parse(CALLS)
    step = cluster.compile(module, host_calls=Calls().functions(), reduction_order="ring")
    assert step.module is not None
    assert print_module(step.module) == print_module(after_driver_steps(module, Calls().functions(), "ring").module)
    check_results(step(ARGS))
    assert cluster.compile(module, host_calls=Calls().functions(), reduction_order="ring").cached
    assert cluster.compile(step.module).cached


@pytest.mark.cluster
def test_calls_in_loops_and_branches_keep_their_order() -> None:
    seen: list[float] = []

    def told(x: Any) -> None:
        seen.append(float(x[0]))

    def doubled(x: Any) -> Any:
        seen.append(-float(x[-1]))
        return x + np.float32(1)

    with dx.Cluster() as cluster:
        step = cluster.compile(dx.parse(LOOP), host_calls={0: told, 1: doubled})
        result = np.asarray(step([[np.zeros(1000, np.float32)]])[0][0])
    assert result.tolist() == [30.0] * 1000
    assert seen == [float(i) if i % 2 == 0 else -float(i) for i in range(30)]


@pytest.mark.cluster
def test_a_call_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that ends starts none; programs that were called without waiting run then."""

    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    calls = Calls()
    with dx.Cluster(partitions=2) as cluster:
        plain = cluster.compile(dx.parse("HloModule m, num_partitions=2\nENTRY e {\n  ROOT r = s32[] constant(3)\n}\n"))
        step = cluster.compile(dx.parse(CALLS), host_calls=calls.functions())
        plain([[], []])
        monkeypatch.setattr(threading.Thread, "start", refuses)
        check_results(step(ARGS))
        monkeypatch.undo()
    with dx.Cluster(partitions=2) as cluster:  # whose threads end without a call
        before = set(threading.enumerate())
        cluster.compile(dx.parse(CALLS), host_calls=calls.functions())
        waiting = [t for t in set(threading.enumerate()) - before if t.name.startswith("distxla-host-calls-")]
    for thread in waiting:
        thread.join(60)
    assert len(waiting) == 2
    assert not any(thread.is_alive() for thread in waiting)


@pytest.mark.cluster
def test_an_exception_ends_the_call_and_names_its_line(cluster: Cluster) -> None:
    calls = Calls()

    def fails(x: Any) -> Any:
        raise KeyError("nothing there")

    def fails_late(x: Any) -> None:
        time.sleep(0.1)
        error = KeyError("too late")
        error.add_note("as JAX adds one to what its functions raise")
        raise error

    for number, function, instruction, text in ((1, fails, "y", "nothing there"), (0, fails_late, "told", "too late")):
        step = cluster.compile(dx.parse(CALLS), host_calls=calls.functions() | {number: function})
        with pytest.raises(dx.ExecutionError) as caught:
            step(ARGS)
        line = function.__code__.co_firstlineno
        error = str(caught.value)
        assert f"{instruction} on device" in error
        assert f"host call {number} raised KeyError: '{text}' ({__file__}:" in error
        assert int(error.split(f"({__file__}:")[1].split(")")[0]) in (line + 1, line + 4)
        assert caught.value.location is not None
        assert "Traceback" in "".join(caught.value.__notes__)
        check_results(cluster.compile(dx.parse(CALLS), host_calls=calls.functions())(ARGS))


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[:1], r"host call 1 returned float32\[1,3\] as value 0 where f32\[2,3\] is due"),
        (lambda x: x.astype(np.float64), r"returned float64\[2,3\] as value 0"),
        (lambda x: (x, x), "returned 2 values where 1 are due"),
        (lambda x: None, "returned 0 values where 1 are due"),
    ],
)
def test_other_results_are_refused(cluster: Cluster, function: Callable[..., Any], message: str) -> None:
    step = cluster.compile(dx.parse(CALLS), host_calls=Calls().functions(f1=function))
    with pytest.raises(dx.ExecutionError, match=message):
        step(ARGS)


@pytest.mark.cluster
def test_a_function_cannot_run_programs(cluster: Cluster) -> None:
    inner = cluster.compile(dx.parse(CALLS), host_calls=Calls().functions())
    step = cluster.compile(dx.parse(CALLS), host_calls=Calls().functions(f1=lambda x: inner(ARGS)))
    with pytest.raises(dx.ExecutionError, match="it cannot run a program on a cluster itself"):
        step(ARGS)


@pytest.mark.cluster
def test_a_function_that_does_not_return_meets_the_time_limit(cluster: Cluster) -> None:
    go_on = threading.Event()
    with_result = cluster.compile(dx.parse(CALLS), host_calls=Calls().functions(f1=lambda x: go_on.wait(20) and x))
    with pytest.raises(dx.TimeLimitError) as caught:
        with_result(ARGS, time_limit=0.3)
    diagnosis = caught.value.diagnosis
    assert diagnosis is not None
    state = diagnosis.devices[0]
    assert (state.instruction, state.opcode) == ("y", "custom-call")
    assert state.host == "the function of the driver that it has called"
    fine = cluster.compile(dx.parse(CALLS), host_calls=Calls().functions())
    with pytest.raises(dx.TimeLimitError, match="a function that device 0 has called still ran"):
        fine(ARGS, time_limit=0.3)
    go_on.set()
    check_results(fine(ARGS))
    slow = cluster.compile(dx.parse(CALLS), host_calls=Calls().functions(f0=lambda x: time.sleep(0.2)))
    begin = time.monotonic()
    check_results(slow(ARGS))
    assert time.monotonic() - begin >= 0.2  # no result waits for it, but the call does


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("host_calls", "message"),
    [
        (None, "told calls function 0 of the process that lowered the program .* but no host_calls were given"),
        ({0: print}, r"y calls function 1 .* but host_calls has 0: .*host_calls=\{1: function\}"),
        ({0: 3}, r"host_calls\[0\]: int is not callable"),
        ({0.5: print}, "expected a number or the name of a target, found 0.5"),
        ([print], "expected functions by number or target name, found list"),
    ],
)
def test_missing_functions_are_named(cluster: Cluster, host_calls: Any, message: str) -> None:
    with pytest.raises(dx.ArgumentError, match=message):
        cluster.compile(dx.parse(CALLS), host_calls=host_calls)


def test_other_executors_say_who_can_call() -> None:
    for target, text in (
        ("xla_ffi_partitioned_python_cpu_callback", "Cluster.compile"),
        ("xla_python_cpu_callback", "an older JAX names its function by an address"),
        ("xla_ffi_python_gpu_callback", "lower it for the platform cpu"),
    ):
        module = dx.parse(CALLS.replace("xla_ffi_python_cpu_callback", target))
        with pytest.raises(dx.UnsupportedOpError, match=text):
            refuse(module, visible_obstacles(module))
