"""What test_cache_folder.py shares with other tests."""

from __future__ import annotations

import hashlib


def key(number: int) -> str:
    return hashlib.sha256(bytes([number])).hexdigest()
