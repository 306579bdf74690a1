"""What docs/security.md has its reader do prints what it says."""

from __future__ import annotations

from pathlib import Path

from tests.test_readme import README, printed, serving, steps_in

DOCUMENT = README.parent / "docs" / "security.md"


def chapter(title: str) -> str:
    return DOCUMENT.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_steps_of_tls_print_what_they_say(tmp_path: Path) -> None:
    make, serve, use, embed = steps_in(chapter("TLS"))
    assert printed(make[0], make[1], "", tmp_path) == make[2]
    with serving(serve[1].replace("127.0.0.1:9093", "127.0.0.1:0"), tmp_path, listeners=None) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == serve[2].replace("127.0.0.1:9093", address)
        assert printed(use[0], use[1], address, tmp_path) == use[2]
    assert printed(embed[0], embed[1], "", tmp_path) == embed[2]


def test_the_steps_of_sasl_print_what_they_say(tmp_path: Path) -> None:
    make, serve, *uses, embed = steps_in(chapter("SASL"))
    assert printed(make[0], make[1].replace("127.0.0.1:9092", "127.0.0.1:0"), "", tmp_path) == make[2]
    with serving(serve[1], tmp_path, listeners=None) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == serve[2].replace("127.0.0.1:9092", address)
        for use in uses:
            assert printed(use[0], use[1], address, tmp_path) == use[2]
    assert printed(embed[0], embed[1], "", tmp_path) == embed[2]


def test_the_steps_of_acls_print_what_they_say(tmp_path: Path) -> None:
    ((kind, code, output),) = steps_in(chapter("ACLs"))
    assert printed(kind, code, "", tmp_path) == output


def test_the_steps_of_delegation_tokens_print_what_they_say(tmp_path: Path) -> None:
    make, serve, use, embed = steps_in(chapter("Delegation tokens"))
    assert printed(make[0], make[1].replace("127.0.0.1:9092", "127.0.0.1:0"), "", tmp_path) == make[2]
    with serving(serve[1], tmp_path, listeners=None) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == serve[2].replace("127.0.0.1:9092", address)
        assert printed(use[0], use[1], address, tmp_path) == use[2]
    assert printed(embed[0], embed[1], "", tmp_path) == embed[2]


def test_the_steps_of_quotas_print_what_they_say(tmp_path: Path) -> None:
    ((kind, code, output),) = steps_in(chapter("Quotas"))
    assert printed(kind, code, "", tmp_path) == output
