"""What docs/security.md has its reader do prints what it says."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import ssl
import tempfile
from pathlib import Path

from tests.clients.ports import free_ports
from tests.docker.scripts import NEEDS_LINUX, announced, running, unpacked
from tests.test_readme import README, printed, serving, steps_in

DOCUMENT = README.parent / "docs" / "security.md"


def chapter(title: str) -> str:
    return DOCUMENT.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_tls_steps_print_the_documented_output(tmp_path: Path) -> None:
    make, serve, use, embed, measure, scrape = steps_in(chapter("TLS"))
    assert printed(make[0], make[1], "", tmp_path) == make[2]
    with serving(serve[1].replace("127.0.0.1:9093", "127.0.0.1:0"), tmp_path, listeners=None) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == serve[2].replace("127.0.0.1:9093", address)
        assert printed(use[0], use[1], address, tmp_path) == use[2]
        host, number = address.rsplit(":", 1)
        strict = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        strict.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of Python 3.13
        with socket.create_connection((host, int(number))) as plain, strict.wrap_socket(plain, server_hostname=host):
            pass
    assert printed(embed[0], embed[1], "", tmp_path) == embed[2]
    port = str(free_ports())
    measured = measure[1].replace("127.0.0.1:9093", "127.0.0.1:0").replace("9464", port)
    with serving(measured, tmp_path, listeners=None):
        assert printed(scrape[0], scrape[1].replace("9464", port), "", tmp_path) == scrape[2]


def test_the_sasl_steps_print_the_documented_output(tmp_path: Path) -> None:
    make, serve, *uses, embed = steps_in(chapter("SASL"))
    assert printed(make[0], make[1].replace("127.0.0.1:9092", "127.0.0.1:0"), "", tmp_path) == make[2]
    with serving(serve[1], tmp_path, listeners=None) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == serve[2].replace("127.0.0.1:9092", address)
        for use in uses:
            assert printed(use[0], use[1], address, tmp_path) == use[2]
    assert printed(embed[0], embed[1], "", tmp_path) == embed[2]


def test_the_acl_steps_print_the_documented_output(tmp_path: Path) -> None:
    embed, make, serve, use = steps_in(chapter("ACLs"))
    assert printed(embed[0], embed[1], "", tmp_path) == embed[2]
    assert printed(make[0], make[1].replace("127.0.0.1:9092", "127.0.0.1:0"), "", tmp_path) == make[2]
    with serving(serve[1], tmp_path, listeners=None) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == serve[2].replace("127.0.0.1:9092", address)
        assert printed(use[0], use[1], address, tmp_path) == use[2]


def test_the_delegation_token_steps_print_the_documented_output(tmp_path: Path) -> None:
    make, serve, use, embed = steps_in(chapter("Delegation tokens"))
    assert printed(make[0], make[1].replace("127.0.0.1:9092", "127.0.0.1:0"), "", tmp_path) == make[2]
    with serving(serve[1], tmp_path, listeners=None) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == serve[2].replace("127.0.0.1:9092", address)
        assert printed(use[0], use[1], address, tmp_path) == use[2]
    assert printed(embed[0], embed[1], "", tmp_path) == embed[2]


def test_the_quota_steps_print_the_documented_output(tmp_path: Path) -> None:
    serve, use, embed = steps_in(chapter("Quotas"))
    with serving(serve[1], tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == serve[2].replace("127.0.0.1:9092", address)
        assert printed(use[0], use[1], address, tmp_path) == use[2]
    assert printed(embed[0], embed[1], "", tmp_path) == embed[2]


def without_docker(command: str, directory: Path) -> tuple[Path, dict[str, str]]:
    """Return the image's files here, with what is mounted, and its variables, with free ports."""
    words = shlex.split(command)
    root = unpacked(Path(tempfile.mkdtemp(dir=directory)))
    options = list(zip(words, words[1:], strict=False))
    variables = dict(value.split("=", 1) for option, value in options if option == "-e")
    for source, target in (value.split(":")[:2] for option, value in options if option == "-v"):
        place, found = root / target.lstrip("/"), Path(source.replace("$PWD", str(directory)))
        variables = {name: value.replace(f"{target}/", f"{found}/") for name, value in variables.items()}
        if found.is_file():
            shutil.copy(found, place)
    return root, {name: re.sub(r":909\d$", ":0", value) for name, value in variables.items()}


@NEEDS_LINUX
def test_the_containers_accept_only_the_intended_clients(tmp_path: Path) -> None:
    for title in ("TLS", "SASL"):
        kind, code, _ = steps_in(chapter(title))[0]
        printed(kind, code, "", tmp_path)
    (tmp_path / "orders").write_text("tea\n")
    plain = "--client security.protocol=SASL_PLAINTEXT --client sasl.mechanism=PLAIN --client sasl.username=alice"
    logins = (
        "--client security.protocol=SSL --client ssl.ca.location=ca.pem",
        f"{plain} --client sasl.password=alice-secret",
        f"{plain} --client sasl.password=alice-secret",
    )
    for number, (_, code, output) in enumerate(steps_in(chapter("In Docker"))):
        root, variables = without_docker(code, tmp_path)
        with running(root, variables) as lines:
            port = announced(lines).rpartition(":")[2]
            assert f"minibroker listens on {announced(lines)}\n" == re.sub(r"909\d", port, output)
            produce = f"minibroker produce in-docker {logins[number]} < orders"
            written = "1 record written to in-docker, partition 0 offset 0\n"
            assert printed("sh", produce, f"127.0.0.1:{port}", tmp_path) == written
