"""JAAS configurations against Kafka's own reader, at random. `MINIBROKER_SEED` is the seed."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from conformance.kafka_reference import kafka_command
from minibroker.jaas import JaasError, parse_login_module

PROGRAM = Path(__file__).parent / "JavaJaas.java"
COUNT = 20_000
PIECES = (
    *("org.x.Module", "Module", "required", "REQUIRED", "optional", "sufficient", "requisite", "maybe", ";", "=", " "),
    *("\n", "\t", "\r", '"', "'", "\\", "/", "//", "/*", "*/", "a", "user_bob", "secret", "\\n", "\\101", "\\7"),
    *('"b c"', "'d\"e'", '"f\\"g"', "ü", "€", "😀", "\x7f", "\x80", "\x85", "\xa0", "\x00", "0", "-1.5", ",", "#"),
    *("\\400", ";;", " "),
)


def random_text(source: random.Random) -> str:
    """A configuration that is right, or nearly, or anything."""
    if source.random() < 0.2:
        return "".join(source.choices(PIECES, k=source.randint(0, 12)))
    options = [f"{source.choice(PIECES)}={source.choice(PIECES)}" for _ in range(source.randint(0, 3))]
    if source.random() < 0.7:
        quoted = "".join(source.choices(PIECES, k=source.randint(0, 5))).replace('"', "")
        options.append(f'user_alice="{quoted}"')
    text = f"Module {source.choice(('required', 'Optional', source.choice(PIECES)))} {' '.join(options)}"
    return text + source.choice((";", " ;", "; ", ";\n", ";//x", "", "; Module required;"))


def ours(text: str) -> str:
    try:
        module = parse_login_module(text)
    except JaasError:
        return "invalid"
    options = sorted(module.options.items(), key=lambda item: item[0].encode("utf-16-be"))
    return " ".join(
        [module.name.encode().hex(), *(f"{key.encode().hex()}={value.encode().hex()}" for key, value in options)]
    )


@pytest.mark.minibroker_only
def test_random_jaas_configs_are_parsed_as_by_kafka(tmp_path: Path) -> None:
    seed = int(os.environ.get("MINIBROKER_SEED", "1"))
    print(f"MINIBROKER_SEED={seed}")
    source = random.Random(seed)
    texts = [random_text(source) for _ in range(COUNT)]
    questions = tmp_path / "questions"
    questions.write_text("".join(f"{text.encode().hex()}\n" for text in texts))
    command = kafka_command(str(PROGRAM), str(questions))
    answers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    differing = [(text, theirs) for text, theirs in zip(texts, answers, strict=True) if ours(text) != theirs]
    assert differing == []
    assert COUNT / 10 < sum(answer != "invalid" for answer in answers) < COUNT * 9 / 10
