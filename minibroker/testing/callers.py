"""Whose code a frame is: where the test kit warns, and which frames of an error say something to who wrote the test."""

from __future__ import annotations

import sys
import traceback
import warnings
from types import FrameType
from typing import Final

PACKAGE: Final = "minibroker.testing"  # where tests import errors from; pytest shows it
OURS: Final = sys.stdlib_module_names - {"test"} | {"minibroker"}  # a test may be in a package of this name


def warn(message: str) -> None:
    """Warn of something deprecated, at the line of the test that called the test kit."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    module = frame.f_globals
    registry = module.setdefault("__warningregistry__", {})
    name = module.get("__name__", "<unknown>")
    warnings.warn_explicit(message, DeprecationWarning, frame.f_code.co_filename, frame.f_lineno, name, registry)


def without_our_frames(error: BaseException) -> BaseException:
    """Return an error without its traceback, unless that leads into a function of the test."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return error.with_traceback(None) if all(map(_is_ours, frames)) else error


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in OURS
