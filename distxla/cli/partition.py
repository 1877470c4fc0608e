"""`distxla partition`."""

from __future__ import annotations

import click

from distxla.cli.output_files import require_writable, written_whole
from distxla.cli.terminal import progress, show_notices, write_bytes
from distxla.cli.time_limits import LimitedCommand, time_limit_option
from distxla.cli.usage import file_option, files
from distxla.time_limit import phase


@click.command(
    "partition", cls=LimitedCommand, short_help="Partition a global module by XLA's own partitioner; write HLO text."
)
@click.argument("module", metavar="MODULE", shell_complete=files)
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N", help="Number of partitions, where the module doesn't say it."
)
@click.option(
    "--replicas", type=click.IntRange(1), metavar="N", default=1, help="Number of replicas, where it doesn't say it."
)
@time_limit_option
@file_option("-o", "--out", "out_file", metavar="FILE", help="Write to this file.")
def command(module: str, partitions: int | None, replicas: int, time_limit: float | None, out_file: str | None) -> None:
    """Print the program of each partition of MODULE, which computes with global arrays. Nothing runs.

    Needs the extra distxla[jax]. `run`, `check` and `compile` partition such modules by themselves.
    """
    from distxla.jax.partitioner.global_modules import partition
    from distxla.jax.partitioner.loading import load_module
    from distxla.text.printer import print_module

    show_notices()
    if out_file is not None:
        require_writable(out_file)
    with phase("reading the module"):
        whole = load_module(module)
    with phase("partitioning"), progress("partitioning"):
        text = print_module(partition(whole, partitions, replicas))
    if out_file is None:
        write_bytes(text.encode())
        return
    with written_whole(out_file) as target:
        target.write(text.encode())
