"""Targets by name and by backend. A target is a folder of this package, so a new one changes nothing here.

Light: the command line asks for the backends before it knows its command.
"""

from __future__ import annotations

import glob
import importlib
import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from distxla import targets
from distxla.errors import ArgumentError, CompileError
from distxla.targets.local_rank import ALONE, LocalRank

if TYPE_CHECKING:
    from distxla.program.artifact import CompiledProgram
    from distxla.targets.target import Atomics, Host, KernelErrorHandler, LoadedImage, Target


SHARED = "native"  # the folder of what the targets of processors share
GPU = "gpu"  # the backend that some machines have
REFERENCE = "reference"  # the command line's word for what is no backend of a cluster


@cache
def target_names() -> list[str]:
    """Of all targets."""
    packages = (os.path.dirname(path) for folder in targets.__path__ for path in glob.iglob(f"{folder}/*/__init__.py"))
    return sorted({os.path.basename(package) for package in packages} - {SHARED})


@cache
def target_named(name: str) -> Target:
    """CompileError where no target has that name."""
    if name not in target_names():
        raise CompileError(f"no target {name!r}; the targets are {', '.join(target_names())}")
    found: Target = importlib.import_module(f"{targets.__name__}.{name}").TARGET
    return found


@cache
def native_target() -> Target:
    """The one of this machine's processor; CompileError where there is none."""
    machine = os.uname().machine
    if machine not in target_names():
        raise CompileError(f"distxla has no target for this processor ({machine})")
    return target_named(machine)


def backends() -> list[str]:
    """The backends that a cluster's replicas can run on: those that the targets serve."""
    served = (target_named(name).backend for name in target_names())
    return sorted({backend for backend in served if backend is not None})


def named_backends() -> list[str]:
    """Those that can be asked for, also where nothing serves them here: `target_of_backend` says why."""
    return sorted({*backends(), GPU})


def target_of_backend(backend: str) -> str:
    """The target that serves a backend: this processor's where it does, as processors' targets share one.

    ArgumentError where no cluster runs on that; CompileError as native_target.
    """
    served = backends()
    if backend == GPU and GPU not in served:
        raise ArgumentError(
            "the gpu backend is not available: there is no /dev/nvidiactl, so no driver of NVIDIA's; "
            f"use {' or '.join(served)}, DISTXLA_GPU_DRIVER=cuda where there is one all the same, or "
            "DISTXLA_GPU_DRIVER=emulated, with which the processor runs kernels for GPUs"
        )
    if backend == REFERENCE:
        raise ArgumentError(
            f"backend {REFERENCE!r} has no cluster: it runs in this process, by `distxla.reference(module, args)` or "
            f"`distxla run --backend {REFERENCE}`"
        )
    if backend not in served:
        raise ArgumentError(f"backend {backend!r}: a cluster's replicas run on {' or '.join(map(repr, served))}")
    if backend == native_target().backend:
        return native_target().name
    return next(name for name in target_names() if target_named(name).backend == backend)


def environment_of_targets() -> dict[str, str | None]:
    """The variables of this process's environment that the code of some target depends on."""
    return {name: os.environ.get(name) for target in target_names() for name in target_named(target).variables}


def host() -> Host:
    """The machine that this process runs on."""
    return native_target().host


def load_image(
    program: CompiledProgram,
    resolve: Callable[[str], int] | None = None,
    file: tuple[int, int] | None = None,
    report: KernelErrorHandler | None = None,
    local: LocalRank = ALONE,
) -> LoadedImage:
    """Make a program of any target ready to run in this process; see `targets.target.Loader`."""
    return target_named(program.target).loader.load_image(program, resolve, file, report, local)


def resolve_import(name: str) -> int:
    """The address of a function of this machine's libraries; CompileError for a name that none of them has."""
    return native_target().loader.resolve_import(name)


def atomics() -> Atomics:
    """Access to shared words of this process, in acquire, release and seq_cst order."""
    return host().atomics()


def sleep_on(address: int, value: int, seconds: float) -> None:
    """Sleep while the u32 at an address of this process is `value`, at most `seconds`; may return early."""
    host().sleep_on(address, value, seconds)


def wake_all(address: int) -> int:
    """Wake all threads that sleep on the u32 at an address of this process, which was changed before; how many."""
    return host().wake_all(address)
