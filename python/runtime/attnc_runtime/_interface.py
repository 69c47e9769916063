"""Whether the binary module is the one that this package was written for."""

from __future__ import annotations

import hashlib
import os

from . import _core


def _check() -> None:
    with open(os.path.join(os.path.dirname(__file__), "_core.pyi"), "rb") as stub:
        expected = hashlib.sha256(stub.read()).hexdigest()[:12]
    found = getattr(_core, "interface", "none")
    if found != expected:
        raise ImportError(
            f"{_core.__file__} (version {_core.version}) has interface {found}, and the package beside it expects "
            f"{expected}: one of them is older. './dev build' builds it in the repository; elsewhere "
            "'pip install --force-reinstall attnc-runtime' does",
            name=_core.__name__,
            path=_core.__file__,
        )


_check()
