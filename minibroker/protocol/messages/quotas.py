"""Client quotas: limits for users, client ids, addresses and defaults (KIP-546)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, float64, int8, int16, int32


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+", kips={0: 546, 1: 482}):
    """Asks for the quotas of entities that match all components."""

    components: list[ComponentData] = field(about="Which quotas: those whose entity matches all of these.")
    strict: bool = field(about="Whether to leave quotas out whose entity has more parts than are named here.")

    class ComponentData(Struct):
        entity_type: str = field(about='What the filter looks at: "user", "client-id" or "ip".')
        match_type: int8 = field(about="0 for exactly this name, 1 for the default, 2 for any name.")
        match: str | None = field(about="The name to look for; null unless match_type is 0.")


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+", kips={0: 546, 1: 482}):
    """Lists the quotas."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    entries: list[EntryData] | None = field(about="The quotas that match; null after an error.")

    class EntryData(Struct):
        entity: list[EntityData] = field(
            about="The user, client id or address that the quotas are for, or several of these together."
        )
        values: list[ValueData] = field(about="The entity's limits.")

        class EntityData(Struct):
            entity_type: str = field(about='Which part of the entity it is: "user", "client-id" or "ip".')
            entity_name: str | None = field(about="Its name; null for all that have no quota of their own.")

        class ValueData(Struct):
            key: str = field(about="Which limit, such as producer_byte_rate or request_percentage.")
            value: float64 = field(about="How much is allowed, in the limit's own unit.")


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+", kips={0: 546, 1: 482}):
    """Asks to set or remove quotas of entities."""

    entries: list[EntryData] = field(about="The entities whose quotas change.")
    validate_only: bool = field()

    class EntryData(Struct):
        entity: list[EntityData] = field(
            about="The user, client id or address that the quotas are for, or several of these together."
        )
        ops: list[OpData] = field(about="What changes for the entity.")

        class EntityData(Struct):
            entity_type: str = field(about='Which part of the entity it is: "user", "client-id" or "ip".')
            entity_name: str | None = field(about="Its name; null for all that have no quota of their own.")

        class OpData(Struct):
            key: str = field(about="Which limit, such as producer_byte_rate or request_percentage.")
            value: float64 = field(about="How much should be allowed, in the limit's own unit.")
            remove: bool = field(about="Whether the limit is taken away, and the value does not matter.")


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+", kips={0: 546, 1: 482}):
    """Says for each entity whether its quotas were changed."""

    throttle_time_ms: int32 = field()
    entries: list[EntryData] = field(about="A result for each entity of the request.")

    class EntryData(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        entity: list[EntityData] = field(about="The user, client id or address that the quotas are for.")

        class EntityData(Struct):
            entity_type: str = field(about='Which part of the entity it is: "user", "client-id" or "ip".')
            entity_name: str | None = field(about="Its name; null for all that have no quota of their own.")
