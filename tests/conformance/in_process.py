"""Executors of `distxla conformance` in this process: the reference, and the reference with a fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distxla.cli.array_files import read_leaves, to_file, write_arrays
from distxla.cli.conformance_outcome import Outcome
from distxla.cli.conformance_run import run_all
from distxla.cli.foreign_executor import CaseFiles, Failure
from distxla.conformance.suite import chosen
from distxla.errors import DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.shape import Shape
from distxla.oracle.lockstep import run_reference
from distxla.text.parser import parse_module

Array = np.ndarray[Any, Any]
Arrays = list[list[Array]]  # [device][leaf]


def _same_text(text: str) -> str:
    return text


def _same_arrays(arrays: Arrays, args: Arrays) -> Arrays:
    return arrays


@dataclass
class ReadsFiles:
    """Reads a case's files, runs them on the reference, writes the results.

    rewrite: what it makes of the text.  given: what it makes of the arguments.  results: what it makes of the results,
    which are beside the arguments.  keys: what it makes of a key of the file.
    """

    rewrite: Callable[[str], str] = _same_text
    given: Callable[[Arrays], Arrays] = field(default=lambda args: args)
    results: Callable[[Arrays, Arrays], Arrays] = _same_arrays
    keys: Callable[[str], str] = _same_text

    def run(self, files: CaseFiles) -> Failure | None:
        written = parse_module(files.module.read_text())
        args = self._arguments(files, [p.shape for p in written.entry_computation.parameters])
        try:
            outs = run_reference(
                parse_module(self.rewrite(files.module.read_text())),
                self.given(args),
                Counts(files.replicas, files.partitions),
            )
        except DistxlaError as error:
            return Failure("refused", error.message)
        shape = written.entry_computation.root_instruction.shape
        shapes = list(shape.elements) if shape.elements is not None else [shape]
        found = self.results([[np.asarray(leaf) for leaf in row] for row in outs], args)
        arrays = {
            self.keys(f"out{k}@{d}"): to_file(array, shapes[k].dtype) if array.dtype == shapes[k].dtype.dtype else array
            for d, row in enumerate(found)
            for k, array in enumerate(row)
        }
        write_arrays(str(files.out), arrays)
        return None

    def _arguments(self, files: CaseFiles, shapes: Sequence[Shape]) -> Arrays:
        devices = range(files.replicas * files.partitions)
        arrays = read_leaves(str(files.args), "arg", dict.fromkeys(devices, shapes))
        return [[arrays[k, device] for k in range(len(shapes))] for device in devices]

    def close(self) -> None:
        """Nothing is open."""

    def stop(self) -> None:
        """It ends by itself."""


def outcomes(executor: ReadsFiles, folder: Path, *patterns: str) -> dict[str, Outcome]:
    """By the names of the cases that a pattern matches."""
    return {outcome.case: outcome for outcome in run_all(chosen(patterns), [executor], folder)}


def replaced(pattern: str, by: str | Callable[[re.Match[str]], str]) -> Callable[[str], str]:
    """A rewrite of the text."""
    return lambda text: re.sub(pattern, by, text)
