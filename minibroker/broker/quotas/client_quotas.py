"""Client quotas (KIP-546): their entities, valid values, and filters.

Pure. `handlers/client_quotas` answers requests; `quota_manager` enforces quotas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from minibroker.broker.metadata.image import QuotaEntity
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import ClientQuotaRecord

USER, CLIENT_ID, IP = "user", "client-id", "ip"
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
EXACT, DEFAULT, SPECIFIED = 0, 1, 2  # DescribeClientQuotas' match types


class QuotaValueLimit(NamedTuple):
    """The valid values: the largest, Kafka's name of the type, and whether it must be a whole number."""

    maximum: float
    type: str
    whole: bool


LONG, DOUBLE, INT = (
    QuotaValueLimit(LONG_MAX, "a LONG", True),
    QuotaValueLimit(math.inf, "a DOUBLE", False),
    QuotaValueLimit(INT_MAX, "an INT", True),
)
OF_CLIENTS: Mapping[str, QuotaValueLimit] = {
    "producer_byte_rate": LONG,
    "consumer_byte_rate": LONG,
    "request_percentage": DOUBLE,
    "controller_mutation_rate": DOUBLE,
}
OF_ADDRESSES: Mapping[str, QuotaValueLimit] = {"connection_creation_rate": INT}


def parse_quota_entity(parts: Iterable[tuple[str, str | None]]) -> tuple[QuotaEntity, Mapping[str, QuotaValueLimit]]:
    """Return the entity of these (type, name), and the quotas that it may have. Raises KafkaError(INVALID_REQUEST)."""
    entity = dict(parts)
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _make_invalid_request_error(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _make_invalid_request_error(f"Empty {kind} not supported")
    if not entity:
        raise _make_invalid_request_error("Invalid empty client quota entity")
    if IP not in entity:
        return frozenset(entity.items()), OF_CLIENTS
    if len(entity) > 1:
        raise _make_invalid_request_error(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    if not _is_ip_address(entity[IP]):
        raise _make_invalid_request_error(f"{entity[IP]} is not a valid IP or resolvable host.")
    return frozenset(entity.items()), OF_ADDRESSES


def _is_ip_address(name: str | None) -> bool:
    """Return whether this is an address or the default. Unlike Kafka, do not resolve names, as clients would wait."""
    import ipaddress  # imported late: it would slow the start by 1 ms, and few brokers have quotas

    try:
        return name is None or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def check_quota_value(limits: Mapping[str, QuotaValueLimit], key: str, value: float) -> None:
    """Check that a quota may have this value. Raises KafkaError(INVALID_REQUEST)."""
    limit = limits.get(key)
    if limit is None:
        raise _make_invalid_request_error(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise _make_invalid_request_error(f"Quota {key} must be a finite number")
    if not value > 0:
        raise _make_invalid_request_error(f"Quota {key} must be greater than 0")
    if value > limit.maximum:
        raise _make_invalid_request_error(f"Proposed value for {key} is too large for {limit.type}.")
    if limit.whole and value % 1 > 1e-6:
        raise _make_invalid_request_error(f"{key} cannot be a fractional value.")


def make_quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """Return the record that sets a quota, or removes it without a value."""
    parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=0.0 if value is None else value, remove=value is None)


class EntityFilter:
    """A filter of entities: for each part an exact name, the default, or any name.

    With `strict`, entities with more parts do not match.
    """

    def __init__(self, components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> None:
        """Parse (type, match type, name) of each part. Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_VERSION."""
        self._exact: dict[str, str | None] = {}
        self._any: set[str] = set()
        self._strict = strict
        for kind, match_type, name in components:
            self._check_entity_type(kind)
            _check_match_type(match_type, name)
            if match_type == SPECIFIED:
                self._any.add(kind)
            else:
                self._exact[kind] = name
        kinds = self._any | self._exact.keys()
        if IP in kinds and len(kinds) > 1:
            message = "Invalid entity filter component combination. IP filter component should not be used with "
            raise _make_invalid_request_error(f"{message}user or clientId filter component.")

    def _check_entity_type(self, entity_type: str) -> None:
        if not entity_type:
            raise _make_invalid_request_error("Invalid empty entity type.")
        if entity_type in self._exact or entity_type in self._any:
            raise _make_invalid_request_error(f"Entity type {entity_type} cannot appear more than once in the filter.")
        if entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")

    def iterate_matching_entities(self, entities: Iterable[QuotaEntity]) -> Iterator[QuotaEntity]:
        """Yield the entities that match."""
        return (entity for entity in entities if self._matches_entity(dict(entity)))

    def _matches_entity(self, entity: dict[str, str | None]) -> bool:
        if self._strict and len(entity) != len(self._exact) + len(self._any):
            return False
        exact = all(kind in entity and entity[kind] == name for kind, name in self._exact.items())
        return exact and self._any <= entity.keys()


def _check_match_type(match_type: int, name: str | None) -> None:
    """Raise KafkaError(INVALID_REQUEST) unless the match type is known and fits the name, which only EXACT has."""
    if match_type == EXACT and name is None:
        raise _make_invalid_request_error("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match_type == DEFAULT and name is not None:
        raise _make_invalid_request_error("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
    if match_type == SPECIFIED and name is not None:
        raise _make_invalid_request_error("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
    if match_type not in (EXACT, DEFAULT, SPECIFIED):
        raise _make_invalid_request_error(f"Unknown match type {match_type}")


def _make_invalid_request_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
