"""An interceptor that counts requests by API: number, size, duration and errors. `metrics` shows the numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.response_errors import collect_error_codes

DURATION_BUCKETS_MS = (0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)


class ApiStatistics:
    """The counters of an API.

    `requests` is by version, `errors` by code. `durations` counts answered requests by the smallest bound in
    `DURATION_BUCKETS_MS` that they stay within; the last counts the rest. `lost` counts requests without an answer.
    """

    __slots__ = ("duration_ms", "durations", "errors", "lost", "received_bytes", "requests", "sent_bytes")

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.lost = 0
        self.duration_ms = 0.0
        self.durations = [0] * (len(DURATION_BUCKETS_MS) + 1)


class RequestStatistics(Interceptor):
    """Counts all requests since it was created, by API. It must be the first interceptor, to see them all."""

    only_watches = True

    def __init__(self) -> None:
        self.by_api: dict[ApiKey, ApiStatistics] = {}

    def before_request(self, call: Call) -> None:
        statistics = self.by_api.get(call.api_key)
        if statistics is None:
            statistics = self.by_api[call.api_key] = ApiStatistics()
        statistics.requests[call.context.version] += 1
        statistics.received_bytes += call.received_bytes

    def alter_response(self, call: Call, response: Message) -> Message:
        codes = collect_error_codes(response)
        if codes:
            self.by_api[call.api_key].errors.update(codes)
        return response

    def on_sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        statistics = self.by_api[call.api_key]
        statistics.sent_bytes += sent_bytes
        statistics.duration_ms += duration_ms
        statistics.durations[bisect_left(DURATION_BUCKETS_MS, duration_ms)] += 1

    def on_lost(self, call: Call) -> None:
        self.by_api[call.api_key].lost += 1
