"""`check --against`: is the module, for all inputs, what another one is that isn't sharded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distxla.cli import terminal
from distxla.errors import ArgumentError, DeadlockError
from distxla.time_limit import phase

if TYPE_CHECKING:
    from distxla.ir.module import Module
    from distxla.proofs.verdict import Verdict
    from distxla.without_cluster.programs import RunPrograms

DIFFERS = 1  # exit status, as of results that differ from expected ones


def proved(world: RunPrograms, path: str) -> Verdict:
    """The verdict on the world's only program; blocks, runs nothing.

    path: of a module for one device; of a global module, whose shardings are not looked at; or of a program of as many
    devices, with which the program of each device is compared. Raises ArgumentError where the modules don't fit.
    """
    from distxla.compiler.verify.verifier import verify_module
    from distxla.proofs.prove import Sharded, prove

    if len(world.programs) != 1 or len(world.programs[0].devices) != world.counts.devices:
        raise ArgumentError("--against takes one module, which all devices run")
    (program,) = world.programs
    with phase("reading the unsharded module"):
        unsharded, is_alone = _unsharded(path, world)
        verify_module(unsharded)
    whole = program.whole
    parameters, results = (None, None) if whole is None else (whole.parameters, whole.results)
    with phase("comparing with the unsharded module"):
        sharded = Sharded(program.module, world.counts, parameters, results)
        return prove(sharded, unsharded, is_alone=is_alone)


def _unsharded(path: str, world: RunPrograms) -> tuple[Module, bool]:
    """The module, and whether it is the program of each of as many devices as the world has."""
    from distxla.compiler.passes.manual_partitions import has_manual_regions
    from distxla.compiler.passes.partitioning import device_program, is_partitioned, partition_count
    from distxla.ir.effects import Effects
    from distxla.jax.partitioner.loading import load_module

    module = load_module(path)
    devices = world.counts.devices
    if has_manual_regions(module):
        whole = device_program(module)
        if whole is not None:
            return _of(path, whole.module, partition_count(module), devices)
    stated = (module.replica_count or 1) * (module.num_partitions or 1)
    acts = any(i.op.effects is Effects.COLLECTIVE for c in module.reached() for i in c)
    if stated > 1 and (is_partitioned(module) or acts):
        return _of(path, module, stated, devices)
    return module, False


def _of(path: str, module: Module, count: int, devices: int) -> tuple[Module, bool]:
    if count not in (1, devices):
        raise ArgumentError(
            f"{path} is a program of {count} devices, the module has {devices}: expected one of 1 device, or of as many"
        )
    return module, count > 1


def status(verdict: Verdict, *, strict: bool) -> int:
    """The exit status."""
    from distxla.proofs.verdict import Outcome

    if verdict.outcome is Outcome.DIFFERS:
        return DIFFERS
    return DeadlockError.exit_status if strict and verdict.outcome is Outcome.UNDECIDED else 0


def show(verdict: Verdict, path: str) -> None:
    """Print the verdict; to stderr where it isn't that all results are equal."""
    from distxla.proofs.verdict import Outcome

    label = {Outcome.EQUAL: "", Outcome.DIFFERS: "error: ", Outcome.UNDECIDED: "warning: "}[verdict.outcome]
    err = verdict.outcome is not Outcome.EQUAL
    terminal.write_at(verdict.location, f"{label}against {path}: {verdict.text}", err=err, shows_frame=False)


__all__ = ["proved", "show", "status"]
