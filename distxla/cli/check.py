"""`distxla check`."""

from __future__ import annotations

import os
from collections import Counter

import click

from distxla.cli.custom_calls import custom_call_option, register_all
from distxla.errors import printable

MOST_WAYS = 8


@click.command("check", short_help="Verify modules and say what would keep them from running; run nothing.")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE[@DEVICES]...")
@click.option("--replicas", type=click.IntRange(1), help="Number of replicas, where no header says it.")
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions, where no header says it.")
@custom_call_option
def command(
    modules: tuple[str, ...], replicas: int | None, partitions: int | None, custom_calls: tuple[str, ...]
) -> None:
    """Parse and verify every module and print what it holds. Starts neither Ray nor LLVM.

    Instructions that are correct but that this version has no code for are listed, and the exit status is 2: `distxla
    run` would refuse them.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's library would start threads that nothing here needs
    from distxla.cli.programs import ranges, read_world
    from distxla.errors import UnsupportedOpError
    from distxla.ops.effects import COMMUNICATING
    from distxla.passes.resolve_layouts import ignored_tiles
    from distxla.passes.verify import obstacles

    register_all(custom_calls)
    world = read_world(modules, replicas, partitions)
    world.verify()
    refused = False
    for program in world.programs:
        module = program.module
        instructions = [i for computation in module.computations for i in computation]
        click.echo(
            f"{program.path}: {module.name}: {len(module.computations)} computation(s), {len(instructions)} "
            f"instruction(s), devices {ranges(program.devices)} of {world.replicas} x {world.partitions}"
        )
        if program.whole is not None:
            cut = [
                f"arg{k} {placed.shape} into {placed.shard_shape}"
                for k, placed in enumerate(program.whole.parameters)
                if not placed.shards.is_whole
            ]
            click.echo(f"  global: {world.partitions} partitions; cut: {', '.join(cut) or 'nothing'}")
        acting = Counter(i.opcode for i in instructions if i.op.effects in COMMUNICATING)
        if acting:
            click.echo("  communication: " + ", ".join(f"{n} {opcode}" for opcode, n in sorted(acting.items())))
        if (note := ignored_tiles(module)) is not None:
            click.echo(f"  note: {note}")
        missing = obstacles(module)
        for instruction, why in missing:
            where = module.locate(instruction, "opcode")
            click.echo(printable(f"  {instruction.name}: {why}" + (f" ({where})" if where else "")))
        refused = refused or bool(missing)
        if not missing:
            click.echo("  ok")
    for channel, ways in world.channels().items():
        shown = ", ".join(f"{source} to {target}" for source, target in ways[:MOST_WAYS])
        click.echo(f"channel {channel}: {shown}" + (f", … ({len(ways)} pairs)" if len(ways) > MOST_WAYS else ""))
    if refused:
        raise SystemExit(UnsupportedOpError.exit_status)
