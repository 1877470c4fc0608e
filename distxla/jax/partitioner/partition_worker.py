"""The partitioner's processes: one that has imported jaxlib and waits, and a fork of it for each module.

XLA ends its process where a check fails; that ends the fork only. A fork is also ended as soon as XLA has written the
partitioned module, so nothing is compiled beyond that, and no memory stays behind.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
import threading
from typing import Any, Final

from distxla.errors import DistxlaError, PartitioningError
from distxla.jax.partitioner.declared_values import BORDER, with_declared_values
from distxla.jax.partitioner.partition_messages import (
    Answer,
    Converted,
    Death,
    Request,
    warnings_of,
)
from distxla.jax.private import mlir as private_mlir
from distxla.jax.private import names as private_names
from distxla.machine.child_process import read_message, write_message
from distxla.machine.file_watch import closed_files, watch_folder
from distxla.machine.processes import descriptor_of, end_with_parent, readable
from distxla.text.other_formats import MLIR_BYTECODE, format_of_text, module_proto_of

PASSES: Final = ("spmd-partitioning", "sharding-remover", "shardy-xla", "control-dep-rewriter")
MESSAGE_BYTES: Final = 1 << 16  # of what XLA prints before it ends its process
WARNING_BYTES: Final = 1 << 22
_AFTER: Final = re.compile(r"\.after_(?P<after>[\w-]+)\.before_(?P<before>[\w-]+)\.hlo\.pb$")
_GLOBAL: Final = ".before_optimizations.hlo.pb"
_BEFORE: Final = ".before_spmd-partitioning.hlo.pb"
_CALL_OF_ANOTHER_MODULE: Final = 'custom_call_target="_xla_multi_module_call"'
_FIRST: Final = b"func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }"
_NAME: Final = re.compile(r"\AHloModule ([^\s,]+)")
_SIZE: Final = re.compile(r"(?<=[\[,])[<=\d]+")  # of a dimension
_LITERAL: Final = re.compile(r"(?<= constant\()[^\"\n]*")
_NEGATIVE_ZERO: Final = re.compile(r"(?<=[({ ])-0(?=[,)} ])|^-0(?=\))")


def main() -> None:
    """Answer requests until stdin, or the parent, ends."""
    messages, parent = map(int, sys.argv[1:3])
    try:
        watch = descriptor_of(parent)
    except ProcessLookupError:
        return
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library's output must not get into the answers
    try:
        private_names.import_jaxlib()
    except DistxlaError as error:
        write_message(answers, pickle.dumps(error))
        return
    write_message(answers, pickle.dumps(None))
    described(private_names.proto_of_stablehlo(_FIRST))  # each fork has what this initialises
    folder = ""
    try:
        while _is_asked(watch):
            request = pickle.loads(read_message(sys.stdin.buffer))
            folder = request.folder
            write_message(answers, _forked(request, messages, watch))
    except (EOFError, BrokenPipeError):
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the parent may have ended before it could


def _is_asked(watch: int) -> bool:
    """Wait for a request; False where the parent has ended."""
    return watch not in readable(watch, 0)


def _forked(request: Request, messages: int, watch: int) -> bytes:
    """The pickled answer of a fork of this process, or its Death."""
    os.ftruncate(messages, 0)
    os.mkdir(request.folder, 0o700)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer_and_end(request, writer, messages)
    os.close(writer)
    pieces = []
    while True:
        if watch in readable(reader, watch):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)  # XLA may still write into the folder
            shutil.rmtree(request.folder, ignore_errors=True)
            os._exit(0)
        piece = os.read(reader, 1 << 20)
        if not piece:
            break
        pieces.append(piece)
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    data = b"".join(pieces)
    if status == 0 and data:
        return data
    return pickle.dumps(Death(status, os.pread(messages, MESSAGE_BYTES, 0).decode(errors="replace")))


def _answer_and_end(request: Request, writer: int, messages: int) -> None:
    """In the fork: write the answer and end the process, with all threads of XLA. messages: what XLA prints."""
    status = 1
    try:
        end_with_parent()
        answer: Any
        try:
            answer = _answer(request)
            if isinstance(answer, Answer):  # XLA warns before it writes the module
                printed = os.pread(messages, WARNING_BYTES, 0).decode(errors="replace")
                answer = dataclasses.replace(answer, warnings=warnings_of(printed))
        except DistxlaError as error:
            answer = error
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(answer, pipe, protocol=pickle.HIGHEST_PROTOCOL)
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(status)


def _answer(request: Request) -> Answer | Converted:
    if request.options is None:
        return converted(request.module, request.platform)
    return partitioned(request, request.options)


def converted(module: bytes, platform: int | None = None) -> Converted:
    """A module in another form; where a platform is given, for that."""
    try:
        proto = module_proto_of(module)
        if proto is not None:
            return Converted(described(proto).text, proto, None, None)
        if platform is not None:
            module = private_mlir.for_platform(module, platform)
        counts = private_names.counts_of_stablehlo(module)
        proto = private_names.proto_of_stablehlo(module)
        return Converted(described(proto).text, proto, *counts, None if platform is None else module)
    except DistxlaError:
        raise
    except Exception as error:
        raise _failure([error]) from error


def partitioned(request: Request, options: private_names.PartitionerOptions) -> Answer:
    """Partition in this process, which has to end afterwards: a thread of it may go on compiling."""
    try:
        events = watch_folder(request.folder)
    except OSError as error:
        raise PartitioningError(f"cannot watch {request.folder}: {error.strerror}") from None
    ended, end = os.pipe()
    failures: list[Exception] = []

    def work() -> None:
        try:
            module = _stablehlo(request.module, options)
            private_names.compile_with_dumps(module, options, request.folder, "|".join(PASSES))
        except Exception as error:
            failures.append(error)
        os.close(end)

    threading.Thread(target=work, daemon=True).start()
    if not _is_written(events, ended, options) and last_dump(request.folder, options) is None:
        raise _failure(failures)
    return _read(request.folder, options)


def partitioned_here(module: bytes, options: private_names.PartitionerOptions) -> Answer:
    """Partition in this process, which goes on afterwards; blocks until XLA has compiled all of the module.

    A check of XLA that fails ends this process. PartitioningError where XLA refuses the module.
    """
    with tempfile.TemporaryDirectory(prefix="distxla-partition-") as folder:
        failures: list[Exception] = []
        try:
            private_names.compile_with_dumps(_stablehlo(module, options), options, folder, "|".join(PASSES))
        except Exception as error:  # perhaps of a pass behind the partitioner, which distxla does not need
            failures.append(error)
        if last_dump(folder, options) is None:
            raise _failure(failures)
        return _read(folder, options)


def _stablehlo(module: bytes, options: private_names.PartitionerOptions) -> bytes:
    """What XLA compiles of a module in any form."""
    found = private_mlir.without_late_calls(_any_stablehlo(module))
    if options.has_whole_results:
        return private_mlir.with_whole_results(found, options.use_shardy, options.partitions)
    return found


def is_stablehlo(module: bytes) -> bool:
    """Whether that is StableHLO text or MLIR bytecode, not HLO."""
    if module.startswith(MLIR_BYTECODE):
        return True
    return module_proto_of(module) is None and format_of_text(module.decode(), "<module>") is not None


def _any_stablehlo(module: bytes) -> bytes:
    if is_stablehlo(module):
        return module
    proto = module_proto_of(module)
    if proto is None:
        return private_names.stablehlo_of_text(module.decode())
    return private_names.stablehlo_of_proto(proto)


def _is_written(events: int, ended: int, options: private_names.PartitionerOptions) -> bool:
    """Whether the partitioned module is complete, as soon as it is; False if XLA ends before."""
    given: str | None = None
    while True:
        ready = readable(events, ended)
        if events in ready:
            for name in closed_files(events):
                if given is None and name.endswith(_GLOBAL):
                    given = _module_of(name)
                if _module_of(name) == given and is_last(name, options):
                    return True
        elif ended in ready:
            return False


def is_last(name: str, options: private_names.PartitionerOptions) -> bool:
    """Whether the dump of this name holds what the partitioner's passes make.

    XLA's pipeline has spmd-partitioning for several partitions, else sharding-remover and shardy-xla, and in newer
    versions control-dep-rewriter behind them. It also dumps the module before each of them.
    """
    found = _AFTER.search(name)
    if found is None or found["after"] not in PASSES or found["before"] in PASSES:
        return False
    return options.partitions == 1 or found["after"] != "shardy-xla"


def _module_of(name: str) -> str:
    """`module_0002` of a dump's name: XLA counts the modules that a process compiles."""
    return name.partition(".")[0]


def _dumps(folder: str) -> list[str]:
    """The names of the dumps of the module that was given, the global one first: XLA may compile parts of it as modules
    of their own, and begins with the whole."""
    names = sorted(os.listdir(folder))
    whole = next((name for name in names if name.endswith(_GLOBAL)), None)
    if whole is None:
        return []
    return [whole, *(name for name in names if _module_of(name) == _module_of(whole) and name != whole)]


def last_dump(folder: str, options: private_names.PartitionerOptions) -> str | None:
    return next((name for name in _dumps(folder) if is_last(name, options)), None)


def _failure(failures: list[Exception]) -> DistxlaError:
    if not failures:
        return PartitioningError("XLA compiled the module without a pass that partitions")
    (error,) = failures
    return error if isinstance(error, DistxlaError) else PartitioningError(f"XLA refuses the module: {error}")


def _read(folder: str, options: private_names.PartitionerOptions) -> Answer:
    whole, name = _dumps(folder)[0], last_dump(folder, options)
    assert name is not None
    proto = _proto(folder, name)
    made, given = described(proto), private_names.describe_hlo(_proto(folder, whole))
    if found := difference(made, given):
        raise PartitioningError(f"XLA's partitioner made another module than the one that was given: {found}")
    if options.partitions > 1:
        made = _with_declared_values(made, folder)
    return Answer(proto, made, given.parameter_shapes, given.output_shapes)


def _with_declared_values(made: private_names.HloDescription, folder: str) -> private_names.HloDescription:
    """With what the module before the partitioner says of values that leave manual regions."""
    name = next((name for name in _dumps(folder) if name.endswith(_BEFORE)), None)
    proto = None if name is None else _proto(folder, name)
    if proto is None or BORDER not in proto:
        return made
    before = private_names.describe_hlo(proto).text
    return dataclasses.replace(made, text=with_declared_values(made.text, before))


def difference(made: private_names.HloDescription, given: private_names.HloDescription) -> str:
    """How the partitioned module contradicts the given one, or what it leaves out; "" where neither is so."""
    if _NAME.findall(made.text)[:1] != _NAME.findall(given.text)[:1]:
        return f"it begins with {made.text[:60]!r}"
    for what, found, wanted in (
        ("parameters", made.parameter_shapes, given.parameter_shapes),
        ("results", made.output_shapes, given.output_shapes),
    ):
        if list(map(_kind, found)) != list(map(_kind, wanted)):
            return f"its {what} are {', '.join(found)}, the given one's {', '.join(wanted)}"
    return "a call is compiled apart from its caller" if _CALL_OF_ANOTHER_MODULE in made.text else ""


def _kind(shape: str) -> str:
    """`f32[2,3]{1,0}` -> `f32[_,_]`: type and rank, which partitioning leaves."""
    return _SIZE.sub("_", shape.partition("{")[0])


def described(proto: bytes) -> private_names.HloDescription:
    """With negative zeros as HLO text has them: XLA prints -0, which its parser, and distxla's, read as an integer."""
    found = private_names.describe_hlo(proto)
    text = _LITERAL.sub(lambda literal: _NEGATIVE_ZERO.sub("-0.0", literal[0]), found.text)
    return dataclasses.replace(found, text=text)


def _proto(folder: str, name: str) -> bytes:
    with open(os.path.join(folder, name), "rb") as file:
        proto = module_proto_of(file.read())
    if proto is None:
        raise PartitioningError(f"XLA's dump {name} holds no HloModuleProto")
    return proto


if __name__ == "__main__":
    main()
