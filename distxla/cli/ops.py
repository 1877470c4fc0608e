"""`distxla ops`."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from distxla.cli import terminal


def _opcodes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from distxla.ops.support.registry import op_classes

    return [CompletionItem(name) for name in op_classes() if name.startswith(incomplete)]


@click.command("ops", short_help="The reference of the op set.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=_opcodes)
@click.option("--markdown", is_flag=True, help="The table as in docs/ops.md.")
def command(names: tuple[str, ...], markdown: bool) -> None:
    """Print the page of each opcode, or without a name one line for every opcode of HLO."""
    from distxla.cli.op_documentation import describe, markdown_table, table

    if names:
        terminal.write_exactly("\n".join(describe(name) for name in names).removesuffix("\n"))
        return
    if markdown:
        terminal.write_exactly(markdown_table().removesuffix("\n"))
        return
    rows = table()
    names_width, support_width = (max(len(getattr(row, column)) for row in rows) for column in ("opcode", "support"))
    for row in rows:
        text = f"{row.opcode:{names_width}}  {row.support:{support_width}}  {row.summary}"
        terminal.write(text, hang=names_width + support_width + 4)
