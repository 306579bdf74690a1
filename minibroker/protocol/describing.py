"""Describes messages for people: the fields in a version, and the generated Python that reads and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import isclass
from pkgutil import iter_modules
from typing import NamedTuple

from minibroker.protocol import headers, messages
from minibroker.protocol.declare import Message
from minibroker.protocol.fields import Field, FieldType, get_default_factory, get_default_value, list_declared_fields
from minibroker.protocol.generated_readers import generate_reader
from minibroker.protocol.generated_writers import generate_writer
from minibroker.protocol.layout import FieldInVersion, make_struct_layout
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.record_fields import STRUCTS, RecordStruct

# Fields with the same name and the same meaning in many messages, and their purpose. A field with one of these names
# that means something else has a sentence of its own (`field(about=...)`), as have all others.
ABOUT = {
    "active_tasks": "The tasks that the member processes records for.",
    "authorized_operations": "A bit for each ACL operation the client has a right to; -2147483648 if it did not ask.",
    "client_host": "The address the member connects from, so that people can find it.",
    "client_id": "What the client calls itself, for logs, metrics and quotas.",
    "client_tags": "What the application says of its place, such as a zone, to spread standby tasks.",
    "delivery_complete_count": "How many records from the start offset on are settled, for the lag; -1 if unknown.",
    "delivery_count": "How often the records were delivered: the broker gives them up after a limit.",
    "delivery_state": "The state of the records: 0 available, 2 acknowledged, 4 archived, which ends their delivery.",
    "error_code": "0 if all went well, else the number of the error that says what went wrong.",
    "error_message": "The error in words, for people; null if there is none, or nothing to add.",
    "first_offset": "The first offset of the range.",
    "group_id": "The group's name, whose hash also decides which broker coordinates it.",
    "group_instance_id": "The name of a static member, which may restart without a rebalance; null for all others.",
    "host": "The name or the address to connect to.",
    "instance_id": "The name of a static member, which may restart without a rebalance; null for all others.",
    "last_offset": "The last offset of the range, which belongs to it.",
    "leader_epoch": "The number of the partition's leader: each new one has a higher one, so old ones are noticed.",
    "leader_id": "The broker that leads the partition, and takes its writes; -1 if none is known.",
    "member_epoch": "How far the member has followed the group's changes; requests with an older epoch are refused.",
    "member_id": "Tells the members apart: a consumer that is started again is another one.",
    "node_id": "The node's number, which other fields and messages refer to.",
    "partition": "Which partition of the topic, counted from 0.",
    "partition_index": "Which partition of the topic, counted from 0.",
    "port": "The TCP port to connect to there.",
    "process_id": "The instance of the application, which may have several members: tasks are spread over instances.",
    "producer_epoch": "Grows when a producer takes the id over, or by transaction (KIP-890); older ones are refused.",
    "producer_id": "The number by which brokers know the producer, its batches and its transactions.",
    "rack": "The rack or zone the broker stands in, for placing replicas and for reading nearby; null if not set.",
    "rack_id": "The client's rack, so that it may get partitions with a replica close by.",
    "repartition_sink_topics": "The topics it writes to, so that records are partitioned by another key.",
    "repartition_source_topics": "The topics it reads from that the application itself writes, by another key.",
    "snapshot_epoch": "Grows with each snapshot of the state; updates apply to the snapshot with their epoch.",
    "source_topic_regex": "The patterns of topics it reads from.",
    "source_topics": "The topics it reads from.",
    "standby_tasks": "The tasks whose state the member copies, so that it can take over quickly.",
    "start_offset": "The first offset the group may still deliver: all before it are settled.",
    "state_batches": "The state of the records in each range of offsets.",
    "state_changelog_topics": "The topics its state is written to, so that another member can restore it.",
    "state_epoch": "Grows each time the state is initialized, so that writes for the older state are refused.",
    "subtopology_id": "A part of the topology that is connected to others by topics only; its partitions are tasks.",
    "task_end_offsets": "Where the changelogs of its tasks end.",
    "task_offsets": "How far the member has copied the state of its tasks, which shows when a warm-up is done.",
    "throttle_time_ms": "The delay by a quota: old versions have waited already, in new ones the client should wait.",
    "topic": "The topic these partitions belong to.",
    "topic_configs": "The configs that the topic gets when the broker creates it.",
    "topic_id": "The topic's UUID: if a topic is deleted and created again, it gets another one under the same name.",
    "topic_name": "What the topic is called.",
    "topology_epoch": "The version of the application's topology that is meant.",
    "transactional_id": "The name of a producer that outlives restarts: a new one ends what the old one left open.",
    "user_endpoint": "Where other instances may ask this one for its state; null if they may not.",
    "validate_only": "If true, all is checked and answered as usual, but nothing is changed.",
    "warmup_tasks": "The tasks whose state the member copies, as it should process them once it has caught up.",
}


_TYPES = {"?": "bool", "b": "int8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32", "q": "int64"}
_TYPES |= {"d": "float64", "16s": "uuid"}


class FieldRow(NamedTuple):
    """A field in one version of a message.

    `depth` is the number of enclosing structs, `type` is in Kafka's notation ("[]int32"), `versions` are all that have
    the field, `tag` is None outside the tagged section, `default` is its value in versions without it, as Python.
    `about` says what it is for, `kip` is the number of the proposal that brought it; empty and None if not known.
    """

    depth: int
    name: str
    type: str
    versions: str
    nullable: bool
    compact: bool
    tag: int | None
    default: str
    about: str
    kip: int | None


def find_messages_by_name(name: str) -> list[type[Message]]:
    """Return the messages of a name: "Metadata" is a request and a response, "TopicRecord" is a record.

    Case does not matter. The list may be empty.
    """
    wanted = {name.lower(), f"{name}request".lower(), f"{name}response".lower()}
    return [message for message in list_messages() if message.__name__.lower() in wanted]


def list_messages() -> list[type[Message]]:
    """Return all messages, by file name, and in the order of each file."""
    modules = [import_module(f"{messages.__name__}.{each.name}") for each in iter_modules(messages.__path__)]
    found = [each for module in [*modules, headers] for each in vars(module).values()]
    return [each for each in found if isclass(each) and issubclass(each, Message) and each is not Message]


def list_message_names() -> list[str]:
    """Return all names that may be asked for: messages, APIs, and the structs of records."""
    names = {message.__name__ for message in list_messages()}
    names |= {name.removesuffix("Request") for name in names}
    return sorted(names.union(*(struct.names for struct in STRUCTS)))


def summarize_message(message: type[Message]) -> str:
    """Return the first line of what is known about a message: what it is for."""
    return (message.__doc__ or "").partition("\n")[0]


def describe_fields(message: type[Message], version: int) -> list[FieldRow]:
    """Return the fields of a version in wire order. Nested fields follow the field that contains them.

    Raises ValueError for a version that the message does not have.
    """
    message.check_version(version)
    return _describe_struct_fields(message, message, version, 0)


def find_record_structs(name: str) -> list[RecordStruct]:
    """Return the structs of records with this name, such as "RecordBatch": one or none. Case does not matter."""
    return [struct for struct in STRUCTS if name.lower() in map(str.lower, struct.names)]


def describe_record_fields(struct: RecordStruct, depth: int = 0) -> list[FieldRow]:
    """Return the fields of a struct of records. Nested fields follow the field that contains them."""
    nested = {f"[]{each.type}": each for each in STRUCTS}
    rows: list[FieldRow] = []
    for field in struct.fields:
        name, type_, about, kip, nullable, versions = field
        rows.append(FieldRow(depth, name, type_, versions or struct.versions, nullable, False, None, "", about, kip))
        if type_ in nested:
            rows += describe_record_fields(nested[type_], depth + 1)
    return rows


def generate_reader_text(message: type[Message], version: int) -> str:
    """Return the Python that reads a version. Raises ValueError for a version that the message does not have."""
    message.check_version(version)
    return "\n".join(generate_reader(message, version, version in message.flexible).lines)


def generate_writer_text(message: type[Message], version: int) -> str:
    """Return the Python that writes a version. Raises ValueError for a version that the message does not have."""
    message.check_version(version)
    return "\n".join(generate_writer(message, version, version in message.flexible).lines)


def format_versions(versions: range, newest: int) -> str:
    """Return a range of versions in Kafka's notation: "3+", "0-8", "none". `newest` is the message's newest version."""
    if not versions or versions.start > newest:
        return "none"
    if versions[-1] >= newest:
        return f"{versions.start}+"
    return str(versions.start) if len(versions) == 1 else f"{versions.start}-{versions[-1]}"


def _describe_struct_fields(struct: type, message: type[Message], version: int, depth: int) -> list[FieldRow]:
    """Return the rows of a struct's fields, each followed by those of its nested fields."""
    shape = make_struct_layout(struct, version, version in message.flexible)
    rows: list[FieldRow] = []
    for place in shape.body + shape.tagged:
        rows.append(_describe_field(place, struct, message, version, depth))
        nested = (place.kind.item or place.kind).struct
        if nested is not None:
            rows += _describe_struct_fields(nested, message, version, depth + 1)
    return rows


def _describe_field(
    versioned_field: FieldInVersion, struct: type, message: type[Message], version: int, depth: int
) -> FieldRow:
    """Return the row of one field in a version."""
    field = versioned_field.field
    told = find_field_background(field.name, struct, message)
    return FieldRow(
        depth=depth,
        name=versioned_field.name,
        type=format_type(versioned_field.kind),
        versions=told.versions,
        nullable=versioned_field.nullable,
        compact=versioned_field.compact and not versioned_field.kind.is_fixed and versioned_field.kind.struct is None,
        tag=versioned_field.tag if version in field.facts.tagged else None,
        default=_format_default(field),
        about=told.about,
        kip=told.kip,
    )


class FieldBackground(NamedTuple):
    """What the bytes of a field do not say: which versions have it, what it is for, and the KIP that brought it."""

    versions: str
    about: str
    kip: int | None


@cache
def find_field_background(name: str, struct: type, message: type[Message]) -> FieldBackground:
    """Return versions, meaning and KIP of a field of `struct`, which is the message, or a part of it."""
    (field,) = (each for each in list_declared_fields(struct) if each.name == name)
    present, (first, kip) = field.facts.present, _find_first_versions_of_structs(message)[struct]
    if present.start > first:
        first, kip = present.start, None
    return FieldBackground(
        format_versions(range(first, present.stop), message.versions[-1]),
        field.facts.about or ABOUT.get(name, ""),
        (field.facts.kip if field.facts.kip is not None else kip or message.kips.get(first)) or None,
    )


@cache
def _find_first_versions_of_structs(message: type[Message]) -> Mapping[type, tuple[int, int | None]]:
    """Return the first version that has each struct of a message, and the KIP of the field it came with, if it has one.

    The fields of the struct may be declared as if they had been there before.
    """
    first_versions: dict[type, tuple[int, int | None]] = {}

    def collect_first_version(struct: type, first: int, kip: int | None) -> None:
        if struct in first_versions and first_versions[struct][0] <= first:
            return
        first_versions[struct] = first, kip
        for field in list_declared_fields(struct):
            nested = (field.kind.item or field.kind).struct
            if nested is not None:
                own = field.facts
                collect_first_version(
                    nested, max(first, own.present.start), own.kip or (kip if own.present.start <= first else None)
                )

    collect_first_version(message, message.versions.start, None)
    return first_versions


def _format_default(field: Field) -> str:
    """Return a field's default as Python writes it."""
    maker = get_default_factory(field)
    if maker is not None:
        return "[]" if maker is list else f"{maker.__name__}()"
    value = get_default_value(field)
    return "ZERO_UUID" if value == ZERO_UUID else repr(value)


def format_type(field_type: FieldType) -> str:
    """Return a type as Kafka's documentation names it, such as "[]string"."""
    if field_type.item is not None:
        return f"[]{format_type(field_type.item)}"
    return field_type.struct.__name__ if field_type.struct is not None else _TYPES.get(field_type.code, field_type.code)
