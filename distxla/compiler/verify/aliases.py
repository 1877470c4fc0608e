"""Parameters whose memory the program's result takes over: `input_output_alias` and `buffer_donor` of the header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from distxla.errors import VerificationError
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.text.shapes import print_shape

_INDEX = r"\{([0-9,\s]*)\}"
_PARAMETER = rf"\(\s*([0-9]+)\s*,\s*{_INDEX}\s*(?:,\s*([a-z\-]+)\s*)?\)"
_ALIAS = re.compile(rf"{_INDEX}\s*:\s*{_PARAMETER}")
_DONOR = re.compile(_PARAMETER)

Index = tuple[int, ...]


def verify_aliases(module: Module) -> None:
    """Raise VerificationError, located, for rules `module.alias` and `module.donor`.

    An alias names an array of the result and one of a parameter, each of which is in one alias; `must-alias` asks for
    equal shapes, which have the same form in memory. A donor is an array of a parameter that is in no alias.
    """
    header = dict(module.header)
    results: set[Index] = set()
    taken: set[tuple[int, Index]] = set()
    for match in _ALIAS.finditer(header.get("input_output_alias", "")):
        output, number, index = _index(match.group(1)), int(match.group(2)), _index(match.group(3))
        result = _part(module.entry_computation.root_instruction.shape, output)
        _require(module, "alias", result is not None, f"the result has no array {list(output)}")
        parameter = _parameter(module, "alias", number, index)
        unequal = match.group(4) == "must-alias" and result is not None and not result.compatible(parameter)
        _require(module, "alias", not unequal, f"the result's {result} must alias {parameter} of parameter {number}")
        if match.group(4) == "must-alias":
            _require_one_place(module, output, number, index)
        _require(module, "alias", output not in results, f"array {list(output)} of the result has two aliases")
        _require(module, "alias", (number, index) not in taken, f"parameter {number} {list(index)} has two aliases")
        results.add(output)
        taken.add((number, index))
    for match in _DONOR.finditer(header.get("buffer_donor", "")):
        number, index = int(match.group(1)), _index(match.group(2))
        _parameter(module, "donor", number, index)
        _require(module, "donor", (number, index) not in taken, f"parameter {number} {list(index)} is aliased, too")


def donated_leaves(module: Module) -> tuple[int, ...]:
    """The leaves of the parameters that `buffer_donor` names, ascending; of a module that has been verified."""
    donors = {
        (int(m.group(1)), _index(m.group(2))) for m in _DONOR.finditer(dict(module.header).get("buffer_donor", ""))
    }
    parameters = module.entry_computation.parameters
    leaves = [(number, index) for number, p in enumerate(parameters) for index in _leaf_indices(p.shape)]
    return tuple(leaf for leaf, place in enumerate(leaves) if place in donors)


def names_of_results(module: Module) -> dict[int, str]:
    """What a front end calls leaves of the result, as `params['b1']`: what it calls the parameter that they alias."""
    parameters = module.entry_computation.parameters
    result_of = {
        index: leaf for leaf, index in enumerate(_leaf_indices(module.entry_computation.root_instruction.shape))
    }
    found = {}
    for match in _ALIAS.finditer(dict(module.header).get("input_output_alias", "")):
        result, number, index = result_of.get(_index(match.group(1))), int(match.group(2)), _index(match.group(3))
        if result is None or number >= len(parameters) or index:  # an element of a tuple has no name of its own
            continue
        if (metadata := parameters[number].metadata) is not None and metadata.op_name and "/" not in metadata.op_name:
            found[result] = metadata.op_name
    return found


def in_place_pairs(module: Module, donated: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """(leaf of the result, leaf of the parameters) of results that are computed in the memory of donated parameters, of
    a module that has been verified. Those that `input_output_alias` names come first; each other donated leaf is for
    the first result of the same type that has none. Both leaves have the same type and sizes.

    donated: leaves of the parameters.
    """
    left = set(donated)
    root = module.entry_computation.root_instruction.shape
    parameters = module.entry_computation.parameters
    shapes = [shape for p in parameters for shape in p.shape.leaves()]
    results = {k: shape for k, shape in enumerate(root.leaves()) if shape.is_array}
    leaf_of = {
        place: leaf
        for leaf, place in enumerate((n, index) for n, p in enumerate(parameters) for index in _leaf_indices(p.shape))
    }
    result_of = {index: leaf for leaf, index in enumerate(_leaf_indices(root))}
    found: list[tuple[int, int]] = []

    def pair(result: int, parameter: int) -> None:
        left.remove(parameter)
        del results[result]
        found.append((result, parameter))

    for match in _ALIAS.finditer(dict(module.header).get("input_output_alias", "")):
        result, parameter = (
            result_of.get(_index(match.group(1))),
            leaf_of.get((int(match.group(2)), _index(match.group(3)))),
        )
        if parameter in left and result in results and _same(results[result], shapes[parameter]):
            pair(result, parameter)
    for parameter in sorted(left):
        result = next((k for k, shape in results.items() if _same(shape, shapes[parameter])), None)
        if result is not None:
            pair(result, parameter)
    return tuple(sorted(found))


def _same(one: Shape, other: Shape) -> bool:
    return one.element_type is other.element_type and one.dims == other.dims and not one.is_dynamic


def _leaf_indices(shape: Shape, index: Index = ()) -> Iterator[Index]:
    """In the order of `Shape.leaves`."""
    if shape.elements is None:
        yield index
    for number, element in enumerate(shape.elements or ()):
        yield from _leaf_indices(element, (*index, number))


def _index(text: str) -> Index:
    return tuple(int(number) for number in text.split(",") if number.strip())


def _part(shape: Shape, index: Sequence[int]) -> Shape | None:
    """The array at an index of a shape; None where there is none."""
    for number in index:
        if shape.elements is None or number >= len(shape.elements):
            return None
        shape = shape.elements[number]
    return shape if shape.is_array else None


def _require_one_place(module: Module, output: Index, number: int, index: Index) -> None:
    """The layouts of the header, or without one of the instructions, let a result take a parameter's memory over."""
    entry, layout = module.entry_computation, module.entry_layout
    whole = entry.root_instruction.shape if layout is None else layout.result
    given = [p.shape for p in entry.parameters] if layout is None else layout.parameters
    result, parameter = _part(whole, output), _part(given[number], index)
    if result is not None and parameter is not None and _place(result) != _place(parameter):
        message = f"the result's {print_shape(result)} must alias {print_shape(parameter)} of parameter {number}"
        _require(module, "alias", False, message)


def _place(shape: Shape) -> tuple[object, ...]:
    layout = shape.layout
    return (shape.minor_to_major(), *((layout.tiles, layout.memory_space) if layout is not None else ((), 0)))


def _parameter(module: Module, rule: str, number: int, index: Index) -> Shape:
    parameters = module.entry_computation.parameters
    _require(module, rule, number < len(parameters), f"there is no parameter {number}")
    found = _part(parameters[number].shape, index)
    _require(module, rule, found is not None, f"parameter {number} has no array {list(index)}")
    assert found is not None
    return found


def _require(module: Module, rule: str, condition: bool, message: str) -> None:
    if not condition:
        name = {"alias": "input_output_alias", "donor": "buffer_donor"}[rule]
        raise VerificationError(f"module.{rule}: {message}", module.locate_header(name))
