"""A device module's text, rewritten for this machine's processor.

LLVM prints a module in one form: an instruction a line, each with its alignment; intrinsics are called by their names
and are nowhere else. Address spaces stay: on this processor all are one memory, to which LLVM compiles them.
"""

from __future__ import annotations

import re
from typing import Any

from distxla.emit.native_function import I32
from distxla.errors import CompileError
from distxla.lazy_dataclass import dataclass, field
from distxla.targets.nvptx.emulator.access import CHECK, CHECK_SHARED, PARAMETERS
from distxla.targets.nvptx.emulator.instrument import SHARED, accesses, checks
from distxla.targets.nvptx.emulator.intrinsics import INTRINSICS, PREFIX
from distxla.targets.nvptx.emulator.layout import DYNAMIC_SHARED_BYTES, SHARED_GAP
from distxla.targets.nvptx.emulator.prepared import Constant, PreparedKernel, SharedArray
from distxla.targets.nvptx.emulator.text import read_type, stored_bytes

GLOBAL = re.compile(r"^(?P<name>@(?:[^\s\"]+|\"[^\"]*\")) = (?P<words>[^@]*?)\b(?P<kind>global|constant) (?P<rest>.*)$")
DEVICE = re.compile(r"@(llvm\.(?:nvvm\.[\w.]+|trap))\(")
ELEMENTS = re.compile(r"\[\d+ x (\w+)\]")
CALLED = re.compile(r"@([\w.$-]+|\"[^\"]*\")\(")
DEFINED = re.compile(r"^define .*?@([\w.$-]+|\"[^\"]*\")\(")
LINKAGE = re.compile(r"\b(internal|private|linkonce|linkonce_odr|weak|weak_odr|hidden|protected|dso_local) ")
TARGET_ATTRIBUTE = re.compile(r'"(target-cpu|target-features|tune-cpu)"="[^"]*" ?')
# what is true on a GPU but not of a function that a loop over threads calls, or that switches to another thread
EFFECT = re.compile(r"\b(memory\([^()]*\)|speculatable|nosync|nofree|willreturn|mustprogress|norecurse|convergent) ?")


@dataclass
class Rewritten:
    """sites: (function, instruction's text); a site's number is its position.  granule: bytes of the smallest access to
    shared memory, as instructions and the elements of shared arrays show it."""

    text: str = ""
    kernels: dict[str, PreparedKernel] = field(default_factory=dict)
    shared: list[SharedArray] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    intrinsics: set[str] = field(default_factory=set)
    sites: list[tuple[str, str]] = field(default_factory=list)
    granule: int = 4


def rewrite(parsed: Any, triple: str, data_layout: str, *, checked: bool) -> Rewritten:
    """parsed: the device module.  checked: put a check before every access to memory."""
    return _Rewriter(parsed, triple, data_layout, checked).run()


class _Rewriter:
    def __init__(self, parsed: Any, triple: str, data_layout: str, checked: bool) -> None:
        self.parsed = parsed
        self.header = [f'target datalayout = "{data_layout}"', f'target triple = "{triple}"']
        self.checked = checked
        self.result = Rewritten()
        self.lines: list[str] = []
        self.calls: dict[str, set[str]] = {}
        self.function = ""
        self.kernel_names: list[str] = []

    def run(self) -> Rewritten:
        for line in str(self.parsed).splitlines():
            self._line(line)
        self._declare()
        self.result.text = "\n".join([*self.header, *self.lines]) + "\n"
        functions = {function.name: function for function in self.parsed.functions}
        for name in self.kernel_names:
            parameters = tuple(str(argument.type) for argument in functions[name].arguments)
            self.result.kernels[name] = PreparedKernel(name, parameters, self._waits(name))
        return self.result

    def _line(self, line: str) -> None:
        if line.startswith("target "):
            return
        if line.startswith("@"):
            self._global(line)
        elif line.startswith("declare "):
            if not DEVICE.search(line):
                self.lines.append(line)
        elif line.startswith("define "):
            self._define(line)
        elif line.startswith("attributes "):
            # a group may not be empty, and no kernel unwinds
            self.lines.append(TARGET_ATTRIBUTE.sub("", EFFECT.sub("", line)).replace("{ ", "{ nounwind ", 1))
        elif line.startswith("  ") and self.function:
            self._instruction(line)
        else:
            if line == "}":
                self.function = ""
            self.lines.append(line)

    def _global(self, line: str) -> None:
        found = GLOBAL.match(line)
        if found is None or found["name"].startswith("@llvm."):
            self.lines.append(line)
            return
        name, words = found["name"], found["words"]
        kind, _ = read_type(found["rest"])
        space = f"addrspace({SHARED})"
        alignment = re.search(r", align (\d+)", found["rest"])
        align = f"align {max(16, int(alignment[1]) if alignment else 16)}"
        if space in words:
            dynamic = "external" in words
            if dynamic and any(array.dynamic for array in self.result.shared):
                raise CompileError(f"{name} is the second dynamic shared array; the emulator takes one")
            size = DYNAMIC_SHARED_BYTES if dynamic else stored_bytes(kind)
            held = f"<{{ [{size} x i8], [{SHARED_GAP} x i8] }}>"
            self.lines.append(f"{name} = hidden {space} global {held} zeroinitializer, {align}")
            self.result.shared.append(SharedArray(_plain(name), size, dynamic))
            if element := ELEMENTS.fullmatch(kind):
                self.result.granule = min(self.result.granule, stored_bytes(element[1]))
            return
        if "external" not in words.split():
            words = "hidden " + LINKAGE.sub("", words)
            writable = found["kind"] == "global"
            self.result.constants.append(Constant(_plain(name), stored_bytes(kind), writable))
        self.lines.append(f"{name} = {words}{found['kind']} {found['rest']}")

    def _define(self, line: str) -> None:
        match = DEFINED.match(line)
        if match is None:
            raise CompileError(f"the emulator can't read {line!r}")
        self.function = _plain(match[1])
        self.calls[self.function] = set()
        head, rest = line[: match.start(1) - 1], line[match.start(1) - 1 :]
        if "ptx_kernel " in head:
            # dropped where its launcher, which is made of it, is the only one to call it
            head = head.replace("ptx_kernel ", "")
            head = "define linkonce_odr " + LINKAGE.sub("", head.removeprefix("define "))
            self.kernel_names.append(self.function)
        self.lines.append(head.replace("ptx_device ", "") + EFFECT.sub("", rest))

    def _instruction(self, line: str) -> None:
        device = DEVICE.search(line)
        if device:
            name = device[1]
            if name not in INTRINSICS:
                raise CompileError(f"the emulator has no {name}, which @{self.function} calls")
            self.result.intrinsics.add(name)
            self.calls[self.function].add(name)
            more = "" if line[device.end()] == ")" else ", "
            line = f"{line[: device.start()]}@{PREFIX}{name}(i32 {self._site(line)}{more}{line[device.end() :]}"
            line = re.sub(r" #\d+(?=$|,)", "", line)
        else:
            self.calls[self.function].update(_plain(name) for name in CALLED.findall(line))
            if found := accesses(line):
                small = [int(a.size) if a.size.isdigit() else a.alignment for a in found if a.shared]
                self.result.granule = min([self.result.granule, *small])
                if self.checked:
                    self.lines += checks(line, self._site(line), len(self.lines))
        self.lines.append(line)

    def _site(self, line: str) -> int:
        self.result.sites.append((self.function, re.sub(r"(, ![\w.]+ !\d+)+$", "", line.strip())))
        return len(self.result.sites) - 1

    def _declare(self) -> None:
        for name in sorted(self.result.intrinsics):
            intrinsic = INTRINSICS[name]
            parameters = ", ".join(str(kind) for kind in (I32, *intrinsic.parameters))
            self.lines.append(f"declare {intrinsic.result} @{PREFIX}{name}({parameters})")
        if self.checked:
            self.lines += [f"declare void @{name}({PARAMETERS})" for name in (CHECK, CHECK_SHARED)]

    def _waits(self, name: str) -> bool:
        """Whether a function reaches an intrinsic at which its threads wait for each other."""
        reached, open_names = set(), [name]
        while open_names:
            current = open_names.pop()
            if current in INTRINSICS and INTRINSICS[current].waits:
                return True
            if current not in reached:
                reached.add(current)
                open_names += self.calls.get(current, ())
        return False


def _plain(name: str) -> str:
    """A symbol's name as the object file has it."""
    return name.removeprefix("@").strip('"')
