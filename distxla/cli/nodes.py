"""The options that say on which machines a run's devices live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True)
class Nodes:
    """What `--address` and `--devices-per-host` say; None where they are not given."""

    address: str | None = None
    devices_per_host: tuple[int, ...] | None = None


def nodes_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command both options, as `address` and `devices_per_host`."""
    for option in (
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


def _counts(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"expected counts of devices like 3,5, found {value!r}", ctx, parameter)
    return tuple(int(part) for part in parts)
