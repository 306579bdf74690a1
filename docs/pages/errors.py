"""The text of the site's page errors.md, generated from the error codes and from what a client does about each.

`python3 -m docs.pages.errors` prints it; docs/conf.py writes it when the site is built.
"""

from __future__ import annotations

from typing import Final

from minibroker.client.client_errors import ErrorReaction, choose_error_reaction
from minibroker.protocol.errors import ErrorCode

PREAMBLE: Final = """\
# Errors

Kafka's error codes, as they are in answers, faults, metrics and the journal, by their names in Apache Kafka 4.4. The
last column says what a client does: some errors it reports to the program, others it retries until its own timeout
(`delivery.timeout.ms` of a producer), so that the program never sees them. It is what Java's clients do where the API
does not say otherwise; others mostly agree. A test makes the broker answer any of them: [faults](testing-faults.md).

Generated from `minibroker/protocol/errors.py` and `minibroker/client/client_errors.py`, by
`python3 -m docs.pages.errors`.

| code | name | clients |
| --- | --- | --- |
"""
DONE_BY_CLIENTS: Final = {
    ErrorReaction.FATAL: "report it",
    ErrorReaction.RETRY: "retry",
    ErrorReaction.FIND_LEADER: "look for the leader, then retry",
    ErrorReaction.FIND_COORDINATOR: "look for the coordinator, then retry",
}


def markdown() -> str:
    """Return the text of the page."""
    errors = [code for code in ErrorCode if code is not ErrorCode.NONE]
    return PREAMBLE + "".join(
        f"| {code} | {code.name} | {DONE_BY_CLIENTS[choose_error_reaction(code)]} |\n" for code in errors
    )


if __name__ == "__main__":
    print(markdown(), end="")
