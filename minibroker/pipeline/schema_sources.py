"""Where the pipeline finds the schemas that records name: a registry, or the topic `_schemas` of a log.

What is found stays for the life of a process. What is not there is looked for once in each task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from minibroker.pipeline.log_opening import read_in_this_process
from minibroker.pipeline.log_source import PipelineError
from minibroker.pipeline.options import ReadOptions, parse_options
from minibroker.protocol.records.record import Record
from minibroker.registry.decoding import Decoder, GivenDecoder, SchemaSource, StateSource, WireSchema
from minibroker.registry.registry_client import RegistryClient, RequestFailed
from minibroker.registry.state.schema_state import SchemaState

TOPIC: Final = "_schemas"
COLUMNS: Final = ("offset", "key", "value")
NO_TIMESTAMP: Final = -1
PLACES_MAX: Final = 8  # whose schemas a process keeps


class GivenSchema(NamedTuple):
    """The schema of data that names none. `kind` is "AVRO", "JSON" or "PROTOBUF", whose first message the data is."""

    kind: str
    text: str


SchemaLocation = (
    str | tuple[tuple[str, str], ...] | GivenSchema
)  # the URL of a registry, the options of a reader, or a schema


class RegistryUnavailable(PipelineError):
    """A registry does not answer, or refuses to. The message is one line."""


class RegistrySchemas:
    """Finds schemas in a registry with Confluent's API."""

    def __init__(self, client: SchemaSource) -> None:
        self._client = client
        self._missing: set[int | str] = set()

    def begin_task(self) -> None:
        """Forget what was not there."""
        self._missing.clear()

    def find_schema(self, id_or_guid: int | str) -> WireSchema:
        """Return the schema with an id or a GUID. Raises LookupError, RegistryUnavailable."""
        if id_or_guid in self._missing:
            raise LookupError(id_or_guid)
        try:
            return self._client.find_schema(id_or_guid)
        except LookupError:
            self._missing.add(id_or_guid)
            raise
        except RequestFailed as error:
            raise RegistryUnavailable(str(error)) from None


class TopicSchemas:
    """Finds schemas in the topic `_schemas`, which a task reads again at most once, if one is not there."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._known: StateSource | None = None
        self._is_fresh = False

    def begin_task(self) -> None:
        """Forget what was not there."""
        self._is_fresh = False

    def find_schema(self, id_or_guid: int | str) -> WireSchema:
        """Return the schema with an id or a GUID. Raises LookupError, InvalidSchema, what reading a log raises."""
        if self._known is not None:
            try:
                return self._known.find_schema(id_or_guid)
            except LookupError:
                if self._is_fresh:
                    raise
        self._known, self._is_fresh = StateSource(_read_state(self._options)), True
        return self._known.find_schema(id_or_guid)


def _read_state(options: ReadOptions) -> SchemaState:
    state = SchemaState()
    for batch in read_in_this_process(options, COLUMNS):
        for offset, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            # As the registry does, skip what is none of its records: what named it has no schema then.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                state.apply_record(Record(offset, NO_TIMESTAMP, key, value))
    return state


@lru_cache(PLACES_MAX)
def get_cached_decoder(location: SchemaLocation) -> tuple[Decoder | GivenDecoder, Callable[[], None]]:
    """Return the decoder with the schemas that this process has parsed of a place, and what begins a task.

    Raises `OptionError`, `DecodingError`.
    """
    if isinstance(location, GivenSchema):
        return GivenDecoder(*location), lambda: None
    source = (
        RegistrySchemas(RegistryClient(location))
        if isinstance(location, str)
        else TopicSchemas(make_topic_options(dict(location)))
    )
    return Decoder(source), source.begin_task


def make_topic_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options that read all of `_schemas` where others say, such as `path`. Raises `OptionError`."""
    return parse_options({**options, "subscribe": TOPIC}, "records", "batch")
