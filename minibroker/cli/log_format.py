"""The log lines on stderr: text for people, or JSON for log collectors.

Logging calls set the fields with `extra=`. This file shortens and escapes text from clients, such as names, so that a
line is one line of bounded length. That is most of this file, and python-json-logger (4.2), which takes 10 to 20 ms to
import, does not do it.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from minibroker.protocol.legible import MESSAGE_CHARACTERS, VALUE_CHARACTERS, make_legible, shorten_text

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FORMATS = ("text", "json")
LINE_CHARACTERS = 2_000
TRACEBACK_CHARACTERS = 20_000
INDENT = "  "

# The attributes that logging sets in every record; any other was passed as `extra`.
OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"asctime", "message", "taskName"}


class TextFormatter(logging.Formatter):
    """A line for people. A traceback follows indented, so that it cannot be mistaken for log lines."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = format_message(record)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(INDENT + line for line in split_lines(super().formatException(ei)))

    def formatStack(self, stack_info: str) -> str:
        return "\n".join(INDENT + line for line in split_lines(stack_info))


class JsonFormatter(logging.Formatter):
    """An object per line: time (UTC), level, logger, message, the fields of `extra`, and exception if there is one.

    Fields that are not valid JSON become text. The output is ASCII, which every terminal and collector can read.
    """

    def format(self, record: logging.LogRecord) -> str:
        import json  # a start takes a millisecond longer for each of these
        from datetime import UTC, datetime

        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": format_message(record),
        }
        for name, value in vars(record).items():
            if name not in OWN:
                line.setdefault(name, make_legible(value) if isinstance(value, str) else value)
        if record.exc_info:
            line["exception"] = "\n".join(split_lines(self.formatException(record.exc_info)))
        if record.stack_info:
            line["stack"] = "\n".join(split_lines(self.formatStack(record.stack_info)))
        return json.dumps(line, default=lambda value: make_legible(str(value), MESSAGE_CHARACTERS))


def format_message(record: logging.LogRecord) -> str:
    """Return the record's message as one line: each argument is shortened, and then the whole line."""
    arguments = record.args
    if isinstance(arguments, tuple):
        arguments = tuple(shorten_text(each, VALUE_CHARACTERS) if isinstance(each, str) else each for each in arguments)
    message = str(record.msg)
    return make_legible(message % arguments if arguments else message, LINE_CHARACTERS)


def split_lines(text: str) -> list[str]:
    """Return the lines of a traceback or a stack, each escaped."""
    return [make_legible(line, MESSAGE_CHARACTERS) for line in shorten_text(text, TRACEBACK_CHARACTERS).split("\n")]


def format_debug_line(logger: str, text: str) -> str:
    """Return a line for people, as `serve` writes it."""
    return TextFormatter().format(logging.LogRecord(logger, logging.DEBUG, "", 0, text, None, None))


def make_formatter(name: str) -> logging.Formatter:
    """Return the formatter of this name, one of `FORMATS`."""
    return JsonFormatter() if name == "json" else TextFormatter()


def start_logging_to_stderr(level: str, format: str) -> None:
    """Write log lines of this level and above to stderr, in a form of `FORMATS`.

    Only collectors get the events: whoever reads text sees the lines on stdout, and has stopped the process himself.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(make_formatter(format))
    logging.basicConfig(handlers=[handler], level=level.upper())
    if format != "json":  # by the level: libraries enable loggers that are disabled
        logging.getLogger("minibroker.events").setLevel(logging.CRITICAL)
