"""The token that only this driver has for the Ray that it starts."""

from __future__ import annotations

import os
import secrets

from distxla.runtime.ray import client

_NAMES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


class Token:
    """A new random token."""

    def __init__(self) -> None:
        self._text = secrets.token_hex(32)
        self._others = {name: value for name, value in os.environ.items() if name not in _NAMES}
        self._before: dict[str, str | None] = {}

    def environment(self) -> dict[str, str]:
        """This process's environment as it was when the token was made, with the token added."""
        return self._others | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._text}

    def hold(self) -> None:
        """Put the token into this process's environment until `forget`, since Ray may read it again."""
        self._before = {name: os.environ.get(name) for name in _NAMES}
        os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=self._text)

    def forget(self) -> None:
        """Put the environment back."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._before:
            client.reread_environment()
