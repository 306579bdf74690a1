"""Names of certificates and of principals against Java's X500Principal and Kafka's SslPrincipalMapper, at random.

`MINIBROKER_SEED` is the seed.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

from conformance.kafka_reference import kafka_command
from minibroker.broker.security.distinguished_names import KEYWORDS, format_distinguished_name
from minibroker.broker.security.principal_mapping import InvalidRules, NoRuleApplies, PrincipalMapping

PROGRAM = Path(__file__).parent / "JavaNames.java"
COUNT = 20_000
SEQUENCE, SET, OBJECT_IDENTIFIER = 0x30, 0x31, 0x06
CHARACTERS = "ab Z0'()+,-./:=?<>#;\"\\\0\r\n\t @*_&éß漢😀\u0301~%$"
ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x1B: "ascii", 0x1C: "utf-32-be"}
ENCODINGS |= {0x1E: "utf-16-be", 0x04: "utf-8", 0x12: "ascii"}  # BMPString, and two that are no texts for Java
TYPES = (*KEYWORDS, "1.2.840.113549.1.9.1", "2.5.4.4", "2.5.4.5", "2.5.4.12", "2.5.4.46", "2.5.4.97", "2.999.3")
PATTERNS = (
    *("^CN=(.*?),OU=ServiceUsers.*$", "^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$", "CN=([^,]+).*"),
    *("^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$", "(.*)", "CN=(.*?)", ".*", r"^CN=(?<n>\w+).*$", r"CN=\/.*", "", "CN=(a|b"),
    *("(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k).*", ".*OU=([^,]+)(,.*)?", "CN=.+?,OU=(.++)"),
)
REPLACEMENTS = ("$1", "$1@$2", "$0", "$9", "$12x", "${n}", r"\$1", "", "x", r"a\/b", "$1$4", "$11", "$")
SEPARATORS = (",", " , ", ",\t", ", ", "  ", ",,", "")
NAMES = (
    *("CN=Alice,OU=ServiceUsers,O=Org,C=US", "CN=bob,OU=x,O=y,L=z,ST=q,C=de", "CN=kafka.example.com", "OU=a,CN=Éa"),
    *("CN=a\\,b,O=c", "abcdefghijklm", "", "CN=/x", "EMAIL=ß"),
)


def seeded() -> random.Random:
    seed = int(os.environ.get("MINIBROKER_SEED", "1"))
    print(f"MINIBROKER_SEED={seed}")
    return random.Random(seed)


def asked_of_java(lines: Sequence[str], directory: Path) -> list[str]:
    """Return Java's answer to each line."""
    questions = directory / "questions"
    questions.write_text("\n".join(lines) + "\n")
    command = kafka_command(str(PROGRAM), str(questions))
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def identifier(number: str) -> bytes:
    first, second, *others = map(int, number.split("."))
    content = b""
    for arc in (first * 40 + second, *others):
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.append(arc & 0x7F | 0x80)
        content += bytes(reversed(groups))
    return element(OBJECT_IDENTIFIER, content)


def attribute(source: random.Random) -> bytes:
    tag, encoding = source.choice(list(ENCODINGS.items()))
    text = "".join(source.choices(CHARACTERS, k=source.randrange(9)))
    value = element(tag, text.encode(encoding, "ignore"))
    return element(SEQUENCE, identifier(source.choice(TYPES)) + value)


def name(source: random.Random) -> bytes:
    sets = (
        b"".join(attribute(source) for _ in range(source.choice((1, 1, 1, 2, 3)))) for _ in range(source.randrange(6))
    )
    return element(SEQUENCE, b"".join(element(SET, each) for each in sets))


def rules(source: random.Random) -> str:
    text = source.choice(("", " "))
    for _ in range(source.choice((1, 1, 2, 3))):
        if source.random() < 0.2:
            text += source.choice(("DEFAULT", "DEFAULT", "default", "", "FOO", " "))
        else:
            text += f"RULE:{source.choice(PATTERNS)}/{source.choice(REPLACEMENTS)}/{source.choice(['', 'L', 'U', 'X'])}"
        text += source.choice(SEPARATORS)
    return text


def written(text: str) -> str:
    return "=" + text.encode("utf-16-be").hex()


def test_names_of_certificates_are_formatted_as_by_java(tmp_path: Path) -> None:
    source = seeded()
    names = [name(source) for _ in range(COUNT)]
    answers = asked_of_java([f"name {each.hex()}" for each in names], tmp_path)
    assert [written(format_distinguished_name(each)) for each in names] == answers


def test_mapping_rules_give_the_principals_of_kafka(tmp_path: Path) -> None:
    """Rules that Kafka takes, and that fail for each client whom they match, are refused here: all others agree."""
    source = seeded()
    cases = [(rules(source), source.choice(NAMES)) for _ in range(COUNT)]
    lines = [f"rules {text.encode().hex()} {subject.encode().hex()}" for text, subject in cases]
    refused = 0
    for (text, subject), answer in zip(cases, asked_of_java(lines, tmp_path), strict=True):
        try:
            ours = written(PrincipalMapping(text).map_distinguished_name(subject))
        except NoRuleApplies:
            ours = "none"
        except InvalidRules:
            refused += answer != "invalid"
            continue
        assert ours == answer, (text, subject)
    assert refused < COUNT / 5
