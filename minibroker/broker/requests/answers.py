"""Answers to Metadata that may be sent again to the same request, until something changes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from minibroker.broker.requests.routes import SIZE, SIZE_AND_CORRELATION_ID

if TYPE_CHECKING:
    from minibroker.broker.requests.context import RequestContext

MAX_LASTING_BYTES = 4 << 20  # of cached answers; the largest may exceed it


class LastingAnswers:
    """A cache of answers by request bytes; a change of the cluster begins another one."""

    def __init__(self) -> None:
        self._generation: Any = None
        self._answers: dict[Hashable, bytes] = {}
        self._size_bytes = 0

    def find_answer(self, context: RequestContext, body: memoryview) -> list[Any] | None:
        """Return the items of the cached answer to a request, or None; then note where its answer can be kept."""
        cluster, connection = context.cluster, context.connection
        generation = cluster, cluster.answer_cache_generation
        if self._generation != generation:
            self._generation, self._answers, self._size_bytes = generation, {}, 0
        host = None if cluster.authorizer is None else connection.host
        asked = connection.node, connection.listener, connection.principal, host, context.version, bytes(body)
        kept = self._answers.get(asked)
        if kept is None:
            context.cache_place = self._answers, asked
            return None
        return [SIZE_AND_CORRELATION_ID.pack(len(kept) + SIZE.size, context.correlation_id), kept]

    def keep_answer(self, context: RequestContext, items: list[Any]) -> None:
        """Keep the answer to a request with a `cache_place`, unless something has changed since it began."""
        answers, asked = context.cache_place
        if answers is not self._answers or len(items) != 1 or len(items[0]) > MAX_LASTING_BYTES:
            return
        if self._size_bytes > MAX_LASTING_BYTES:
            answers.clear()
            self._size_bytes = 0
        answers[asked] = bytes(memoryview(items[0])[SIZE_AND_CORRELATION_ID.size :])
        self._size_bytes += len(items[0])
