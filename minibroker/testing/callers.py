"""Whose code a frame is: which frames of an error say something to who wrote the test."""

from __future__ import annotations

import sys
import traceback
from types import FrameType
from typing import Final

PACKAGE: Final = "minibroker.testing"  # where tests import errors from; pytest shows it
OURS: Final = sys.stdlib_module_names - {"test"} | {"minibroker"}  # a test may be in a package of this name


def remove_own_traceback(error: BaseException) -> BaseException:
    """Return an error without its traceback, unless that leads into a function of the test."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return error.with_traceback(None) if all(map(_is_frame_of_test_kit, frames)) else error


def _is_frame_of_test_kit(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in OURS
