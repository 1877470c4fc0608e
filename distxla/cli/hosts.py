"""`distxla hosts`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from distxla.cli import terminal
from distxla.cli.nodes import network_option

if TYPE_CHECKING:
    from distxla.runtime.hosts.survey import Survey, SurveyedHost, SurveyedLink

FORMAT = 1
HEAD = ("host", "node", "address", "distxla", "Python", "processors", "memory", "GPUs")
MOST_COLUMNS = 8  # of a table of links; more hosts are told by the extremes
NONE, UNKNOWN = "-", "?"


@click.command("hosts", short_help="Say what the hosts of a Ray cluster are, and how fast they reach each other.")
@click.option("--address", metavar="HOST:PORT", required=True, help="The Ray cluster; this machine is a node of it.")
@network_option
@click.option("--no-links", is_flag=True, help="Measure nothing between hosts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, address: str, network: str | None, no_links: bool, as_json: bool) -> None:
    """Join a Ray cluster, and ask each of its nodes what it is: versions, processors, memory, GPUs. Then measure how
    long a frame takes from each host to each other one and back, and how many bytes a second go one way, with what a
    run of several hosts uses.

    Exit status 1 where a host can't take devices of a run from this machine, or another can't reach it.
    """
    from distxla.runtime.hosts.survey import survey
    from distxla.runtime.ray.versions import require_run
    from distxla.wire.network import network_of

    require_run("`distxla hosts`")
    terminal.show_notices()
    with terminal.progress("asking the hosts"):
        found = survey(address, network_of(network, "--network"), threading.Event(), measures=not no_links)
    if as_json:
        terminal.write_json(as_data(found))
    else:
        for line in lines(found):
            terminal.write(line)
    if any(host.trouble for host in found.hosts) or any(link.trouble for link in found.links):
        ctx.exit(1)


def as_data(found: Survey) -> dict[str, Any]:
    """The JSON object."""
    return {
        "format": FORMAT,
        "hosts": [_host_data(index, host) for index, host in enumerate(found.hosts)],
        "links": [
            {
                "source": link.source,
                "target": link.target,
                "round_trip_s": None if link.trouble else link.round_trip_s,
                "bytes_per_s": None if link.trouble else link.bytes_per_s,
                "trouble": link.trouble or None,
            }
            for link in found.links
        ],
    }


def _host_data(index: int, host: SurveyedHost) -> dict[str, Any]:
    node, found = host.node, host.found
    data: dict[str, Any] = {"host": index, "node": node.name, "id": node.id, "address": node.address}
    data |= {"ray_cpus": node.cpus, "ray_gpus": node.gpus, "trouble": host.trouble or None}
    if found is None:
        return data
    facts = found.facts
    return data | {
        "address": facts.address,
        "version": facts.version.partition(",")[0],
        "python": found.python,
        "machine": facts.machine,
        "processor": found.processor,
        "processors": found.processors,
        "memory_bytes": facts.room.most.bytes,
        "free_bytes": facts.free.bytes,
    }


def lines(found: Survey) -> Iterator[str]:
    """The tables."""
    yield from _table([HEAD, *(_cells(index, host) for index, host in enumerate(found.hosts))], "<")
    models = dict.fromkeys(host.found.processor for host in found.hosts if host.found is not None)
    for model in models:
        mine = [k for k, host in enumerate(found.hosts) if host.found is not None and host.found.processor == model]
        yield f"{_hosts(mine)}: {model}"
    for index, host in enumerate(found.hosts):
        if host.trouble:
            yield f"host {index} can take no devices: {host.trouble}"
    known = [link for link in found.links if not link.trouble]
    for link in found.links:
        if link.trouble:
            yield f"from host {link.source} to host {link.target}: {link.trouble}"
    if known:
        yield from _links(known, len(found.hosts), "round trip, µs", lambda link: f"{1e6 * link.round_trip_s:.0f}")
        yield from _links(known, len(found.hosts), "one way, MB/s", lambda link: f"{link.bytes_per_s / 1e6:.0f}")


def _cells(index: int, host: SurveyedHost) -> tuple[str, ...]:
    from distxla.machine.byte_counts import amount

    node, found = host.node, host.found
    gpus = f"{node.gpus:g}"
    if found is None:
        return str(index), node.name, node.address, UNKNOWN, UNKNOWN, f"{node.cpus:g}", UNKNOWN, gpus
    version = found.facts.version.partition(",")[0]
    memory = f"{amount(found.facts.free.bytes)} free of {amount(found.facts.room.most.bytes)}"
    return str(index), node.name, found.facts.address, version, found.python, str(found.processors), memory, gpus


def _links(links: Sequence[SurveyedLink], count: int, title: str, told: Any) -> Iterator[str]:
    """A row for each source, a column for each target."""
    if count > MOST_COLUMNS:
        links = sorted(links, key=lambda link: link.round_trip_s)
        shown = [links[0], links[len(links) // 2], links[-1]]
        names = ("least", "median", "most")
        yield f"{title}, in the order of round trips:"
        for name, link in zip(names, shown):
            yield f"  {name}: {told(link)} (from host {link.source} to host {link.target})"
        return
    by_pair = {(link.source, link.target): told(link) for link in links}
    rows = [[str(a), *(NONE if a == b else by_pair.get((a, b), UNKNOWN) for b in range(count))] for a in range(count)]
    yield f"{title}, from the host of the row to that of the column:"
    yield from _table([["", *map(str, range(count))], *rows], ">")


def _table(rows: Sequence[Sequence[str]], side: str) -> Iterator[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:{side}{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _hosts(indices: Sequence[int]) -> str:
    from distxla.wording import listed

    return f"host{'s' if len(indices) > 1 else ''} {listed(indices)}"


__all__ = ["as_data", "command", "lines"]
