"""`distxla cache`."""

from __future__ import annotations

import click

from distxla.cli import terminal
from distxla.errors import ArgumentError
from distxla.wording import counted


@click.command("cache", short_help="Show or clear the folder of compiled programs.")
@click.option("--clear", is_flag=True, help="Remove all programs; other files in the folder stay.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(clear: bool, as_json: bool) -> None:
    """Show where `run` keeps compiled programs, how many there are, and how much they may take; or remove them.

    DISTXLA_CACHE_DIR names the folder in which distxla makes its own, DISTXLA_CACHE_SIZE the most that programs may
    take (512M by default, 0 for no cache).
    """
    from distxla.compiler.cache_folder import CacheFolder, UnsafeFolderError, Usage, cache_folder, cache_limit
    from distxla.machine.byte_counts import amount

    folder = CacheFolder(cache_folder(), cache_limit())
    refusal = folder.refusal()
    try:
        used = folder.clear() if clear else Usage() if refusal is not None else folder.usage()
    except (UnsafeFolderError, OSError) as error:
        reason = refusal or getattr(error, "strerror", None) or str(error)
        what = "cleared" if clear else "read"
        raise ArgumentError(f"the cache folder {folder.path} cannot be {what}: {reason}") from None
    if as_json:
        found = {"folder": str(folder.path), "limit_bytes": folder.max_bytes, "refused": refusal}
        removed = {"removed_programs": used.entries, "removed_bytes": used.bytes}
        terminal.write_json({**found, **(removed if clear else {"programs": used.entries, "bytes": used.bytes})})
        return
    held = f"{counted(used.entries, 'entry')}, {amount(used.bytes)}"
    if clear:
        terminal.write(f"{folder.path}: removed {held}")
    elif refusal is not None:
        terminal.write(f"{folder.path}: not used: {refusal}")
    else:
        limit = f" of {amount(folder.max_bytes)}" if folder.max_bytes else "; DISTXLA_CACHE_SIZE=0: no cache is used"
        terminal.write(f"{folder.path}: {held}{limit}")
