"""The lines that `minibroker serve` writes to stderr: for people, or a JSON object each for a collector of logs.

What is worth a line, and with which fields, is decided where it happens: `extra=` of the logging call.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FORMATS = ("text", "json")

# What logging puts into every record by itself; anything else was passed as `extra`.
OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"asctime", "message", "taskName"}


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, message, the fields of `extra`, and exception if there is one.

    A field that cannot be JSON becomes its text. ASCII only, so that no terminal and no collector stumbles.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in OWN:
                line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str)


def formatter(name: str) -> logging.Formatter:
    """The formatter of this name, one of `FORMATS`."""
    return JsonFormatter() if name == "json" else logging.Formatter(TEXT_FORMAT)
