"""The grammar of faults: which requests a fault applies to, what it does to them, and how often.

`Rule` is the single declaration: its fields are the arguments of a fault, with types, limits and meanings. The
signature of `Faults.add`, the checks, YAML, the OpenAPI description and docs/testing-faults.md come from it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.apis import ApiKey, get_api_name, get_response_class
from minibroker.protocol.errors import ErrorCode
from minibroker.quantities import Duration, parse_milliseconds
from minibroker.testing.callers import PACKAGE
from minibroker.testing.durations import add_unit_to_duration
from minibroker.testing.seen.error_places import LEVELS, find_levels_with_errors
from minibroker.testing.seen.exchange import find_api_key
from minibroker.testing.yaml_files import parse_yaml, read_at_most

MAXIMUM_FILE_BYTES = 1 << 20

When = Literal["before", "after"]
Level = Literal["top", "topic", "partition"]
Answer = Literal["half", "silence", "wrong-correlation-id"]
ACTS: Final = ("error", "close", "answer", "corrupt", "authentication")
OF_REQUESTS: Final = (
    "api",
    "version",
    "topic",
    "partition",
    "group",
    "transactional_id",
    "where",
    "level",
    "when",
    "throttle",
)
Authentication = Literal["refuse", "expire", "slow", "wrong-mechanism"]
Corruption = Literal["crc", "length", "codec", "truncated", "offsets"]


class FaultError(ValueError):
    """An invalid fault; the message is one line."""

    __module__ = PACKAGE


class FaultArgument(NamedTuple):
    """The facts of an argument besides its type: its table in the documentation, its meaning, its limits."""

    table: Literal["match", "act", "trigger"]
    meaning: str
    minimum: float = -math.inf
    maximum: float = math.inf


match, act, trigger = partial(FaultArgument, "match"), partial(FaultArgument, "act"), partial(FaultArgument, "trigger")


@dataclass(frozen=True, kw_only=True, eq=False)
class Rule:
    """A fault: it applies to requests that meet all given conditions from `api` to `where`.

    It has at most one of `error`, `close`, `answer`, `corrupt` and `authentication`; `delay` and `throttle` can be
    combined with each. One with `authentication` applies to logins, each of which takes several requests.
    None stands for an argument that is not given. Raises FaultError.
    """

    api: Annotated[str | Collection[str] | None, match("The API's name in Kafka, or a list of names.")] = None
    version: Annotated[int | str | None, match('Versions of the API: `9`, `"3-9"`, `"12+"`.')] = None
    node: Annotated[int | None, match("The broker that receives the request.", minimum=0)] = None
    client_id: Annotated[str | None, match("The client id of the sender.")] = None
    user: Annotated[str | None, match("Requests of the user, by its name; with `authentication`, its logins.")] = None
    mechanism: Annotated[
        str | None,
        match("Requests of clients that log in by this SASL mechanism; with `authentication`, these logins."),
    ] = None
    topic: Annotated[str | None, match("Requests that name the topic; only that part of them fails.")] = None
    partition: Annotated[
        int | None, match("Requests that name the partition; only that part of them fails.", minimum=0)
    ] = None
    group: Annotated[str | None, match("Requests that name the group.")] = None
    transactional_id: Annotated[str | None, match("Requests that name the transactional id.")] = None
    where: Annotated[
        Callable[[Any], object] | None,
        match(
            "Called with the decoded request. If it raises, the request passes, and `wait_for_hits` raises the same."
        ),
    ] = None
    error: Annotated[str | None, act("Answers with this error, given by its name in Kafka.")] = None
    when: Annotated[
        When | None,
        act("Whether `error` or silence replaces the request's effect (`before`, the default) or follows it."),
    ] = None
    level: Annotated[Level | None, act("The level of the answer that has `error`; by default the deepest.")] = None
    close: Annotated[When | None, act("Disconnects the client without an answer, before or after the effect.")] = None
    answer: Annotated[
        Answer | None, act("Sends half the answer and disconnects, sends nothing, or sends a wrong correlation id.")
    ] = None
    corrupt: Annotated[
        Corruption | None,
        act("Damages the first batch of a Fetch or ShareFetch: its checksum, length, codec, end, or offsets."),
    ] = None
    authentication: Annotated[
        Authentication | None,
        act(
            "Refuses a login with valid credentials, ends its session early, answers it late (by `delay`), or does not "
            "support its mechanism."
        ),
    ] = None
    session: Annotated[
        Duration | None,
        act(
            "How long a session lasts with `expire`. The answer to the login has this time (KIP-368). Without "
            "`session`, the session ends at once, and the answer does not say so."
        ),
    ] = None
    delay: Annotated[Duration | None, act("Holds the request back, in the broker's time.")] = None
    throttle: Annotated[
        Duration | None, act("Sets the throttle time in the answer, which asks the client to pause.")
    ] = None
    nth: Annotated[int | None, trigger("Strikes only on the match with this number.", minimum=1)] = None
    times: Annotated[int | None, trigger("Strikes at most this often; by default without limit.", minimum=1)] = None
    once: Annotated[bool | None, trigger("The same as `times=1`.")] = None
    probability: Annotated[
        float | None, trigger("The probability that it strikes on a match.", minimum=0, maximum=1)
    ] = None
    seed: Annotated[int | None, trigger("Makes `probability` repeatable.")] = None
    name: Annotated[str | None, trigger("The fault's name in reports.")] = None

    def __post_init__(self) -> None:
        for word, (kinds, (_, _, minimum, maximum)) in WORDS.items():
            value = getattr(self, word)
            if value is not None:
                _check_type_of_field(word, value, kinds)
                if isinstance(value, int | float) and not minimum <= value <= maximum:
                    limits = f"at least {minimum}" if maximum == math.inf else f"between {minimum} and {maximum}"
                    raise FaultError(f"{word} is {limits}, and cannot be {value}")
        if self.probability is not None and self.seed is None:
            object.__setattr__(self, "seed", random.randrange(1 << 31))  # reports show it, so that a test can set it
        _check_combination(self)

    @cached_property
    def api_keys(self) -> frozenset[ApiKey]:
        """Return the APIs that the rule applies to; empty for all."""
        names = [self.api] if isinstance(self.api, str) else self.api or ()
        try:
            return frozenset(find_api_key(name) for name in names)
        except ValueError as error:
            raise FaultError(str(error)) from None

    @cached_property
    def versions(self) -> range | None:
        """Return the versions that the rule applies to, None for all."""
        if self.version is None:
            return None
        text = str(self.version)
        first, dash, last = text.removesuffix("+").partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise FaultError(f"{text!r} is not a version; write 9, 3-9 or 12+")
        return range(int(first), 1 << 15 if text.endswith("+") else int(last or first) + 1)

    @cached_property
    def code(self) -> ErrorCode | None:
        """Return the code of `error`."""
        try:
            return None if self.error is None else ErrorCode[self.error.upper()]
        except KeyError:
            raise FaultError(f"{self.error!r} is not an error of Kafka, such as NOT_LEADER_OR_FOLLOWER") from None

    @cached_property
    def delay_ms(self) -> float:
        """Return `delay` in ms."""
        return _parse_milliseconds("delay", self.delay)

    @cached_property
    def session_ms(self) -> int:
        """Return `session` in ms."""
        return round(_parse_milliseconds("session", self.session))

    @cached_property
    def throttle_ms(self) -> int:
        """Return `throttle` in ms."""
        return round(_parse_milliseconds("throttle", self.throttle))

    @property
    def maximum_hits(self) -> float:
        """Return the largest number of hits."""
        return 1 if self.once else math.inf if self.times is None else self.times

    def __str__(self) -> str:
        """Return the name, or else the words that were given."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return self.name or ", ".join(
            f"{word} {_format_field(word, value)}" for word, value in given if value is not None
        )


def _parse_field_annotation(hint: Any) -> tuple[tuple[Any, ...], FaultArgument]:
    """Return the types that a field of `Rule` takes, without None, and its `FaultArgument`."""
    kinds, word = get_args(hint)
    return tuple(kind for kind in get_args(kinds) if kind is not NoneType), word


WORDS: Final = {word: _parse_field_annotation(hint) for word, hint in get_type_hints(Rule, include_extras=True).items()}
"""The types of each word, without None, and its `FaultArgument`."""


def parse_rule(fields: Any, *, in_python: bool = False) -> Rule:
    """Return the rule of a mapping, which has neither `where` nor None unless it is from Python. Raises FaultError."""
    if not isinstance(fields, dict):
        raise FaultError(f"a fault is a mapping of its words, not {fields!r}")
    known = set(WORDS) if in_python else set(WORDS) - {"where"}
    for word, value in fields.items():
        if word not in known:
            raise FaultError(f"a fault has no {word!r}; it has {', '.join(sorted(known))}")
        if value is None and not in_python:
            raise FaultError(f"{word} cannot be null")
    return Rule(**fields)


def load_rules(path: Path) -> list[Rule]:
    """Return the rules of a YAML file, a list of mappings. Raises FaultError with the file's name, and OSError."""
    try:
        listed = parse_yaml(read_at_most(path, MAXIMUM_FILE_BYTES))
    except ValueError as error:
        raise FaultError(f"{path}: {error}") from None
    if not isinstance(listed, list):
        raise FaultError(f"{path}: a list of faults is expected")
    rules = []
    for number, words in enumerate(listed, 1):
        try:
            rules.append(parse_rule(words))
        except FaultError as error:
            raise FaultError(f"{path}: fault {number}: {error}") from None
    return rules


def _check_type_of_field(name: str, value: object, kinds: tuple[Any, ...]) -> None:
    """Raise FaultError for a value of another type than declared."""
    if not any(_is_of_type(value, kind) for kind in kinds):
        choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
        expected = f"{name} is one of {', '.join(choices)}, and" if choices else name
        raise FaultError(f"{expected} cannot be {value!r}")


def _is_of_type(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, int | float if kind is float else get_origin(kind) or kind)


def _check_combination(rule: Rule) -> None:
    """Raise FaultError for words that make no sense together, or by themselves."""
    acts = [word for word in ACTS if getattr(rule, word) is not None]
    if len(acts) > 1:
        raise FaultError(f"one fault cannot have both {acts[0]} and {acts[1]}: add two")
    if not acts and not rule.delay_ms and not rule.throttle_ms:
        raise FaultError(f"a fault needs one of {', '.join(ACTS)}, delay, throttle")
    if rule.corrupt is not None and not rule.api_keys <= {ApiKey.FETCH, ApiKey.SHARE_FETCH}:
        raise FaultError("only Fetch and ShareFetch have batches in their answers that could be corrupt")
    if rule.level is not None and rule.code is None:
        raise FaultError("level says where an error is, and needs error")
    if rule.when == "after" and rule.code is None and rule.answer != "silence":
        raise FaultError("when is for error and silence; close itself says before or after")
    if rule.once and rule.times is not None:
        raise FaultError("once is the same as times 1: give one of them")
    _check_authentication(rule)
    for api in rule.api_keys if rule.level is not None else ():
        levels = find_levels_with_errors(get_response_class(api))
        if rule.level not in levels:
            there = ", ".join(level for level in LEVELS if level in levels) or "none"
            raise FaultError(f"{get_api_name(api)} has no error at the level {rule.level}, but at {there}")
    _ = (
        rule.versions,
        rule.delay_ms,
        rule.session_ms,
        rule.throttle_ms,
        rule.api_keys,
        rule.code,
    )  # each raises FaultError


def _check_authentication(rule: Rule) -> None:
    """Raise FaultError for words that make no sense with logins, or without them."""
    if rule.session is not None and rule.authentication != "expire":
        raise FaultError("session is for authentication expire")
    if rule.authentication is None:
        return
    others = [word for word in OF_REQUESTS if getattr(rule, word) is not None]
    if others:
        raise FaultError(f"authentication is about logins, and {others[0]} about requests")
    if rule.authentication == "slow" and not rule.delay_ms:
        raise FaultError("authentication slow needs delay")
    if rule.authentication == "wrong-mechanism" and rule.user is not None:
        raise FaultError("authentication wrong-mechanism has no user: the user is not known yet")
    if rule.authentication == "wrong-mechanism" and rule.delay_ms:
        raise FaultError("authentication wrong-mechanism has no delay")


def _parse_milliseconds(field: str, duration: Duration | None) -> float:
    """Return the duration of a field in ms, 0 for None. Raises FaultError with the field's name."""
    try:
        return 0.0 if duration is None else parse_milliseconds(add_unit_to_duration(duration))
    except ValueError as error:
        raise FaultError(f"{field}: {error}") from None


def _format_field(name: str, value: Any) -> str:
    """Return a field's value as text; one that is called is only "given"."""
    if callable(value):
        return "given"
    if isinstance(value, int | float) and timedelta in WORDS[name][0]:
        return f"{value} s"
    return str(value) if isinstance(value, str | int | float | timedelta) else "|".join(value)
