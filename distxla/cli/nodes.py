"""The options that say on which machines a run's devices live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from distxla.collectives.protocols.control_block import MOST_DEVICES
from distxla.errors import ArgumentError
from distxla.lazy_dataclass import dataclass
from distxla.machine.byte_counts import bytes_of
from distxla.wire.network import network_of


@dataclass(frozen=True)
class Nodes:
    """The values of the options of the same names, `--device-memory` in bytes; None where they are not given."""

    address: str | None = None
    devices_per_host: tuple[int, ...] | None = None
    device_memory: int | None = None
    devices_per_gpu: int | None = None
    network: str | None = None


def nodes_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options, as the fields of Nodes."""
    for option in (
        network_option,
        click.option(
            "--devices-per-gpu",
            type=click.IntRange(min=1),
            metavar="N",
            help="The most devices that share a GPU; by default a node's devices share its GPUs evenly.",
        ),
        click.option(
            "--device-memory",
            metavar="SIZE",
            callback=_size,
            help="Memory of each device, as in 2GiB; by default what the machine, or its control group, has.",
        ),
        click.option(
            "--devices-per-host",
            metavar="N,N...",
            callback=_counts,
            help="Devices on each node of that Ray, this machine first; by default as many as a node has CPUs.",
        ),
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="Join this Ray cluster; without it an embedded one starts and stops with it.",
        ),
    ):
        command = option(command)
    return command


def network_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option, as `network`: a text that network_of takes."""
    return click.option(
        "--network",
        metavar="KEY=VALUE,...",
        callback=_network,
        help="How hosts reach each other: ports=FIRST-LAST, interface=NAME or a network, lost-after=SECONDS.",
    )(command)


def device_assignment_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option, as `device_assignment`."""
    return click.option(
        "--device-assignment",
        metavar="D,D...",
        callback=_devices,
        help="The cluster's device for each device of the program, by replica, then partition.",
    )(command)


def _devices(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"expected device numbers like 3,1, found {value!r}", ctx, parameter)
    devices = tuple(int(part) for part in parts)
    twice = next((device for device in devices if devices.count(device) > 1), None)
    if twice is not None:
        raise click.BadParameter(f"device {twice} is named twice", ctx, parameter)
    if max(devices) >= MOST_DEVICES:
        raise click.BadParameter(
            f"device {max(devices)} is beyond the {MOST_DEVICES} that a run may have", ctx, parameter
        )
    return devices


def _counts(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"expected counts of devices like 3,5, found {value!r}", ctx, parameter)
    return tuple(int(part) for part in parts)


def _network(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        network_of(value, "--network")
    except ArgumentError as error:
        raise click.BadParameter(error.message.partition(": ")[2], ctx, parameter) from error
    return value


def _size(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        size = bytes_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error
    if size < 1:
        raise click.BadParameter(f"expected a number of bytes above 0, found {value!r}", ctx, parameter)
    return size
