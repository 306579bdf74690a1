"""The partitions that a reader selects, by Spark's options `subscribe`, `subscribePattern` or `assign`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from minibroker.pipeline.log_source import OptionError, TopicPartition

# The topics of the brokers themselves. Kafka's clients list them only on request.
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"))


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The partitions of `topics`, of topics in whose name `pattern` is found, or those `assigned`; else all.

    As in Spark's Kafka source, `orders` also finds `orders-eu`. Internal topics are selected only by name.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def choose_partitions(
        self, existing: Iterable[TopicPartition], *, missing_ok: bool = False
    ) -> list[TopicPartition]:
        """Return the selected partitions among the existing ones, sorted.

        Raises `OptionError` if a named topic or partition does not exist, unless `missing_ok`, and for a malformed
        pattern.
        """
        there = sorted(existing)
        if missing_ok and (self.assigned or self.topics):
            return [each for each in there if each in self.assigned or each.topic in self.topics]
        if self.assigned:
            _refuse_missing_names("assign", [str(each) for each in set(self.assigned) - set(there)])
            return sorted(set(self.assigned))
        if self.topics:
            _refuse_missing_names("subscribe", set(self.topics) - {each.topic for each in there})
            return [each for each in there if each.topic in self.topics]
        search = _compile_pattern(self.pattern or "").search
        return [each for each in there if each.topic not in INTERNAL_TOPICS and search(each.topic)]


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise OptionError(f"subscribePattern: {pattern!r} is not a regular expression: {error}") from None


def _refuse_missing_names(option: str, names: Iterable[str]) -> None:
    missing = sorted(names)
    if missing:
        raise OptionError(f"{option}: there is no {', '.join(missing)}")
