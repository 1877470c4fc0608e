"""Moves functions that many programs share into modules of their own: each is compiled once.

    define internal i32 @distxla_wait(…)     ->   declare hidden i32 @distxla_wait(…)       in the program
                                                  define hidden i32 @distxla_wait(…)        in a module of its own

Its text does not depend on the program: metadata is numbered anew, and constants that it reads come along.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from llvmlite import ir

from distxla.emit.native_function import CommonFunction
from distxla.lazy_dataclass import dataclass

_NAME: Final = re.compile(r'@"((?:[^"\\]|\\.)*)"')
_METADATA: Final = re.compile(r"!(\d+)\b")
_BODY: Final = re.compile(r"\n\{\n.*", re.DOTALL)
_BEGIN: Final = re.compile(r"\Adefine (?:internal )?")
_OF_DEFINITIONS: Final = re.compile(r" (?:noinline|optnone|minsize|optsize)\b")


@dataclass(frozen=True)
class Separated:
    """program: the text of the module without its common functions.  common: the texts of modules with one each."""

    program: str
    common: tuple[str, ...]


def separated(module: ir.Module) -> Separated:
    """The module in parts that refer to each other by name. Its triple and data layout are set.

    A common function stays in the program where it refers to something that only the program has.
    """
    return _Separator(module).run()


class _Separator:
    """texts: of all that the module has, by name.  apart: the names of the common functions that leave it."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.texts = {name: str(one) for name, one in module.globals.items()}
        self.names = {
            name: dict.fromkeys(_NAME.findall(self.texts[name]))
            for name, one in module.globals.items()
            if isinstance(one, CommonFunction) and one.blocks
        }
        self.apart = self._free()
        self.metadata = _metadata(module)

    def run(self) -> Separated:
        head = _head(self.module)
        program = [_declaration(text) if name in self.apart else text for name, text in self.texts.items()]
        nodes = [f"!{number} = {text}" for number, text in self.metadata.items()]
        nodes += [f"!{name} = {node}" for name, node in self.module.namedmetadata.items()]
        common = tuple("\n".join([*head, *self._alone(name)]) for name in sorted(self.apart))
        return Separated("\n".join([*head, *program, *nodes]), common)

    def _free(self) -> set[str]:
        """Common functions that refer to nothing but each other, constants, and what is declared."""
        found, refused = set(self.names), {""}
        while refused:
            refused = {name for name in found if any(not self._is_known(other, found) for other in self.names[name])}
            found -= refused
        return found

    def _is_known(self, name: str, common: set[str]) -> bool:
        """Whether other modules can refer to it: a common function, one that is only declared, or a constant that
        refers to nothing."""
        if name in common:
            return True
        one = self.module.globals[name]
        if isinstance(one, ir.Function):
            return not one.blocks
        return bool(one.global_constant) and one.initializer is not None and len(_NAME.findall(self.texts[name])) == 1

    def _alone(self, name: str) -> Iterator[str]:
        """The lines of the module of one function."""
        for other in self.names[name]:
            if other != name:
                yield _declaration(self.texts[other]) if other in self.apart else self.texts[other]
        hidden = "hidden " if self.module.globals[name].linkage == "internal" else ""
        yield from _numbered_anew(_BEGIN.sub(f"define {hidden}", self.texts[name]), self.metadata)


def _declaration(text: str) -> str:
    hidden = "hidden " if text.startswith("define internal ") else ""
    return _OF_DEFINITIONS.sub("", _BEGIN.sub(f"declare {hidden}", _BODY.sub("", text))) + " nounwind"


def _head(module: ir.Module) -> list[str]:
    types = [one.get_declaration() for one in module.get_identified_types().values()]
    return [f'target triple = "{module.triple}"', f'target datalayout = "{module.data_layout}"', *types]


def _metadata(module: ir.Module) -> dict[int, str]:
    """The text of each node by its number."""
    found = {}
    for one in module.metadata:
        name, _, text = str(one).partition(" = ")
        found[int(name.strip()[1:])] = text.strip()
    return found


def _numbered_anew(text: str, metadata: dict[int, str]) -> list[str]:
    """The function and the nodes that it refers to, which are numbered in the order of their first use."""
    numbers: dict[int, int] = {}

    def number(match: Any) -> str:
        return f"!{numbers.setdefault(int(match[1]), len(numbers))}"

    lines = [_METADATA.sub(number, text)]
    done = 0
    while done < len(numbers):
        old = list(numbers)[done]
        lines.append(f"!{done} = {_METADATA.sub(number, metadata[old])}")
        done += 1
    return lines


__all__ = ["CommonFunction", "Separated", "separated"]
