"""Reading what a request has in its path, its query and its body, by types. Errors say in one line where they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from minibroker.web.messages import InvalidRequest

WORDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "a text",
}
AT: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<where>.*)`)?", re.DOTALL)
STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)]|\[\.\.\.]")
LACKS: Final = "Object missing required field "
STRANGE: Final = "Object contains unknown field "
WRONG_TYPE: Final = re.compile(r"Expected `(.*)`, got `.*`")
WRONG_SIZE: Final = re.compile(r"Expected `(.*)` ([<>]=? .*)")
WRONG_VALUE: Final = "Invalid enum value "
SECRET: Final = re.compile("password|users")  # in the name of a field
MOST_SHOWN: Final = 80  # characters of a value
MALFORMED: Final = "JSON is malformed: "
MISSING: Final = "Field required"
SPAN: Final = 'A number and a unit, such as "7 days", "1.5 s", "200 ms". A bare number is one of milliseconds.'


class TimeSpan(str):
    """A span of time with its unit, for the duration of a method. A bare number is one of ms."""

    schema: Final = {"type": "string", "description": SPAN, "examples": ["10 s"]}

    @classmethod
    def read(cls, value: Any) -> TimeSpan:
        """Return a JSON string as a duration, or a number as one of ms. Raises ValueError."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError("must be a duration")
        return cls(value if isinstance(value, str) else f"{value} ms")


def convert_value(kind: Any, value: Any) -> Any:
    """Return a JSON value as one of our types, by its own method `read`."""
    return kind.read(value)


def read_json_as(data: bytes, kind: Any) -> Any:
    """Decode a JSON body into a type. Raises InvalidRequest."""
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=convert_value)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        try:
            plain = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as malformed:
            raise InvalidRequest(f"body: not JSON: {str(malformed).removeprefix(MALFORMED)}") from None
        raise InvalidRequest(_format_mistake("body", str(error), kind, plain)) from None


def read_struct_from_texts(source: str, texts: Mapping[str, str], kind: Any) -> Any:
    """Return the variables of a path, or the parameters of a query, as a struct. Raises InvalidRequest."""
    try:
        return msgspec.convert(texts, kind, strict=False, dec_hook=convert_value)
    except msgspec.ValidationError as error:
        raise InvalidRequest(_format_mistake(source, str(error), kind, texts)) from None


def _format_mistake(source: str, error: str, kind: Any, value: Any) -> str:
    """Return the message about an invalid value: where it is, and what is wrong with it."""
    match = AT.fullmatch(error)
    assert match is not None
    what = match["what"]
    steps = [step[0] or step[1] for step in STEP.findall(match["where"] or "")]
    for mistake, said in ((LACKS, MISSING), (STRANGE, "there is no such field")):
        if what.startswith(mistake):
            name = " ".join(what.removeprefix(mistake).strip("`").split())
            return f"{'.'.join([source, *filter(None, steps), name])}: {said}"
    where = ".".join([source, *filter(None, steps)])
    shown = f", not {_get_value_at_path(value, steps)!r:.{MOST_SHOWN}}"
    if not isinstance(_get_value_at_path(value, steps), str | int | float) or SECRET.search(where):
        shown = ""
    return f"{where}: {_explain_mistake(what, kind, steps)}{shown}"


def _get_value_at_path(value: Any, steps: list[str]) -> Any:
    """Return what is at a path of keys and indexes inside of a value, None for nothing."""
    for step in steps:
        with suppress(LookupError, ValueError, TypeError):
            value = value[int(step) if isinstance(value, list) else step]
            continue
        return None
    return value


def _explain_mistake(mistake: str, kind: Any, steps: list[str]) -> str:
    """Return what is wrong with a value in words for people, from msgspec's."""
    if found := WRONG_TYPE.fullmatch(mistake):
        return f"must be {_translate_type_names(found[1])}"
    if found := WRONG_SIZE.fullmatch(mistake):
        return f"must be {_translate_type_names(found[1])} {found[2]}"
    if mistake.startswith(WRONG_VALUE):
        return f"must be {_list_choices(kind, steps)}"
    return mistake


def _translate_type_names(text: str) -> str:
    """Return msgspec's type names, such as "int | null", in words for people."""
    return " or ".join(WORDS.get(each, each) for each in text.split(" | ") if each != "null")


def _list_choices(kind: Any, steps: list[str]) -> str:
    """Return the values that a field may have, as text."""
    found = next((each.type for each in msgspec.structs.fields(kind) if each.name in steps[:1]), None)
    values = list(map(repr, list_choices_of_type(found)))
    return " or ".join([", ".join(values[:-1]), *values[-1:]]).removeprefix(" or ")


def list_choices_of_type(kind: Any) -> list[Any]:
    """Return the values of an enumeration, or of a union with one."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [each.value for each in kind]
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [value for each in get_args(kind) for value in list_choices_of_type(each)]
