"""Programs written as LLVM text, for tests of the runtime that must not depend on the compiler."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from distxla.ir.counts import Counts
from distxla.ir.element_type import F32
from distxla.ir.shape import Shape
from distxla.program.artifact import CompiledProgram
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.cluster import Cluster
from distxla.targets.native.finish import compile_object
from distxla.targets.registry import native_target
from distxla.targets.x86_64.link import link

F32_4 = Shape(F32, (4,))

ADD_ONE = """
define i32 @distxla_entry(ptr %c) {
  %parameters_at = getelementptr i8, ptr %c, i64 16
  %parameters = load ptr, ptr %parameters_at
  %results_at = getelementptr i8, ptr %c, i64 24
  %results = load ptr, ptr %results_at
  %memories = load ptr, ptr %c
  %device_at = getelementptr i8, ptr %c, i64 64
  %device = load i32, ptr %device_at
  %index = zext i32 %device to i64
  %memory_at = getelementptr ptr, ptr %memories, i64 %index
  %memory = load ptr, ptr %memory_at
  %source = load i64, ptr %parameters
  %target = load i64, ptr %results
  %from = getelementptr i8, ptr %memory, i64 %source
  %to = getelementptr i8, ptr %memory, i64 %target
  %value = load <4 x float>, ptr %from
  %sum = fadd <4 x float> %value, <float 1.0, float 1.0, float 1.0, float 1.0>
  store <4 x float> %sum, ptr %to
  ret i32 0
}
"""

# device @failing returns @status at once, the others run until the abort flag ends them, at which they look once in a
# millisecond: for the processor there are other tests
WAIT = """
define i32 @distxla_entry(ptr %c) {
  %time = alloca [2 x i64]
  store [2 x i64] [i64 0, i64 1000000], ptr %time
  %device_at = getelementptr i8, ptr %c, i64 64
  %device = load i32, ptr %device_at
  %mine = icmp eq i32 %device, FAILING
  br i1 %mine, label %fail, label %wait
fail:
  ret i32 STATUS
wait:
  %control_at = getelementptr i8, ptr %c, i64 48
  %control = load ptr, ptr %control_at
  %abort_at = getelementptr i8, ptr %control, i64 64
  br label %look
look:
  %r = call i64 asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"(i64 35, ptr %time, i64 0)
  %abort = load atomic i32, ptr %abort_at acquire, align 4
  %released = icmp ne i32 %abort, 0
  br i1 %released, label %done, label %look
done:
  ret i32 1
}
"""

ENDLESS = """
define i32 @distxla_entry(ptr %c) {
  br label %again
again:
  %r = call i64 asm sideeffect "syscall", "={rax},{rax},~{rcx},~{r11},~{memory}"(i64 34)
  br label %again
}
"""


@cache
def program(
    text: str, replicas: int, parameters: tuple[Shape, ...] = (), result: Shape | None = None
) -> CompiledProgram:
    """The text, compiled and linked, as a program of `replicas` devices."""
    image = link([compile_object(text)])
    return CompiledProgram(
        name="hand-made",
        image=image,
        counts=Counts(replicas, 1),
        parameters=parameters,
        result=Shape.tuple(()) if result is None else result,
        arena_bytes=64,
        target=native_target().name,
    )


def add_one(replicas: int) -> CompiledProgram:
    """f32[4] -> f32[4], on each device by itself."""
    return program(ADD_ONE, replicas, (F32_4,), F32_4)


def waiting(replicas: int, failing: int = -1, status: int = 0) -> CompiledProgram:
    """Every device waits for the abort flag, but `failing` returns `status` at once."""
    return program(WAIT.replace("FAILING", str(failing)).replace("STATUS", str(status)), replicas)


def endless(replicas: int) -> CompiledProgram:
    """Never returns, whatever happens. It sleeps."""
    return program(ENDLESS, replicas)


def adopted(cluster: Cluster, program: CompiledProgram, devices: Iterable[int] | None = None) -> Executable:
    """An executable of a program that the cluster hasn't compiled, for its counts."""
    chosen = tuple(range(cluster.devices)) if devices is None else tuple(devices)
    return Executable(cluster, program, chosen, 0.0, False)
