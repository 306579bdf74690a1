"""`minibroker tokens` against a broker that has delegation tokens, as users who log in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result

from minibroker.testing import Broker
from tests.cli.conftest import Run

DAY_MS = 86_400_000
AsUser = Callable[..., Result]


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker(security="SASL_PLAINTEXT", users={name: f"{name}-secret" for name in ("alice", "bob")}) as broker:
        yield broker


@pytest.fixture
def as_user(run: Run, running: Broker) -> AsUser:
    """Run a command as a user, or as the client with these Java settings."""

    def invoke(user: str | dict[str, Any], *arguments: str) -> Result:
        config = running.client_config("java", user=user) if isinstance(user, str) else user
        settings = {name: value for name, value in config.items() if name != "bootstrap.servers"}
        options = [word for name, value in settings.items() for word in ("--client", f"{name}={value}")]
        return run(*arguments, "--bootstrap-server", config["bootstrap.servers"], *options)

    return invoke


@pytest.fixture(autouse=True)
def no_tokens(running: Broker) -> None:
    running.tokens.expire()


def created(as_user: AsUser, user: str, *options: str) -> dict[str, Any]:
    made = as_user(user, "tokens", "create", "--json", *options)
    assert (made.exit_code, made.stderr) == (0, "")
    token: dict[str, Any] = json.loads(made.stdout)
    return token


def described(as_user: AsUser, user: str, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(as_user(user, "tokens", "describe", "--json", *options).stdout)
    return found


def test_a_token_is_created_renewed_and_expired(as_user: AsUser) -> None:
    token = created(as_user, "alice", "--renewer", "bob", "--max-lifetime", "12h")
    assert (token["owner"], token["max_ms"] - token["issued_ms"]) == ("alice", DAY_MS // 2)
    renewed = as_user("bob", "tokens", "renew", token["id"], "--period", "1h")
    assert renewed.exit_code == 0 and renewed.stdout.startswith(f"{token['id']} expires at 20")
    (seen,) = described(as_user, "alice")
    assert "secret" not in seen and seen["expires_ms"] < token["expires_ms"]
    assert (seen["id"], seen["requester"], seen["renewers"]) == (token["id"], "alice", ["bob"])
    later = as_user("alice", "tokens", "expire", token["id"], "--after", "2 h")
    assert later.stdout.startswith(f"{token['id']} expires at 20")
    assert as_user("alice", "tokens", "expire", token["id"]).stdout == f"removed {token['id']}\n"
    assert described(as_user, "alice") == []


def test_tokens_are_described_in_a_table(as_user: AsUser) -> None:
    token = created(as_user, "alice")
    table = as_user("alice", "tokens", "describe").stdout
    assert token["id"] in table and "alice" in table and token["secret"] not in table
    assert token["secret"] in as_user("alice", "tokens", "describe", "--secrets").stdout
    made = as_user("bob", "tokens", "create").stdout
    assert "secret" in made and "bob" in made
    assert as_user("alice", "tokens", "describe", "--owner", "alice").stdout == table


def test_a_token_is_created_for_another_owner(as_user: AsUser) -> None:
    token = created(as_user, "alice", "--owner", "bob")  # no ACL forbids it
    assert token["owner"] == "bob"
    assert [seen["requester"] for seen in described(as_user, "bob")] == ["alice"]


def test_a_command_logs_in_with_a_token(as_user: AsUser, running: Broker) -> None:
    token = running.tokens.create("alice")
    config = running.client_config("java", token=token)
    assert as_user(config, "topics", "list").exit_code == 0
    refused = as_user(config, "tokens", "create")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "minibroker: cannot create a token: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED "
        "(log in first, and not with a token)\n",
    )
    running.tokens.expire(token)
    assert as_user(config, "topics", "list").exit_code == 2  # as without a broker


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("renew", "nothing"), 1, "there is no token nothing that you may see"),
        (("expire", "nothing"), 1, "there is no token nothing that you may see"),
        (("create", "--max-lifetime", "soon"), 2, "'soon' is no period like"),
        (("renew", "nothing", "--period", "-1"), 2, "'-1' is no period like"),
    ],
)
def test_invalid_token_arguments_are_reported_in_one_line(
    as_user: AsUser, arguments: tuple[str, ...], status: int, said: str
) -> None:
    refused = as_user("alice", "tokens", *arguments)
    assert (refused.exit_code, refused.stdout) == (status, "")
    assert refused.stderr.startswith("minibroker: ") and said in refused.stderr and refused.stderr.count("\n") == 1


def test_only_owners_and_renewers_can_change_a_token(as_user: AsUser, running: Broker) -> None:
    token = created(as_user, "bob", "--owner", "alice")  # bob has asked for it, and so he sees it
    for command in ("renew", "expire"):
        refused = as_user("bob", "tokens", command, token["id"])
        assert (refused.exit_code, refused.stderr) == (
            1,
            f"minibroker: cannot {command} the token: DELEGATION_TOKEN_OWNER_MISMATCH\n",
        )
    assert [one.id for one in running.tokens.list()] == [token["id"]]
