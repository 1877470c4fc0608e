"""Changes of StableHLO before XLA takes it, by jaxlib's bindings of MLIR.

Their names move from release to release like those of names.py.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

from distxla.jax.private.names import expected_names, mlir_context, mlir_module, parsed_mlir

_FRONTEND_ATTRIBUTES: Final = "mhlo.frontend_attributes"  # of an operation of StableHLO
_PLATFORM_INDEX: Final = '"_platform_index"'  # what JAX says of the parameter


def without_late_calls(module: bytes) -> bytes:
    """StableHLO without the marks by which XLA 0.12 compiles calls as modules of their own, apart from their callers;
    as it was where MLIR can't read it."""
    if b"xla_late" not in module:
        return module

    def change(parsed: Any, ir: Any) -> None:
        def unmark(operation: Any) -> Any:
            attributes = operation.attributes
            if _FRONTEND_ATTRIBUTES in attributes:
                found = {pair.name: pair.attr for pair in ir.DictAttr(attributes[_FRONTEND_ATTRIBUTES])}
                if str(found.get("inlineable")) == '"xla_late"':
                    del found["inlineable"]
                    attributes[_FRONTEND_ATTRIBUTES] = ir.DictAttr.get(found)
            return ir.WalkResult.ADVANCE

        parsed.operation.walk(unmark)

    return _changed(module, change)


def for_platform(module: bytes, platform: int) -> bytes:
    """StableHLO that JAX has exported for several platforms as it is for one of them, without the parameter for its
    number; as it was where it has no such parameter, or MLIR can't read it."""

    def change(parsed: Any, ir: Any) -> None:
        main = _main(parsed)
        if "arg_attrs" not in main.attributes or _PLATFORM_INDEX not in str(main.attributes["arg_attrs"][0]):
            return
        block = main.regions[0].blocks[0]
        argument = block.arguments[0]
        with ir.InsertionPoint.at_block_begin(block):
            number = ir.Attribute.parse(f"dense<{platform}> : {argument.type}")
            constant = mlir_module("dialects.stablehlo").ConstantOp(number)
        argument.replace_all_uses_with(constant.result)
        block.erase_argument(0)
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kind.inputs[1:], kind.results))
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(list(ir.ArrayAttr(main.attributes["arg_attrs"]))[1:])

    return _changed(module, change)


def _main(parsed: Any) -> Any:
    """The operation of a module's function `main`."""
    functions = [one.operation for one in parsed.body.operations if "sym_name" in one.operation.attributes]
    return next(one for one in functions if str(one.attributes["sym_name"]) == '"main"')


def with_whole_results(module: bytes, use_shardy: bool, partitions: int) -> bytes:
    """StableHLO that asks for results that are whole on every device, where it says nothing about them."""

    def change(parsed: Any, ir: Any) -> None:
        main = _main(parsed)
        shapes = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results
        stated = main.attributes["res_attrs"] if "res_attrs" in main.attributes else [ir.DictAttr.get({})] * len(shapes)
        found = [{pair.name: pair.attr for pair in ir.DictAttr(one)} for one in stated]
        for attributes, shape in zip(found, shapes, strict=True):
            if str(shape).startswith("tensor<") and not {"sdy.sharding", "mhlo.sharding"} & attributes.keys():
                dims = ", ".join(["{}"] * ir.RankedTensorType(shape).rank)
                whole = f'#sdy.sharding<mesh<["all"={partitions}]>, [{dims}]>' if use_shardy else '"{replicated}"'
                attributes["sdy.sharding" if use_shardy else "mhlo.sharding"] = ir.Attribute.parse(whole)
        main.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(one) for one in found])

    return _changed(module, change)


def _changed(module: bytes, change: Callable[[Any, Any], None]) -> bytes:
    """Bytecode of StableHLO after change(its MLIR module, jaxlib.mlir.ir)."""
    with mlir_context() as context, expected_names():
        parsed = parsed_mlir(context, module)
        if parsed is None:
            return module
        change(parsed, mlir_module("ir"))
        data = io.BytesIO()
        parsed.operation.write_bytecode(data)
        return data.getvalue()
