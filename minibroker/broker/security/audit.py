"""The audit log of authorization, as Kafka's `kafka.authorizer.logger`: denials at INFO, permissions at DEBUG.

Only rights that a request needs are logged. Those that only decide what a list shows are not, as in Kafka.
"""

from __future__ import annotations

import logging

from minibroker.broker.security.operations import Right
from minibroker.broker.security.principals import Principal

log = logging.getLogger("minibroker.authorizer")


def log_verdict(principal: Principal, host: str, right: Right, name: str, *, is_allowed: bool) -> None:
    """Log whether a principal may do something with the resource of this name."""
    level = logging.DEBUG if is_allowed else logging.INFO
    if not log.isEnabledFor(level):
        return
    fields = {
        "principal": str(principal),
        "host": host,
        "operation": right.operation.name,
        "resource_type": right.resource_type.name,
        "resource": name,
        "allowed": is_allowed,
    }
    verdict = "allowed" if is_allowed else "denied"
    told = fields["principal"], host, verdict, fields["operation"], fields["resource_type"], name
    log.log(level, "%s from %s is %s %s on %s %s", *told, extra=fields)
