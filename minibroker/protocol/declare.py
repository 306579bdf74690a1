"""The base classes of Kafka messages. Each is declared once for all versions, with the names of Kafka's schemas.

    class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
        group_id: str = field()
        group_instance_id: str | None = field("3+", nullable="3+", default=None)

`fields.py` has `field` and the types; the declarations are in `messages/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, dataclass_transform

from minibroker.protocol.fields import (
    FieldFacts,
    Records,
    RecordsOrRegion,
    Uuid,
    field,
    float64,
    get_default_factory,
    get_default_value,
    int8,
    int16,
    int32,
    int64,
    list_declared_fields,
    uint16,
    uint32,
)
from minibroker.protocol.fields import parse_versions as version_range
from minibroker.protocol.generated_readers import generate_reader
from minibroker.protocol.generated_writers import generate_writer
from minibroker.protocol.primitives import MalformedMessage, Output
from minibroker.protocol.source import (
    READ_FAILURES,
    UNKNOWN_TAGS,
    FunctionSource,
    compile_function,
    make_malformed_error,
)
from minibroker.protocol.steps import Steps

__all__ = [
    "Message",
    "Records",
    "RecordsOrRegion",
    "Struct",
    "Uuid",
    "field",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
]


LongArrays = list[list[Any]]


_MISSING = object()


@dataclass_transform(kw_only_default=True)
class Declaration(type):
    """Makes a slot of every `name: type = field(...)`, and keeps the declarations in `__fields__`."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **facts: Any) -> Declaration:
        declared = {key: value for key, value in body.items() if isinstance(value, FieldFacts)}
        kept = {key: value for key, value in body.items() if key not in declared}
        return super().__new__(
            cls,
            name,
            bases,
            {**kept, "__fields__": declared, "__slots__": (*kept.get("__slots__", ()), *declared)},
            **facts,
        )


class Struct(metaclass=Declaration):
    """A part of a message. Its fields are slots, and every field has a default."""

    __slots__ = (UNKNOWN_TAGS,)
    __fields__: ClassVar[dict[str, FieldFacts]]

    def __init__(self, **values: Any) -> None:
        """Generate and compile the struct's own `__init__`, which replaces this one."""
        struct = type(self)
        made = compile_function(generate_constructor(struct), f"construct {struct.__qualname__}")
        type.__setattr__(struct, "__init__", made)  # mypy does not allow a plain assignment to a method
        made(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__fields__) and (
            getattr(self, UNKNOWN_TAGS, []) == getattr(other, UNKNOWN_TAGS, [])
        )

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__fields__)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A whole message: a request, a response, a header, or the key or value of a record in an internal topic.

    `api_key` is the number of the API or of the record's type, -1 for none. `versions` are the declared versions,
    `flexible` those with compact lengths and tagged fields (KIP-482), `flexible_header` those with the flexible header.
    `kips` are the numbers of the Kafka Improvement Proposals that brought a version, by version.
    """

    api_key: ClassVar[int] = -1
    versions: ClassVar[range] = range(0)
    flexible: ClassVar[range] = range(0)
    flexible_header: ClassVar[range] = range(0)
    kips: ClassVar[Mapping[int, int]] = {}
    _readers: ClassVar[dict[int, Any]]
    _writers: ClassVar[dict[int, Any]]
    _step_readers: ClassVar[dict[int, Any]]
    _step_writers: ClassVar[dict[int, Any]]
    _keeping_readers: ClassVar[dict[int, Any]]
    _keeping_writers: ClassVar[dict[int, Any]]

    def __init_subclass__(
        cls,
        *,
        versions: str,
        flexible: str = "none",
        api_key: int = -1,
        flexible_header: str | None = None,
        kips: Mapping[int, int] | None = None,
    ) -> None:
        cls.api_key = api_key
        cls.versions = version_range(versions)
        cls.flexible = version_range(flexible)
        cls.flexible_header = cls.flexible if flexible_header is None else version_range(flexible_header)
        cls.kips = kips or {}
        cls._readers = {}
        cls._writers = {}
        cls._step_readers = {}
        cls._step_writers = {}
        cls._keeping_readers = {}
        cls._keeping_writers = {}

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, version: int, position: int = 0) -> Self:
        """Read a message that ends where the data ends.

        Records are slices of the data; all else is copied. Raises MalformedMessage unless it is exactly one message.
        """
        read = cls._readers.get(version) or cls._compile_reader(version)
        end = len(data)
        try:
            result: tuple[Self, int] = read(data, position, end)
        except READ_FAILURES as problem:
            raise make_malformed_error(cls.__name__, version, problem) from problem
        message, stop = result
        if stop != end:
            raise MalformedMessage(cls.__name__, version, "", f"{end - stop} bytes follow its end")
        return message

    @classmethod
    def decode_from(cls, data: bytes | bytearray | memoryview, version: int, position: int = 0) -> tuple[Self, int]:
        """Read a message at `position`. Return it, and the position after it. Raises MalformedMessage."""
        read = cls._readers.get(version) or cls._compile_reader(version)
        try:
            result: tuple[Self, int] = read(data, position, len(data))
        except READ_FAILURES as problem:
            raise make_malformed_error(cls.__name__, version, problem) from problem
        return result

    @classmethod
    def decode_with_unknown_tags(
        cls, data: bytes | bytearray | memoryview, version: int, position: int
    ) -> tuple[Self, int]:
        """Do what `decode_from` does, and keep tagged fields that are not declared for `encode_with_unknown_tags`."""
        read = cls._keeping_readers.get(version)
        if read is None:
            cls.check_version(version)
            source = generate_reader(cls, version, version in cls.flexible, keeps_tags=True)
            read = cls._keeping_readers[version] = compile_function(
                source, f"read {cls.__name__} v{version} with unknown tags"
            )
        try:
            result: tuple[Self, int] = read(data, position, len(data))
        except READ_FAILURES as problem:
            raise make_malformed_error(cls.__name__, version, problem) from problem
        return result

    @classmethod
    def decode_in_steps(
        cls, data: memoryview, version: int, position: int, allowance_bytes: int
    ) -> Steps[tuple[Self, LongArrays]]:
        """Read a message at `position`, in steps. Return it, and its long arrays, which should be freed in steps, too.

        A step reads a thousand items; long is what has more. Raises MalformedMessage, also for more items than Kafka
        accepts, or more than fit into `allowance_bytes` of memory.
        """
        read = cls._step_readers.get(version)
        if read is None:
            cls.check_version(version)
            source = generate_reader(cls, version, version in cls.flexible, in_steps=True)
            read = cls._step_readers[version] = compile_function(source, f"read {cls.__name__} v{version} in steps")
        try:
            message, _, long_arrays = yield from read(data, position, len(data), allowance_bytes)
        except READ_FAILURES as problem:
            raise make_malformed_error(cls.__name__, version, problem) from problem
        return message, long_arrays

    def encode_in_steps(self, out: Output, version: int, limit_bytes: int) -> Steps[LongArrays]:
        """Append the message's bytes to `out`, in steps. Return its long arrays, which should be freed in steps, too.

        A step writes some hundred items; long is what has more. Raises AnswerTooLarge if `out` grows beyond
        `limit_bytes`.
        """
        write = self._step_writers.get(version)
        if write is None:
            self.check_version(version)
            source = generate_writer(type(self), version, version in self.flexible, in_steps=True)
            write = self._step_writers[version] = compile_function(
                source, f"write {type(self).__name__} v{version} in steps"
            )
        long_arrays: LongArrays = yield from write(self, out, limit_bytes)
        return long_arrays

    def encode(self, version: int) -> bytes:
        """Return the message's bytes. Fields that the version does not have are left out."""
        out = Output()
        (self._writers.get(version) or self._compile_writer(version))(self, out)
        if out.regions:
            raise TypeError(
                f"{type(self).__name__} has records in a region, which encode_into() supports, and encode() does not"
            )
        return bytes(out)

    def encode_with_unknown_tags(self, version: int) -> bytes:
        """Return the message's bytes, with the tagged fields that `decode_with_unknown_tags` has kept."""
        kind = type(self)
        write = kind._keeping_writers.get(version)
        if write is None:
            self.check_version(version)
            source = generate_writer(kind, version, version in self.flexible, keeps_tags=True)
            write = kind._keeping_writers[version] = compile_function(
                source, f"write {kind.__name__} v{version} with unknown tags"
            )
        out = Output()
        write(self, out)
        return bytes(out)

    def encode_into(self, out: Output, version: int) -> None:
        """Append the message's bytes to `out`."""
        (self._writers.get(version) or self._compile_writer(version))(self, out)

    @classmethod
    def _compile_reader(cls, version: int) -> Any:
        """Generate, compile and cache the function that reads a version."""
        cls.check_version(version)
        made = compile_function(
            generate_reader(cls, version, version in cls.flexible), f"read {cls.__name__} v{version}"
        )
        cls._readers[version] = made
        return made

    @classmethod
    def _compile_writer(cls, version: int) -> Any:
        """Generate, compile and cache the function that writes a version."""
        cls.check_version(version)
        made = compile_function(
            generate_writer(cls, version, version in cls.flexible), f"write {cls.__name__} v{version}"
        )
        cls._writers[version] = made
        return made

    @classmethod
    def check_version(cls, version: int) -> None:
        """Raise ValueError for a version that is not declared."""
        if version not in cls.versions:
            raise ValueError(f"{cls.__name__} has no version {version}")


def generate_constructor(struct: type) -> FunctionSource:
    """Generate the function `__init__(self, *, name=default, ...)` of a struct."""
    source = FunctionSource({"MISSING": _MISSING})
    arguments, lines = [], []
    for each in list_declared_fields(struct):
        maker = get_default_factory(each)
        if maker is None:
            default, value = source.make_default_expression(get_default_value(each)), each.name
        else:
            made = "[]" if maker is list else f"{source.bind_object_to_name(maker.__name__, maker)}()"
            default, value = "MISSING", f"{made} if {each.name} is MISSING else {each.name}"
        arguments.append(f"{each.name}={default}")
        lines.append(f"self.{each.name} = {value}")
    with source.add_block_with_head(f"def __init__(self{', *, ' if arguments else ''}{', '.join(arguments)}):"):
        for line in lines or ["pass"]:
            source.add_line(line)
    return source
