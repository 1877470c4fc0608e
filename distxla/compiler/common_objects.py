"""Object code of functions that are the same in many programs (targets/common_functions.py): made once.

It stays in memory while the process lives, and on disk beside the compiled programs.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from distxla.compiler.cache_folder import CacheFolder
from distxla.compiler.cache_key import text_key
from distxla.targets.code import CodeTarget

MEMORY_BYTES: Final = 16 << 20  # of texts and code

kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()


def common_object(text: str, code: CodeTarget, files: CacheFolder | None) -> bytes:
    """The object code of the LLVM module of this text; raises what LLVM raises.

    files: where it is kept between processes; None: only in this one.
    """
    name = code.name, text
    found = kept.get(name)
    if found is not None:
        kept.move_to_end(name)
        return found
    key = text_key("common function", code.name, text)
    found = None if files is None else files.read(key)
    if found is None:
        parsed = code.parse(text)
        code.optimise(parsed)
        found = code.emit_object(parsed)
        if files is not None:
            files.write(key, found)
    kept[name] = found
    while sum(len(text) + len(code_bytes) for (_, text), code_bytes in kept.items()) > MEMORY_BYTES:
        kept.popitem(last=False)
    return found


__all__ = ["common_object"]
