"""Options of Spark's own Kafka source and settings of Kafka's client that have no meaning here.

Jobs that were written for Spark's connector run unchanged: such options are accepted, and one warning names them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

log: Final = logging.getLogger(__name__)

KAFKA: Final = "kafka."
# Spark's connector polls in a consumer group, and retries by itself; its client is Java's.
OPTIONS: Final = (
    *("groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
)
GROUP: Final = (
    *("group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "partition.assignment.strategy"),
    *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records"),
    *("auto.commit.interval.ms", "exclude.internal.topics", "client.rack"),
)
CLIENT: Final = (
    *("metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.strategy"),
    *("metadata.recovery.rebootstrap.trigger.ms", "metric.reporters", "metrics.num.samples"),
    *("metrics.recording.level", "metrics.sample.window.ms", "auto.include.jmx.reporter", "enable.metrics.push"),
    *("security.providers", "socket.keepalive.enable", "log.connection.close", "statistics.interval.ms"),
)
PRODUCER: Final = ("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "client.rack")
OF_READERS: Final = {name.lower(): name for name in (*OPTIONS, *(f"{KAFKA}{name}" for name in (*GROUP, *CLIENT)))}
OF_WRITERS: Final = {f"{KAFKA}{name}": f"{KAFKA}{name}" for name in (*PRODUCER, *CLIENT)}


def list_meaningless(options: Mapping[str, str], *, writing: bool = False) -> list[str]:
    """Return the names among these options that have no meaning for a reader, or for a writer, sorted."""
    known = OF_WRITERS if writing else OF_READERS
    return sorted(known[name.lower()] for name in options if name.lower() in known)


def drop_ignored(options: Mapping[str, str], ignored: Iterable[str]) -> dict[str, str]:
    """Return the other options. Names may be in any case."""
    left_out = {name.lower() for name in ignored}
    return {name: value for name, value in options.items() if name.lower() not in left_out}


def warn_of(ignored: Iterable[str]) -> None:
    """Log the names of such options, in one line."""
    names = ", ".join(ignored)
    if names:
        log.warning("ignored, as without meaning here: %s", names)
