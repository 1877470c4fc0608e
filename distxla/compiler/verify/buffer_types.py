"""The verifier's rules about buffers, `b(f32[2])`: arrays that custom-calls change in place.

C1: Pin makes a buffer of an array of its shape.  C2: CreateBuffer makes one of nothing.  C3: Unpin makes an array of
its shape of a buffer.  C4: any other custom-call gives each buffer that it takes as one part of its result, and takes
each that it gives, as `output_to_operand_aliasing` says.  C5: a buffer has one user at most that may write it.  C6:
nothing else takes or gives buffers but loops, tuples, get-tuple-elements and parameters of called computations.
Source: XLA's HloVerifier, `VerifyBuffers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from distxla.errors import VerificationError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.buffers import CREATE, PIN, UNPIN
from distxla.ops.custom_calls.custom_call import CustomCall

Index = tuple[int, ...]


def verify_buffers(module: Module) -> None:
    """Raise VerificationError for the first rule that a verified module breaks."""
    if any(_is_concerned(i) for computation in module.computations for i in computation):
        _Buffers(module).check()


def _is_concerned(i: Instruction) -> bool:
    return i.shape.has_buffers or i.op.called_target in (PIN, UNPIN, CREATE)


class _Buffers:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.bodies = {i.op.loop_body for c in module.computations for i in c if i.op.role.is_loop}

    def check(self) -> None:
        for computation in self.module.computations:
            for i in computation:
                self._instruction(computation, i)

    def require(self, condition: bool, rule: str, message: str, at: Instruction, part: str) -> None:
        if not condition:
            raise VerificationError(f"buffer.{rule}: {message}", self.module.locate(at, part))

    def _instruction(self, computation: Computation, i: Instruction) -> None:
        op = i.op
        operands = [operand.shape for operand in computation.operands(i)]
        if isinstance(op, CustomCall):
            self._custom_call(op, i, operands)
        elif not (op.role.is_tuple or op.role.is_tuple_element or op.role.is_loop) and (
            not op.role.is_parameter or computation.name == self.module.entry
        ):
            has_buffers = i.shape.has_buffers or any(shape.has_buffers for shape in operands)
            what = "a parameter of the program" if op.role.is_parameter else f"{i.opcode}"
            self.require(not has_buffers, "C6", f"{what} can be no buffer, nor take one", i, "shape")
        if op.role.is_custom_call or op.role.is_loop or op.role.is_parameter:
            for index in _buffers(i.shape):
                writers = list(self._writers(computation, i, index))
                names = ", ".join(writers)
                self.require(len(writers) < 2, "C5", f"{i.name} may be written by {names}: one is allowed", i, "name")

    def _custom_call(self, op: CustomCall, i: Instruction, operands: list[Shape]) -> None:
        name = op.custom_call_target
        if name in (PIN, UNPIN):
            rule, result = ("C1", "a buffer of its shape") if name == PIN else ("C3", "an array of its shape")
            taken = "an array" if name == PIN else "a buffer"
            found = f"{', '.join(map(str, operands)) or 'nothing'} to {i.shape}"
            fits = len(operands) == 1 and operands[0].is_array and operands[0].is_buffer == (name == UNPIN)
            fits = fits and i.shape.is_array and i.shape.is_buffer == (name == PIN)
            fits = fits and _same(operands[0], i.shape)
            self.require(fits, rule, f"{name} is from {taken} to {result}, here from {found}", i, "shape")
            shared = op.output_to_operand_aliasing == (((), 0, ()),)
            at = "output_to_operand_aliasing" if op.output_to_operand_aliasing else "opcode"
            self.require(shared, rule, f"{name} says output_to_operand_aliasing={{{{}}: (0, {{}})}}", i, at)
        elif name == CREATE:
            fits = not operands and i.shape.is_buffer
            self.require(fits, "C2", f"{name} takes nothing and gives a buffer, here {i.shape}", i, "shape")
        else:
            given = Counter(output for output, _, _ in op.output_to_operand_aliasing)
            taken_parts = Counter((number, index) for _, number, index in op.output_to_operand_aliasing)
            for number, shape in enumerate(operands):
                for index in _buffers(shape):
                    one = taken_parts[number, index] == 1
                    text = f"the buffer {list(index)} of operand {number} must be one part of the result"
                    self.require(one, "C4", f"{text}, by output_to_operand_aliasing", i, "operands")
            for index in _buffers(i.shape):
                text = f"the buffer {list(index)} of the result must be one part of an operand"
                self.require(given[index] == 1, "C4", f"{text}, by output_to_operand_aliasing", i, "shape")

    def _writers(self, computation: Computation, i: Instruction, index: Index) -> Iterator[str]:
        """The users of the buffer at `index` of i's value that may write it, through tuples.

        One that takes the buffer several times is there as often.
        """
        for name in computation.users[i.name]:
            user = computation[name]
            op = user.op
            places = [k for k, operand in enumerate(user.operands) if operand == i.name]
            if op.called_computations or op.role.is_custom_call:
                yield from [name] * len(places)
            elif op.role.is_tuple_element:
                if index and op.element_index == index[0]:
                    yield from self._writers(computation, user, index[1:])
            elif op.role.is_tuple:
                if name != computation.root:
                    for place in places:
                        yield from self._writers(computation, user, (place, *index))
                elif computation.name in self.bodies:
                    yield from [name] * len(places)


def _buffers(shape: Shape, index: Index = ()) -> Iterator[Index]:
    if shape.is_buffer:
        yield index
    for k, element in enumerate(shape.elements or ()):
        yield from _buffers(element, (*index, k))


def _same(one: Shape, other: Shape) -> bool:
    """Whether the arrays have one shape, layouts included."""
    tiles = [(s.layout.tiles, s.layout.memory_space) if s.layout is not None else ((), 0) for s in (one, other)]
    same_layout = one.minor_to_major() == other.minor_to_major() and tiles[0] == tiles[1]
    return one.contents.compatible(other.contents) and one.dynamic == other.dynamic and same_layout
