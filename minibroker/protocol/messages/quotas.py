"""Client quotas: limits for users, client ids, addresses and defaults (KIP-546)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, float64, int8, int16, int32


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    """Asks for the quotas of entities that match all components."""

    components: list[ComponentData] = field()
    strict: bool = field()

    class ComponentData(Struct):
        entity_type: str = field()
        match_type: int8 = field()
        match: str | None = field()


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    """Lists the quotas."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    entries: list[EntryData] | None = field()

    class EntryData(Struct):
        entity: list[EntityData] = field()
        values: list[ValueData] = field()

        class EntityData(Struct):
            entity_type: str = field()
            entity_name: str | None = field()

        class ValueData(Struct):
            key: str = field()
            value: float64 = field()


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    """Asks to set or remove quotas of entities."""

    entries: list[EntryData] = field()
    validate_only: bool = field()

    class EntryData(Struct):
        entity: list[EntityData] = field()
        ops: list[OpData] = field()

        class EntityData(Struct):
            entity_type: str = field()
            entity_name: str | None = field()

        class OpData(Struct):
            key: str = field()
            value: float64 = field()
            remove: bool = field()


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    """Says for each entity whether its quotas were changed."""

    throttle_time_ms: int32 = field()
    entries: list[EntryData] = field()

    class EntryData(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        entity: list[EntityData] = field()

        class EntityData(Struct):
            entity_type: str = field()
            entity_name: str | None = field()
