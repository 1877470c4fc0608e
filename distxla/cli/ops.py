"""`distxla ops`."""

from __future__ import annotations

import click


@click.command("ops", short_help="The reference of the op set.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--markdown", is_flag=True, help="The table as it stands in the README.")
def command(names: tuple[str, ...], markdown: bool) -> None:
    """Print the page of each opcode, or without a name one line for every opcode of HLO."""
    from distxla.ops.documentation import describe, markdown_table, table

    if names:
        click.echo("\n".join(describe(name) for name in names), nl=False)
        return
    if markdown:
        click.echo(markdown_table(), nl=False)
        return
    rows = table()
    names_width, support_width = (max(len(getattr(row, column)) for row in rows) for column in ("opcode", "support"))
    for row in rows:
        click.echo(f"{row.opcode:{names_width}}  {row.support:{support_width}}  {row.summary}")
