"""Questions about values: the contexts that they name, where they come from, on which devices they are equal."""

from __future__ import annotations

from distxla.ir.instruction import Instruction
from distxla.scheduler.simulation.deferred import Deferred, force, leaf_values, pending, uniformity_of
from distxla.scheduler.simulation.static_values import PerDeviceConstant, Uniformity, Value, first_cause, meet
from distxla.scheduler.simulation.traces import Ticket, Tickets


def tickets_of(value: Value) -> Tickets:
    """The transfers that a context names."""
    if isinstance(value, Ticket):
        return value
    if isinstance(value, PerDeviceConstant):
        return {device: own for device, own in value.by_device.items() if isinstance(own, Ticket)}
    return None


def all_leaves(value: Deferred) -> list[Value]:
    force(value)
    while (missing := next(pending(value), None)) is not None:
        force(missing)
    return list(leaf_values(value))


def holds_ticket(value: Deferred) -> bool:
    return any(tickets_of(leaf) for leaf in all_leaves(value) if isinstance(leaf, Ticket | PerDeviceConstant))


def cause_in(value: Deferred) -> Instruction | None:
    """The origin of a value that differs from device to device, or is unknown."""
    found = first_cause(all_leaves(value))
    return None if found is None else found.cause


def uniformity_in(value: Deferred, devices: frozenset[int]) -> Uniformity:
    """The uniformity classes by which the whole value is the same."""
    return meet([uniformity_of(leaf) for leaf in all_leaves(value)], devices)


def partition(uniformity: Uniformity, devices: frozenset[int]) -> int:
    """The number of uniformity classes. More classes say less."""
    if uniformity is None:
        return len(devices) + 1
    return len({uniformity.get(d) for d in devices}) if uniformity else 1
