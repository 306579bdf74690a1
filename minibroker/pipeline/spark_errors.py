"""Finds the reason of a failure, in one line, in the long text of a Spark error."""

from __future__ import annotations

import re
from typing import Final

# The last line of a traceback: the exception's qualified name and message.
RAISED: Final = re.compile(r"^(?P<name>[A-Za-z_][\w.]*): (?P<message>.+)$")
OURS: Final = "minibroker."
ERROR_CLASS: Final = re.compile(r"^\[[A-Z_.0-9]+\] ")
CAUSE: Final = re.compile(r"^(?:Caused by)?: (?P<name>[\w.$]+): (?P<message>.+)$", re.MULTILINE)

# What Kubernetes' API server answered, between the request and the same again as Java prints it.
ANSWERED: Final = re.compile(r"Failure executing: .+? Message: (?P<message>.+?)\. Received status: Status\(")


def find_reason_in_spark_error(text: str) -> str:
    """Return the Python error of ours in Spark's text, else any Python error, else Java's cause.

    Spark wraps a task's error several times, with the stack traces of Java and of Python around it.
    """
    raised = [match for line in text.splitlines() if (match := RAISED.match(line))]
    for match in reversed(raised):
        if match["name"].startswith(OURS):
            return match["message"]
    if "Traceback (most recent call last)" in text and raised:
        return f"{raised[-1]['name'].rpartition('.')[2]}: {raised[-1]['message']}"
    causes = list(CAUSE.finditer(text))
    if causes and (answered := ANSWERED.search(causes[-1]["message"])):
        return answered["message"]
    if causes:
        return f"{causes[-1]['name'].rpartition('.')[2]}: {causes[-1]['message']}"
    first = next((line for line in text.splitlines() if line.strip()), text)
    return ERROR_CLASS.sub("", first)
