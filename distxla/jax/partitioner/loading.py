"""Modules in files of any form: HLO text, HloModuleProto, StableHLO text, MLIR bytecode, jax.export.

The form is known by the content, not by the name. All but HLO text is read by jaxlib, in the partitioner's process.
"""

from __future__ import annotations

import os

from distxla.errors import ArgumentError, JaxError, PartitioningError
from distxla.ir.module import Module
from distxla.jax.partitioner.constants import module_with_constants
from distxla.jax.partitioner.exported import Exported, read_exported
from distxla.text.files import read_file
from distxla.text.other_formats import BYTE_ORDER_MARK, MLIR_BYTECODE, decoded, format_of_bytes, format_of_text
from distxla.text.parser import parse_module

EXPORTED = "a function of jax.export"
PLATFORM = "cpu"  # for which a program runs that was exported for several: as which JAX lowers for distxla's devices
AS_HLO = " (as HLO)"  # behind the name of a file that was converted


def load_module(path: str | os.PathLike[str]) -> Module:
    """The module in a file of HLO text, an HloModuleProto (`.hlo.pb`, also in an HloProto), StableHLO text, MLIR
    bytecode (a portable artifact, too), or what `jax.export` has serialised; blocks.

    All but HLO text needs the extra distxla[jax]; such a module computes with global arrays, as a front end writes it.
    Raises ArgumentError where the file can't be read, or holds something else or only a part of it; the errors of
    `parse` for HLO text; JaxError.
    """
    name = os.fspath(path)
    return read_module(read_file(name), name)


def read_module(data: bytes, name: str) -> Module:
    """As load_module, of a file's content.  name: what messages call it."""
    exported = read_exported(data)
    if exported is not None:
        return _converted(exported.module, name, EXPORTED, exported.devices, _platform(exported, name))
    other = format_of_bytes(data, name)
    if other is None and MLIR_BYTECODE in data:
        raise ArgumentError(f"{name} holds MLIR bytecode, but not as jax.export writes it: it may have been cut off")
    if other is None:
        text = decoded(data, name)
        data = data.removeprefix(BYTE_ORDER_MARK.encode())
        other = format_of_text(text, name)
        if other is None or not other.is_convertible:
            return parse_module(text, name)
    try:
        return _converted(data, name, other.what, None)
    except _NoJaxlib as missing:
        try:
            return parse_module(data, name)  # raises the error that says what it is, and how to get HLO text of it
        except Exception as error:
            error.add_note(str(missing))
            raise


class _NoJaxlib(JaxError):
    """jaxlib is not installed."""


def _platform(exported: Exported, name: str) -> int | None:
    """The number of our platform among those of the program; None where it has one only, whichever that is."""
    if len(exported.platforms) < 2:
        return None
    if PLATFORM not in exported.platforms:
        found = ", ".join(exported.platforms)
        raise ArgumentError(f"{name} was exported for several platforms: expected {PLATFORM} among them, found {found}")
    return exported.platforms.index(PLATFORM)


def _converted(data: bytes, name: str, what: str, devices: int | None, platform: int | None = None) -> Module:
    """platform: as of `converted_module`."""
    from distxla.jax.partitioner.conversion import converted_module
    from distxla.jax.private.names import EXTRA, is_jaxlib_there

    if not is_jaxlib_there():
        if what == EXPORTED:
            raise JaxError(f"{name} is {what}: {EXTRA} lets distxla read it")
        raise _NoJaxlib(f"hint: with {EXTRA} distxla reads it")
    try:
        found = converted_module(data, platform)
    except PartitioningError as error:
        if b"__elided__" in data:
            raise ArgumentError(
                f"{name} leaves out the values of constants, as __elided__: print it with them (mlir-opt without "
                "--mlir-elide-elementsattrs-if-larger and --mlir-elide-resource-strings-if-larger)"
            ) from error
        raise ArgumentError(f"{name} looks like {what}, but XLA cannot read it: {_first(error.message)}") from error
    module = module_with_constants(with_file_name(found.text, name), found.proto, name + AS_HLO)
    counts = {"num_partitions": found.partitions or devices, "replica_count": found.replicas}
    stated = {key: count for key, count in counts.items() if count is not None and (key, count) != ("replica_count", 1)}
    is_front_ends = format_of_bytes(data, name) is None or data.startswith(MLIR_BYTECODE)  # not an HloModuleProto
    return module.replace(
        **{key: count for key, count in stated.items() if getattr(module, key) is None},
        stablehlo=(data if found.module is None else found.module) if is_front_ends else None,
    )


def with_file_name(text: str, name: str) -> str:
    """HLO text with the name of the file of StableHLO whose lines it names, which XLA calls "-"."""
    text = text.replace('source_file="-"', f'source_file="{_quoted(name)}"')
    return text.replace('\n1 "-"\n', f'\n1 "{_quoted(name)}"\n', 1)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _first(message: str) -> str:
    """What XLA says, without the lines that follow."""
    line = next((line for line in message.splitlines() if line.strip()), message)
    return line.removeprefix("XLA refuses the module: ")


__all__ = ["AS_HLO", "load_module", "read_module", "with_file_name"]
