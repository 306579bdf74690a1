"""The grammar of faults: which requests one concerns, what it does to them, and how often.

The same words are used in Python, in YAML and over HTTP; `rule_of` reads them. What is done is in `engine`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, get_args

from minibroker.protocol.apis import ApiKey, api_name, response_class
from minibroker.protocol.errors import ErrorCode
from minibroker.quantities import Duration, milliseconds
from minibroker.testing.exchange import api_key_of
from minibroker.testing.faults.places import levels_of

When = Literal["before", "after"]
Level = Literal["top", "topic", "partition"]
Answer = Literal["half", "silence", "wrong-correlation-id"]
Corruption = Literal["crc", "length", "codec", "truncated", "offsets"]


class FaultError(ValueError):
    """A fault that cannot be, said in one line."""


@dataclass(frozen=True)
class Rule:
    """One fault.

    It concerns requests that agree with all of `api` to `where` that are given. `versions` are of the API; `topic` and
    `partition` make it concern only these parts of a request, and of its answer.

    `error` is answered `before` the request has an effect, or `after` it: then it has happened, and the client does not
    know. `level` says where in the answer, the deepest place unless given. `close` cuts the connection, without an
    answer, before or after the effect. `answer` sends a half of it and closes, none at all (`silence`, before the
    effect unless `when` says after), or one with another request's id. `corrupt` damages the first batch that a Fetch
    brings. `delay_ms` holds the request back, `throttle_ms` is in the answer; both go together with all others.

    `nth` is the one match, counted from 1, that it does something to, `times` is how often it does so at the most,
    `probability` how likely each time; chance is drawn from `seed`.
    """

    api: frozenset[ApiKey] = frozenset()
    versions: range | None = None
    node: int | None = None
    client_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    where: Callable[[Any], object] | None = None
    error: ErrorCode | None = None
    when: When = "before"
    level: Level | None = None
    close: When | None = None
    answer: Answer | None = None
    corrupt: Corruption | None = None
    delay_ms: float = 0.0
    throttle_ms: int = 0
    nth: int | None = None
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    name: str = ""

    def __str__(self) -> str:
        """For people: the name, or else the words that it was given in."""
        if self.name:
            return self.name
        silent = ("name", "seed") if self.probability == 1 else ("name",)
        given = ((field.name, getattr(self, field.name)) for field in fields(self) if field.name not in silent)
        defaults = {field.name: field.default for field in fields(self)}
        return ", ".join(f"{name} {_shown(value)}" for name, value in given if value != defaults[name])


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        return "|".join(sorted(api_name(key) for key in value))
    if isinstance(value, ErrorCode):
        return value.name
    if isinstance(value, range):
        return f"{value[0]}-{value[-1]}"
    return "given" if callable(value) else str(value)


class Words(TypedDict, total=False):
    """The words of a fault, as they are typed; None is as good as not said."""

    api: str | Collection[str] | None
    version: int | str | None
    node: int | None
    client_id: str | None
    topic: str | None
    partition: int | None
    group: str | None
    transactional_id: str | None
    where: Callable[[Any], object] | None
    error: str | None
    when: When | None
    level: Level | None
    close: When | None
    answer: Answer | None
    corrupt: Corruption | None
    delay: Duration | None
    throttle: Duration | None
    nth: int | None
    times: int | None
    once: bool | None
    probability: float | None
    seed: int | None
    name: str | None


def rule_of(
    *,
    api: str | Iterable[str] | None = None,
    version: int | str | None = None,
    node: int | None = None,
    client_id: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    where: Callable[[Any], object] | None = None,
    error: str | None = None,
    when: str = "before",
    level: str | None = None,
    close: str | None = None,
    answer: str | None = None,
    corrupt: str | None = None,
    delay: Duration = 0,
    throttle: Duration = 0,
    nth: int | None = None,
    times: int | None = None,
    once: bool = False,
    probability: float = 1.0,
    seed: int | None = None,
    name: str = "",
) -> Rule:
    """The rule that these words say. `api` is a name ("Fetch") or several, `version` 9, "3-9" or "12+"; `error` is
    Kafka's name for it; durations are as "200 ms". Raises FaultError."""
    rule = Rule(
        api=_apis(api),
        versions=_versions(version),
        node=node,
        client_id=client_id,
        topic=topic,
        partition=partition,
        group=group,
        transactional_id=transactional_id,
        where=where,
        error=_error(error),
        when=_one_of("when", when, When) or "before",
        level=_one_of("level", level, Level),
        close=_one_of("close", close, When),
        answer=_one_of("answer", answer, Answer),
        corrupt=_one_of("corrupt", corrupt, Corruption),
        delay_ms=_duration("delay", delay),
        throttle_ms=round(_duration("throttle", throttle)),
        nth=nth,
        times=1 if once else times,
        probability=probability,
        seed=random.randrange(1 << 31) if seed is None else seed,
        name=name,
    )
    _check(rule, once and times is not None)
    return rule


def rule_from(words: Any, *, where: bool = False) -> Rule:
    """The rule of a mapping, as a file or an HTTP request has it, which cannot have a `where`.

    Raises FaultError, which names what is wrong.
    """
    if not isinstance(words, dict):
        raise FaultError(f"a fault is a mapping of its words, not {words!r}")
    known = set(rule_of.__kwdefaults__ or {}) - (set() if where else {"where"})
    for word in words:
        if word not in known:
            raise FaultError(f"a fault has no {word!r}; it has {', '.join(sorted(known))}")
    for word, kinds in _KINDS.items():
        if word in words and (
            not isinstance(words[word], kinds) or isinstance(words[word], bool) is not (kinds is bool)
        ):
            raise FaultError(f"{word} cannot be {words[word]!r}")
    return rule_of(**words)


_KINDS: Final[dict[str, Any]] = {
    "node": int,
    "client_id": str,
    "topic": str,
    "partition": int,
    "group": str,
    "transactional_id": str,
    "error": str,
    "nth": int,
    "times": int,
    "once": bool,
    "probability": (int, float),
    "seed": int,
    "name": str,
    "api": (str, Collection),
    "version": (int, str),
    "delay": (int, float, str, timedelta),
    "throttle": (int, float, str, timedelta),
    "where": Callable,
}


def _check(rule: Rule, once_and_times: bool) -> None:
    """Raises FaultError."""
    acts = [word for word in ("error", "close", "answer", "corrupt") if getattr(rule, word) is not None]
    if len(acts) > 1:
        raise FaultError(f"one fault cannot have both {acts[0]} and {acts[1]}: add two")
    if not acts and not rule.delay_ms and not rule.throttle_ms:
        raise FaultError("a fault needs one of error, close, answer, corrupt, delay, throttle")
    if rule.corrupt is not None and rule.api not in (frozenset(), frozenset({ApiKey.FETCH})):
        raise FaultError("only a Fetch brings batches that could be corrupt")
    if rule.level is not None and rule.error is None:
        raise FaultError("level says where an error stands: without error it has no meaning")
    if rule.when == "after" and rule.error is None and rule.answer != "silence":
        raise FaultError("when is for error and silence; close says itself whether it is before or after")
    _check_place(rule)
    if once_and_times:
        raise FaultError("once is times 1: give one of them")
    for word in ("nth", "times"):
        value = getattr(rule, word)
        if value is not None and value < 1:
            raise FaultError(f"{word} begins with 1, and cannot be {value}")
    if not 0 <= rule.probability <= 1:
        raise FaultError(f"probability is between 0 and 1, and cannot be {rule.probability}")


def _check_place(rule: Rule) -> None:
    """Raises FaultError for a level that one of the APIs does not have."""
    for api in () if rule.level is None else sorted(rule.api):
        levels = levels_of(response_class(api))
        if rule.level not in levels:
            there = ", ".join(level for level in get_args(Level) if level in levels) or "none"
            raise FaultError(f"{api_name(api)} has no error at the level {rule.level}, but at {there}")


def _apis(names: str | Iterable[str] | None) -> frozenset[ApiKey]:
    if names is None:
        return frozenset()
    given = [names] if isinstance(names, str) else list(names)
    try:
        return frozenset(api_key_of(each) for each in given)
    except ValueError as error:
        raise FaultError(str(error)) from None


def _versions(text: int | str | None) -> range | None:
    if text is None:
        return None
    first, dash, last = str(text).removesuffix("+").partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise FaultError(f"{text!r} is no version; write 9, 3-9 or 12+")
    end = 1 << 15 if str(text).endswith("+") else int(last or first) + 1
    return range(int(first), end)


def _error(name: str | None) -> ErrorCode | None:
    if name is None:
        return None
    try:
        return ErrorCode[name.upper()]
    except KeyError:
        raise FaultError(f"{name!r} is no error of Kafka's, as NOT_LEADER_OR_FOLLOWER is") from None


def _one_of(word: str, value: str | None, kind: Any) -> Any:
    choices = get_args(kind)
    if value is not None and value not in choices:
        raise FaultError(f"{word} is one of {', '.join(choices)}, and cannot be {value!r}")
    return value


def _duration(word: str, duration: Duration) -> float:
    try:
        return milliseconds(duration)
    except ValueError as error:
        raise FaultError(f"{word}: {error}") from None
