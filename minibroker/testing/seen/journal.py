"""The journal: the newest requests and answers of an embedded broker, in bounded memory.

`exchange` has one request with its answer. The journal is among the interceptors only while it is on.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from minibroker.broker.network.output_items import BYTES, CLOSE
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.security.principals import ANONYMOUS, USER, Principal
from minibroker.named_tuples import NamedTuple
from minibroker.protocol import errors
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.testing.completion import hide_names
from minibroker.testing.loops import shorten_tracebacks
from minibroker.testing.seen.exchange import (
    SIZE_BYTES,
    Exchange,
    copy_answer_without_secrets,
    copy_frame,
    copy_request_without_secrets,
    find_api_key,
    list_error_names,
)
from minibroker.testing.seen.explained_requests import Exchanges

if TYPE_CHECKING:
    from minibroker.testing.seen.hosting import InterceptedHost

MAXIMUM_EXCHANGES = 10_000
MAXIMUM_BYTES = 64 << 20
MAXIMUM_REFUSALS = 100
MAXIMUM_MARKS = 1_000
JOURNAL_IS_OFF = "the journal is off and sees no requests: call journal.on() first"

ExchangePredicate = Callable[[Exchange], object]


class JournalMark(NamedTuple):
    """What a test or a client of the registry did between two requests: `after` is the number of the last one before.

    `kind` is "clock", "fault", "node", "group", "transaction", "registry" or "life"; `at_ms` is by the broker's clock.
    """

    number: int
    after: int
    at_ms: int
    kind: str
    text: str


class ExchangeConditions(TypedDict, total=False):
    """Conditions for requests: client, user and how it logged in, group, node, error; a function of the exchange.

    `user` is "ANONYMOUS" for clients without a login, and `error` the name of an error in the answer.
    """

    client_id: str | None
    user: str | None
    mechanism: str | None
    group: str | None
    node: int | None
    error: str | None
    where: ExchangePredicate | None


@hide_names(
    *("list_exchanges", "get_exchange_of_call", "add_refusal", "add_exchanges", "marks", "list_exchanges_after"),
    *("oldest", "get_exchange", "add_mark", "set_limits", "when_ended"),
    *vars(Interceptor),
)
class Journal(Interceptor):
    """The requests and answers of the broker. `dropped` counts those removed for newer ones."""

    only_watches = True

    def __init__(
        self, broker: InterceptedHost, maximum_exchanges: int = MAXIMUM_EXCHANGES, maximum_bytes: int = MAXIMUM_BYTES
    ) -> None:
        self._broker = broker
        self._maximum_exchanges = maximum_exchanges
        self._maximum_bytes = maximum_bytes
        self._exchanges: deque[Exchange] = deque()
        self._open: dict[Call, Exchange] = {}
        self._refusals: deque[KafkaError] = deque(maxlen=MAXIMUM_REFUSALS)
        self._thread: threading.Thread | None = None
        self._kept_bytes = 0
        self._number = 0
        self._unwatch: Callable[[], object] | None = None
        self.dropped = 0
        self.when_ended: list[Callable[[Exchange], None]] = []  # called on the loop with each request that has ended
        self.marks: deque[JournalMark] = deque(maxlen=MAXIMUM_MARKS)
        self._marks_made = 0
        broker.reset_callbacks.append(self._clear_exchanges)

    # --- for tests --------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Return whether new requests are kept."""
        return self in self._broker.interceptors

    @property
    def seen(self) -> int:
        """Return how many requests were kept, including dropped ones."""
        return self._number

    def on(self) -> None:
        """Keep requests from now on."""
        self._broker.call_on_loop(self._turn_on)

    def off(self) -> None:
        """Keep no more requests; those that were kept stay."""
        self._broker.call_on_loop(self._turn_off)

    def clear(self) -> None:
        """Drop all requests."""
        self._broker.call_on_loop(self._clear_exchanges)

    @shorten_tracebacks
    def requests(self, api: str | None = None, **conditions: Unpack[ExchangeConditions]) -> Exchanges:
        """Return the requests of an API ("Fetch") or of all, which meet the conditions, oldest first.

        Their `explain()` returns what each byte means.

        Raises ValueError for an API or an error that Kafka does not have, and RuntimeError if the journal was never on.
        """
        if not self._number and not self.is_on:
            raise RuntimeError(JOURNAL_IS_OFF)
        return Exchanges(self._broker.call_on_loop(lambda: self.list_exchanges(api, **conditions)))

    def save(self, path: str | Path) -> int:
        """Write all requests to a file, each a line of JSON; return how many. Raises OSError."""
        import json

        kept = self.requests()
        with open(path, "w", encoding="utf-8") as file:
            for exchange in kept:
                file.write(json.dumps(exchange.as_json()) + "\n")
        return len(kept)

    # --- on the loop ------------------------------------------------------------------------------

    def list_exchanges(self, api: str | None = None, **conditions: Unpack[ExchangeConditions]) -> list[Exchange]:
        """Return what `requests` returns, on the broker's loop, whether the journal is on or not."""
        meets = make_exchange_filter(api, **conditions)
        return [exchange for exchange in self._exchanges if meets(exchange)]

    def list_exchanges_after(self, number: int, count: int) -> Iterable[Exchange]:
        """Return the next `count` requests after the one with this number, oldest first. They are numbered in turn."""
        first = max(len(self._exchanges) - (self._number - number), 0)
        return [self._exchanges[at] for at in range(first, min(first + count, len(self._exchanges)))]

    def get_exchange(self, number: int) -> Exchange | None:
        """Return the request with this number, if it is still kept."""
        found = next(iter(self.list_exchanges_after(number - 1, 1)), None)
        return found if found is not None and found.number == number else None

    @property
    def oldest(self) -> int:
        """Return the number of the oldest request, or that of the next one if none is kept."""
        return self._exchanges[0].number if self._exchanges else self._number + 1

    def add_exchanges(self, exchanges: Iterable[Exchange]) -> None:
        """Keep requests that another journal has saved, before those that follow."""
        for exchange in exchanges:
            self._number += 1
            exchange.number = self._number
            self._add_exchange(exchange)
            self._count_bytes(len(exchange.answer_bytes))

    def add_mark(self, kind: str, text: str) -> None:
        """Add a mark for an action of a test, if the journal is on."""
        self._marks_made += 1
        self.marks.append(JournalMark(self._marks_made, self._number, self._broker.moving_clock.wall_ms(), kind, text))

    def set_limits(self, exchanges: int, size_bytes: int) -> None:
        """Set how many exchanges, and how many bytes of them, are kept at most."""
        self._maximum_exchanges, self._maximum_bytes = exchanges, size_bytes
        self._drop_oldest_exchanges()

    def get_exchange_of_call(self, call: Call) -> Exchange | None:
        """Return the exchange of a running request, if it is kept."""
        return self._open.get(call)

    def _turn_on(self) -> None:
        if not self.is_on:
            self._broker.add_interceptor_first(self)  # so that it sees what the client sends and gets
            self._broker.event_listeners.append(self.add_mark)
            self._unwatch = _pass_errors_to_journal(self)

    def _turn_off(self) -> None:
        if self.is_on:
            self._broker.interceptors.remove(self)
            self._broker.event_listeners.remove(self.add_mark)
            if self._unwatch is not None:
                self._unwatch()
            self._open.clear()

    def _clear_exchanges(self) -> None:
        self._exchanges.clear()
        self.marks.clear()
        self._kept_bytes = self.dropped = 0

    def add_refusal(self, error: KafkaError) -> None:
        """Record an error with a message, unless another broker of this process raised it in its own thread."""
        if error.message and threading.current_thread() is self._thread:
            self._refusals.append(error)

    def _add_exchange(self, exchange: Exchange) -> None:
        """Keep an exchange, and count its bytes."""
        self._exchanges.append(exchange)
        self._count_bytes(len(exchange.request_bytes))

    def _count_bytes(self, size_bytes: int) -> None:
        """Count bytes that are kept, and drop the oldest exchanges beyond the limits."""
        self._kept_bytes += size_bytes
        if len(self._exchanges) > self._maximum_exchanges or self._kept_bytes > self._maximum_bytes:
            self._drop_oldest_exchanges()

    def _drop_oldest_exchanges(self) -> None:
        """Drop the oldest exchanges until all are within the limits."""
        while self._exchanges and (
            len(self._exchanges) > self._maximum_exchanges or self._kept_bytes > self._maximum_bytes
        ):
            dropped = self._exchanges.popleft()
            dropped.is_kept = False
            self._kept_bytes -= dropped.size_bytes
            self.dropped += 1

    # --- as an interceptor ------------------------------------------------------------------------

    def before_request(self, call: Call) -> None:
        """Begin the exchange of a request, and keep it."""
        self._thread = threading.current_thread()
        context = call.context
        self._number += 1
        frame = copy_request_without_secrets(call.api_key, context.version, call.frame)
        exchange = Exchange(self._number, call.api_key, context.version, call.correlation_id, frame)
        exchange.client_id, exchange.node_id = context.client_id, context.node.node_id
        connection = context.connection
        exchange.connection, exchange.software = connection.peer, connection.software
        exchange.user, exchange.mechanism = get_user(connection.principal), get_mechanism(call)
        exchange.started_ms = context.cluster.clock.wall_ms()
        self._open[call] = exchange
        self._refusals.clear()
        self._add_exchange(exchange)

    def alter_response(self, call: Call, response: Message) -> Message:
        """Keep the errors in an answer, with the broker's reasons."""
        exchange = self._open.get(call)
        if exchange is not None:
            exchange.errors = list_error_names(response)
            if exchange.errors:
                exchange.refusals = tuple(self._iterate_refusal_messages(exchange.errors))
        return response

    def _iterate_refusal_messages(self, names: tuple[str, ...]) -> Iterator[str]:
        """Yield the broker's messages for these errors, each once."""
        yield from dict.fromkeys(str(error) for error in self._refusals if error.code.name in names)

    def alter_frame(self, call: Call, items: list[Any]) -> list[Any]:
        """Keep the bytes of an answer, without secrets."""
        exchange = self._open.get(call)
        if exchange is not None:
            end = items.index(CLOSE) if CLOSE in items else len(items)
            answer = _join_answer_items(items[:end])
            exchange.answer_bytes = copy_answer_without_secrets(exchange.api_key, exchange.version, answer)
            if exchange.is_kept:
                self._count_bytes(len(exchange.answer_bytes))
        return items

    def on_sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        """End the exchange: it is answered, or has no answer."""
        self._end_exchange(call, "answered" if sent_bytes else "unanswered", duration_ms)

    def on_lost(self, call: Call) -> None:
        """End the exchange: its client or the request failed before an answer was sent."""
        self._end_exchange(call, "lost", None)

    def _end_exchange(self, call: Call, outcome: str, duration_ms: float | None) -> None:
        """Set how an exchange ended, and tell those who wait for its end."""
        exchange = self._open.pop(call, None)
        if exchange is not None:
            exchange.outcome, exchange.duration_ms, exchange.ended_before = outcome, duration_ms, self._number + 1
            for tell in self.when_ended:
                tell(exchange)


def make_exchange_filter(
    api: str | None = None, **conditions: Unpack[ExchangeConditions]
) -> Callable[[Exchange], bool]:
    """Return the function that says whether a request meets the conditions. Raises ValueError, as `requests` does."""
    api_key = None if api is None else find_api_key(api)
    client_id, group, node, where = (conditions.get(name) for name in ("client_id", "group", "node", "where"))
    user, mechanism, error = conditions.get("user"), conditions.get("mechanism"), conditions.get("error")
    if error is not None and error.upper() not in ErrorCode.__members__:
        raise ValueError(f"{error!r} is not an error of Kafka, such as NOT_LEADER_OR_FOLLOWER")

    def matches(exchange: Exchange) -> bool:
        return bool(
            (api_key is None or exchange.api_key == api_key)
            and (client_id is None or exchange.client_id == client_id)
            and (user is None or (exchange.user or ANONYMOUS.name) == user)
            and (mechanism is None or exchange.mechanism == mechanism)
            and (node is None or exchange.node_id == node)
            and (group is None or group in exchange.groups)
            and (error is None or error.upper() in exchange.errors)
            and (where is None or cast(ExchangePredicate, where)(exchange))
        )

    return matches


def _join_answer_items(items: list[Any]) -> bytes:
    """Return the frame of an answer, without its size."""
    if len(items) == 1 and items[0].__class__ in (bytes, bytearray):
        return copy_frame(memoryview(items[0]).toreadonly()[SIZE_BYTES:])
    return b"".join(item if item.__class__ in BYTES else item.read() for item in items)[SIZE_BYTES:]


def get_user(principal: Principal) -> str | None:
    """Return the name of a user, with its type if it is another than usual; None for a client without a login."""
    return None if principal == ANONYMOUS else principal.name if principal.type == USER else str(principal)


def get_mechanism(call: Call) -> str | None:
    """Return the SASL mechanism of the client, or None without SASL."""
    authenticator = call.context.connection.authenticator
    return None if authenticator is None else authenticator.mechanism


def _pass_errors_to_journal(journal: Journal) -> Callable[[], object]:
    """Pass errors to `journal` until the returned function is called, or the journal is garbage."""
    held = weakref.ref(journal)

    def record_error(error: KafkaError) -> None:
        watching = held()
        if watching is not None:
            watching.add_refusal(error)

    errors.witnesses.append(record_error)
    return weakref.finalize(journal, errors.witnesses.remove, record_error)
