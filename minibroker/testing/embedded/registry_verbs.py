"""The schema registry of a test broker: schemas to register, its requests, its faults, and decoded records."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Protocol

from minibroker.addresses import HostPort
from minibroker.quantities import Duration, parse_milliseconds
from minibroker.registry.api.running_registry import RunningRegistry, parse_registry_address
from minibroker.registry.formats.schema import Reference
from minibroker.registry.state.registry import NewSchema
from minibroker.registry.state.registry_errors import Errors, RegistryError
from minibroker.registry.state.schema_state import SchemaState
from minibroker.testing.callers import PACKAGE
from minibroker.testing.completion import hide_names
from minibroker.testing.loops import BrokerLoop, NotRunning, blocking, immediate, make_coroutine_of_blocking_verb
from minibroker.testing.seen.log_reading import Record

if TYPE_CHECKING:
    from minibroker.broker.lifecycle import BrokerLifecycle
    from minibroker.registry.api.http_messages import Answer, Request
    from minibroker.registry.decoding import Decoder, SchemaSource
    from minibroker.testing.seen.journal import Journal

REQUESTS_MAX: Final = 1000
BODY_CHARACTERS_MAX: Final = 10_000  # of a request or an answer that is kept
FORBIDDEN: Final = "this test registers no schemas"


class RegistryHost(Protocol):
    """The broker that has the registry."""

    @property
    def reset_callbacks(self) -> list[Callable[[], None]]:
        """Return the callbacks that are called after a reset."""

    @property
    def journal(self) -> Journal:
        """Return the requests of Kafka clients."""

    def notify_event_listeners(self, kind: str, text: str) -> None:
        """Tell those who watch the broker what happens. Call it on the loop."""

    @property
    def loop(self) -> BrokerLoop:
        """Return its loop. Raises NotRunning."""

    @property
    def running(self) -> BrokerLifecycle:
        """Return the running broker. Raises NotRunning."""


@dataclass(frozen=True)
class RegistryRequest:
    """A request to the registry, and its answer. `duration_ms` is how long the registry took.

    `after` is the number of the last request in the broker's journal before it, 0 while that is off.
    """

    method: str
    path: str
    body: str
    status: int
    answer: str
    duration_ms: float
    user: str | None
    after: int

    __module__ = PACKAGE

    @property
    def json(self) -> Any:
        """Return the answer's JSON."""
        return json.loads(self.answer)

    def __str__(self) -> str:
        return f"{self.method} {self.path}: {self.status} after {self.duration_ms:.1f} ms"


@dataclass(frozen=True, repr=False)
class DecodedRecord(Record):
    """A record with its value and its key as its schemas say; a key without a schema is a text."""

    decoded: Any
    decoded_key: Any

    __module__ = PACKAGE


class RegistryFault:
    """A fault of the registry; `hits` counts how often it struck, and `number` names it."""

    __module__ = PACKAGE

    def __init__(
        self, method: str | None, path: str, answer: Answer | None, delay_ms: float, times: int | None
    ) -> None:
        self._method = method
        self._path = path
        self._left = times
        self.answer = answer
        self.delay_ms = delay_ms
        self.number = 0
        self.hits = 0
        self.is_removed = False

    def count_hit_if_matching(self, request: Request) -> bool:
        """Return whether the fault strikes a request, and count that."""
        if self._left == 0 or self._method not in (None, request.method) or not fnmatchcase(request.path, self._path):
            return False
        self._left = None if self._left is None else self._left - 1
        self.hits += 1
        return True

    def remove(self) -> None:
        """Let the fault strike no more."""
        self._left = 0
        self.is_removed = True


@hide_names(
    *("answer_instead", "record_answer", "start", "stop", "abort", "close", "loop", "decode_records"),
    *("read_schema_source", "read_state", "get_or_make_running_registry"),
)
class RegistryVerbs:
    """The schema registry of a broker."""

    __module__ = PACKAGE

    def __init__(self, broker: RegistryHost, address: str | None) -> None:
        """`address` is HOST:PORT, or None for any free port. Raises StartError."""
        self._broker = broker
        self._address = HostPort() if address is None else parse_registry_address(address)
        self._running: RunningRegistry | None = None
        self._requests: deque[RegistryRequest] = deque(maxlen=REQUESTS_MAX)
        self._faults: list[RegistryFault] = []
        self._faults_made = 0
        self._decoder: tuple[SchemaState, Decoder] | None = None
        self._forbidden = False
        self._attempts: list[str] = []
        broker.reset_callbacks.append(self._forget_requests_and_faults)

    @property
    def loop(self) -> BrokerLoop:
        """Return the broker's loop. Raises NotRunning."""
        return self._broker.loop

    @property
    def url(self) -> str:
        """Return the URL for clients."""
        return self._running_registry.server.url

    # --- schemas ----------------------------------------------------------------------------------

    @blocking
    async def register(
        self,
        subject: str,
        schema: str | Mapping[str, Any] | Sequence[Any],
        kind: str = "AVRO",
        *,
        references: Sequence[tuple[str, str, int]] = (),
    ) -> int:
        """Register a schema, unless the subject has it; return its id.

        A schema that is no text is written as JSON. `kind` is "AVRO", "JSON" or "PROTOBUF". References are names, with
        the subject and the version (-1: the latest) that each stands for. Raises ValueError for an invalid schema, and
        for one that is not compatible.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        named = tuple(Reference(*each) for each in references)
        with _translate_errors():
            return (await self._running_registry.registry.register_schema(subject, NewSchema(text, kind, named))).id

    aregister = make_coroutine_of_blocking_verb(register)

    @blocking
    async def subjects(self) -> list[str]:
        """Return the names of the subjects."""
        state = await self.read_state()
        return [name for name in state.iterate_subjects_with_prefix("") if state.has_live_version(name)]

    asubjects = make_coroutine_of_blocking_verb(subjects)

    @blocking
    async def schema(self, subject: str, version: int = -1) -> str:
        """Return the text of a version, by default of the latest. Raises LookupError."""
        found = (await self.read_state()).find_version(subject, version)
        if found is None:
            raise LookupError(f"the registry has no version {version} of {subject}")
        return found.text

    aschema = make_coroutine_of_blocking_verb(schema)

    @blocking
    async def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the level of a subject, or of all: "NONE", "BACKWARD", "FULL_TRANSITIVE", ... Raises ValueError."""
        with _translate_errors():
            await self._running_registry.registry.set_config(subject, {"compatibility": level})

    aset_compatibility = make_coroutine_of_blocking_verb(set_compatibility)

    # --- requests and faults ----------------------------------------------------------------------

    @immediate
    def requests(self, method: str | None = None, path: str = "*") -> list[RegistryRequest]:
        """Return the requests since the last reset, the newest 1000, by method and by a pattern for the path."""
        return [each for each in self._requests if method in (None, each.method) and fnmatchcase(each.path, path)]

    @immediate
    def fail(
        self,
        code: int = 500,
        message: str = "a fault of the test",
        *,
        method: str | None = None,
        path: str = "*",
        times: int | None = None,
    ) -> RegistryFault:
        """Answer requests with an error: an HTTP status, or one of Confluent's codes such as 40901. Raises ValueError.

        It strikes `times` requests, or all, of a method and a path with `*` for anything: `/subjects/*/versions`.
        """
        if not (400 <= code < 600 or 40_000 <= code < 60_000):
            raise ValueError(f"a code is one such as 503 or 40901, and cannot be {code}")
        return self._add_fault(RegistryFault(method, path, _make_error_answer(RegistryError(code, message)), 0, times))

    @immediate
    def slow(
        self, delay: Duration, *, method: str | None = None, path: str = "*", times: int | None = None
    ) -> RegistryFault:
        """Delay the answers to requests, on the machine's clock: clients have their own. Raises ValueError."""
        return self._add_fault(RegistryFault(method, path, None, parse_milliseconds(delay), times))

    @immediate
    def forget(self, id: int, times: int | None = None) -> RegistryFault:
        """Answer that there is no schema with this id. Raises ValueError for an id below 0."""
        if id < 0:
            raise ValueError(f"an id is a positive number, and cannot be {id}")
        return self._add_fault(
            RegistryFault(
                "GET", f"/schemas/ids/{id}*", _make_error_answer(Errors.ID_NOT_FOUND.make_error(id=id)), 0, times
            )
        )

    @immediate
    def faults(self) -> list[RegistryFault]:
        """Return the faults that were not removed, oldest first."""
        return [each for each in self._faults if not each.is_removed]

    @immediate
    def clear_faults(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    @contextlib.contextmanager
    def nothing_registered(self) -> Iterator[None]:
        """Refuse to register schemas in the block. Raises AssertionError at its end if a client tried to."""
        self._forbidden, self._attempts = True, []
        try:
            yield
        finally:
            self._forbidden = False
        if self._attempts:
            raise AssertionError(f"{len(self._attempts)} tried to register a schema: {', '.join(self._attempts)}")

    def _add_fault(self, fault: RegistryFault) -> RegistryFault:
        self._faults_made += 1
        fault.number = self._faults_made
        self._faults = [*self.faults(), fault]
        return fault

    # --- for the registry and the broker ----------------------------------------------------------

    async def answer_instead(self, request: Request) -> Answer | None:
        """Return the answer that a fault gives in the registry's place, None if no fault strikes the request."""
        if self._forbidden and request.method == "POST" and _is_registration(request):
            self._attempts.append(request.segments[1])
            return _make_error_answer(Errors.NOT_PERMITTED.make_error(reason=FORBIDDEN))
        fault = next((fault for fault in self._faults if fault.count_hit_if_matching(request)), None)
        if fault is None:
            return None
        await asyncio.sleep(fault.delay_ms / 1000)
        return fault.answer

    def record_answer(self, request: Request, answer: Answer, duration_ms: float) -> None:
        """Keep a request, and mark it in the broker's journal."""
        body = request.body[:BODY_CHARACTERS_MAX].decode(errors="replace")
        said = answer.data[:BODY_CHARACTERS_MAX].decode(errors="replace")
        seen = self._broker.journal.seen
        kept = RegistryRequest(request.method, request.path, body, answer.status, said, duration_ms, request.user, seen)
        self._requests.append(kept)
        self._broker.notify_event_listeners("registry", str(kept))

    async def start(self) -> None:
        """Serve beside the broker, which runs. Raises StartError."""
        await self.get_or_make_running_registry().start()

    def get_or_make_running_registry(self) -> RunningRegistry:
        """Return the registry, which is not served before its own start. Raises StartError."""
        if self._running is None:
            self._running = RunningRegistry(lambda: self._broker.running.cluster, self._address, self)
        return self._running

    async def stop(self) -> None:
        """Serve no more, and keep the port."""
        if self._running is not None:
            await self._running.server.stop()

    def abort(self) -> None:
        """Cut all connections, and keep the port."""
        if self._running is not None:
            self._running.server.abort()

    def close(self) -> None:
        """Release the port."""
        if self._running is not None:
            self._running.server.close()
            self._running = None

    def _forget_requests_and_faults(self) -> None:
        self._requests.clear()
        self._faults.clear()

    def decode_records(self, records: Iterable[Record]) -> list[DecodedRecord]:
        """Decode records. Raises ValueError for a value that cannot be decoded."""
        from minibroker.registry.decoding import Decoder, DecodingError, StateSource

        state = self._running_registry.registry.read_state_synchronously()
        if self._decoder is None or self._decoder[0] is not state:
            self._decoder = state, Decoder(StateSource(state))
        decoder = self._decoder[1]
        records_decoded = []
        for record in records:
            try:
                value = decoder.decode(record.value, record.headers)
            except DecodingError as error:
                raise ValueError(f"{record}: {error}") from None
            try:
                key = decoder.decode(record.key, record.headers, is_key=True)
            except DecodingError:  # many have keys that are plain texts
                key = None if record.key is None else record.key.decode(errors="backslashreplace")
            records_decoded.append(DecodedRecord(**vars(record), decoded=value, decoded_key=key))
        return records_decoded

    async def read_schema_source(self) -> SchemaSource:
        """Return the schemas as they are now. Raises RegistryError."""
        from minibroker.registry.decoding import StateSource

        return StateSource(await self.read_state())

    async def read_state(self) -> SchemaState:
        """Return all subjects as they are now, to be read before anything else is awaited. Raises RegistryError."""
        return await self._running_registry.registry.read_state()

    @property
    def _running_registry(self) -> RunningRegistry:
        if self._running is None:
            raise NotRunning("the broker has not been started")
        return self._running


def _make_error_answer(error: RegistryError) -> Answer:
    from minibroker.registry.api.http_messages import make_error_answer  # which a start does not need

    return make_error_answer(error)


def _is_registration(request: Request) -> bool:
    return len(request.segments) == 3 and request.segments[0] == "subjects" and request.segments[2] == "versions"


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Make errors of the registry ValueErrors with their texts."""
    try:
        yield
    except RegistryError as error:
        raise ValueError(f"{error.message} ({error.code})") from None
