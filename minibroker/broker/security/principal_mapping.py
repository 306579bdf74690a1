r"""`ssl.principal.mapping.rules`: turn the name in a client's certificate into the name of its principal.

    RULE:^CN=([^,]+),OU=Service.*$/$1/L, RULE:^CN=([^,]+).*$/$1/, DEFAULT

The first rule whose pattern matches the whole name applies. DEFAULT keeps the name as it is. If no rule applies, the
client is refused. As in Kafka, the replacement follows Java's String.replaceAll. The patterns are Java's, but `re` runs
them, which knows almost all of Java's syntax; a start with other patterns fails.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PART = r"(?:\\.|[^\\/])*"
RULE: Final = rf"DEFAULT|RULE:(?P<pattern>{PART})/(?P<replacement>{PART})/(?P<case>[LU]?)"
RULES: Final = re.compile(rf"\s*(?:(?P<rule>{RULE})|)\s*(?:,|$)\s*")
NAMED_GROUP: Final = re.compile(r"\(\?<(?=[a-zA-Z])")  # Python writes (?P<name>...)
REFERENCE: Final = re.compile(r"\\(?P<literal>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[a-zA-Z0-9]+)\}|(?P<wrong>[\\$])")


class InvalidRules(ValueError):
    """Invalid rules; the message is one line."""


class NoRuleApplies(ValueError):
    """A name to which no rule applies; the message is one line."""


class _Rule(NamedTuple):
    """A pattern (None for DEFAULT), the parts of the replacement (an int is a group), and L, U or nothing."""

    pattern: re.Pattern[str] | None
    replacement: tuple[str | int, ...]
    case: str

    def apply_to_name(self, name: str) -> str | None:
        """Return the name after the rule, or None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._replace_match, name)
        if self.case:
            return result.lower() if self.case == "L" else result.upper()
        return result

    def _replace_match(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.replacement)


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, rules: str) -> None:
        """Parse the rules. Raises InvalidRules."""
        self._rules: list[_Rule] = []
        rules = rules.strip()
        position = 0
        while position < len(rules):
            match = RULES.match(rules, position)
            if match is None:
                raise InvalidRules(f"{rules[position:]!r} does not begin with DEFAULT or RULE:pattern/replacement/[LU]")
            if match["rule"]:
                self._rules.append(_parse_mapping_rule(match))
            position = match.end()

    def map_distinguished_name(self, distinguished_name: str) -> str:
        """Return the principal's name, by the first rule that matches. Raises NoRuleApplies."""
        for rule in self._rules:
            name = rule.apply_to_name(distinguished_name)
            if name is not None:
                return name
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {distinguished_name!r}")


def _parse_mapping_rule(match: re.Match[str]) -> _Rule:
    if match["pattern"] is None:
        return _Rule(None, (), "")
    try:
        pattern = re.compile(NAMED_GROUP.sub("(?P<", match["pattern"]), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidRules(f"{match['rule']!r}: the pattern cannot be used: {error}") from None
    return _Rule(pattern, _parse_replacement(match["replacement"], pattern, match["rule"]), match["case"])


def _parse_replacement(text: str, pattern: re.Pattern[str], rule: str) -> tuple[str | int, ...]:
    """Return the parts of a replacement: texts, and the numbers of groups. Raises InvalidRules."""
    parts: list[str | int] = []
    position = 0
    for match in REFERENCE.finditer(text):
        parts.append(text[position : match.start()])
        position = match.end()
        if match["literal"]:
            parts.append(match["literal"])
        elif match["number"]:
            parts += _parse_group_reference(match["number"], pattern, rule)
        elif match["name"] in pattern.groupindex:
            parts.append(pattern.groupindex[match["name"]])
        else:
            raise InvalidRules(f"{rule!r}: {match[0]!r} in the replacement refers to no group of the pattern")
    return (*parts, text[position:])


def _parse_group_reference(digits: str, pattern: re.Pattern[str], rule: str) -> list[str | int]:
    """Return the number of the group that the digits begin with, and the remaining digits.

    As in Kafka, the digits are no reference if the first one is beyond the last group: return them as a text. Raise
    InvalidRules if the pattern has no group.
    """
    number, used = int(digits[0]), 1
    if number > pattern.groups:
        if pattern.groups == 0:
            raise InvalidRules(f"{rule!r}: ${digits} in the replacement, and the pattern has no group")
        return [f"${digits}"]
    while used < len(digits) and number * 10 + int(digits[used]) <= pattern.groups:
        number = number * 10 + int(digits[used])
        used += 1
    return [number, digits[used:]]
