"""Warnings that point at the line of the caller's own program."""

from __future__ import annotations

import os
import sys
import warnings

from distxla.errors import DistxlaWarning

_PACKAGE = os.path.dirname(__file__) + os.sep


def warn_caller(message: str) -> None:
    """Give a DistxlaWarning, as of the first frame outside of distxla; raises it where a filter says so."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DistxlaWarning, stacklevel=level)
