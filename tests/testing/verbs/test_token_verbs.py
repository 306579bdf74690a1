"""The delegation tokens of a test broker: made, renewed and expired in one line, on its clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from minibroker.testing import Broker

DAY_MS = 86_400_000
LIMITS = {"request.timeout.ms": "5000", "default.api.timeout.ms": "5000"}


@pytest.fixture(scope="module")
def any_broker() -> Iterator[Broker]:
    with Broker(security="SASL_PLAINTEXT", users={"alice": "wonderland"}) as broker:
        yield broker


@pytest.fixture
def broker(any_broker: Broker) -> Broker:
    any_broker.reset()
    return any_broker


def connects(config: dict[str, Any]) -> bool:
    """Whether our own client logs in with the settings of Java's."""
    try:
        with Client(ClientSettings({**LIMITS, **config}, "test")) as client:
            return bool(client.fetch_metadata([]).brokers)
    except ClientError:
        return False


def code(refused: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return refused.value.code


@pytest.mark.parametrize("mechanism", [None, "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_logs_in_with_a_token_until_it_is_expired(broker: Broker, mechanism: str | None) -> None:
    token, other = broker.tokens.create("alice"), broker.tokens.create("bob")
    config = broker.client_config("java", token=token, mechanism=mechanism)
    assert connects(config)
    broker.tokens.expire(token)
    assert not connects(config)
    assert broker.tokens.list() == [other]


def test_the_token_owners_permissions_apply(broker: Broker) -> None:
    broker.acls.allow("bob", "describe", topic="secret")  # and nobody else
    broker.create_topic("secret")
    for user, code in (("alice", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("bob", ErrorCode.NONE)):
        config = broker.client_config("java", token=broker.tokens.create(user))
        with Client(ClientSettings({**LIMITS, **config}, "test")) as client:
            assert [topic.error_code for topic in client.fetch_metadata(["secret"]).topics] == [code]


def test_acls_grant_permissions_on_delegation_tokens(broker: Broker) -> None:
    token, other = broker.tokens.create("bob"), broker.tokens.create("bob")
    broker.acls.allow("admin", "all", user_principal="*")
    broker.acls.allow("alice", "create_tokens", user_principal="bob")
    broker.acls.allow("alice", "describe", delegation_token=token.id)
    broker.acls.allow("admin", "describe", delegation_token=other.id)
    with Client(ClientSettings({**LIMITS, **broker.client_config("java", user="alice")}, "test")) as client:
        seen = client.request(DescribeDelegationTokenRequest(owners=None)).tokens
        assert [one.token_id for one in seen] == [token.id]
        for owner, code in (("bob", 0), ("carol", ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)):
            request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name=owner)
            assert client.request(request).error_code == code


def test_a_token_expires_on_the_brokers_clock(broker: Broker) -> None:
    broker.clock.freeze()
    token = broker.tokens.create("alice", renewers=["bob"], max_lifetime="2 days")
    assert (token.user, token.renewers) == ("alice", ("bob",))
    assert (token.expires_ms - token.issued_ms, token.max_ms - token.issued_ms) == (DAY_MS, 2 * DAY_MS)
    broker.clock.advance("20 hours")
    assert broker.tokens.renew(token, "10 hours").expires_ms == token.issued_ms + 30 * 3_600_000
    assert broker.tokens.renew(token).expires_ms == token.issued_ms + 44 * 3_600_000
    broker.clock.advance("20 hours")
    token = broker.tokens.renew(token)
    assert token.expires_ms == token.max_ms
    assert broker.tokens.list("alice") == [token] and broker.tokens.list("bob") == []
    broker.clock.advance("7 hours")
    assert connects(broker.client_config("java", token=token))
    broker.clock.advance("61 min")
    broker.clock.unfreeze()  # who fails to log in is answered a little later
    assert broker.tokens.list() == []
    assert not connects(broker.client_config("java", token=token))
    with pytest.raises(KafkaError) as refused:
        broker.tokens.renew(token)
    assert code(refused) in (ErrorCode.DELEGATION_TOKEN_EXPIRED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def test_all_tokens_expire_at_once_or_with_a_reset(broker: Broker) -> None:
    first = broker.tokens.create("alice")
    broker.tokens.create("bob")
    broker.tokens.expire()
    assert broker.tokens.list() == []
    for change in (broker.tokens.expire, broker.tokens.renew):
        with pytest.raises(KafkaError) as refused:
            change(first)
        assert code(refused) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    broker.tokens.create("alice")
    broker.reset()
    assert broker.tokens.list() == []


def test_printed_tokens_contain_no_secret(broker: Broker) -> None:
    token = broker.tokens.create("alice")
    assert token.id in repr(token) and token.secret not in repr(token)


def test_the_journal_contains_no_token_secrets(broker: Broker) -> None:
    broker.journal.on()
    with Client(ClientSettings({**LIMITS, **broker.client_config("java", user="alice")}, "test")) as client:
        hmac = client.request(CreateDelegationTokenRequest(max_lifetime_ms=-1)).hmac
        assert len(hmac) == 64
        client.request(DescribeDelegationTokenRequest(owners=None))
        client.request(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1))
        client.request(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1))
    kept = [one for one in broker.journal.requests() if "DelegationToken" in one.api]
    assert len(kept) == 4
    assert not any(hmac in one.request_bytes + one.answer_bytes for one in broker.journal.requests())
    created, described, renewed, expired = kept
    assert (created.answer.hmac, described.answer.tokens[0].hmac) == (b"[hidden]", b"[hidden]")
    assert (renewed.request.hmac, expired.request.hmac) == (b"[hidden]", b"[hidden]")
    broker.journal.off()


def test_only_java_and_franz_go_can_log_in_with_a_token(broker: Broker) -> None:
    token = broker.tokens.create("alice")
    config = broker.client_config("franz-go", token=token, mechanism="SCRAM-SHA-256")
    named = {"user": token.id, "pass": token.secret, "is_token": True}
    assert config["sasl"] == {"mechanism": "SCRAM-SHA-256", **named}
    for library in ("confluent", "aiokafka", "kafka-python", "kafkajs", "librdkafka.properties", "sarama"):
        with pytest.raises(ValueError, match=f"only java and franz-go log in .* '{library}' does not"):
            broker.client_config(library, token=token)
    with pytest.raises(ValueError, match="by SCRAM-SHA-256 or SCRAM-SHA-512, and not by 'PLAIN'"):
        broker.client_config("java", token=token, mechanism="PLAIN")


def test_invalid_token_arguments_are_rejected(broker: Broker) -> None:
    with pytest.raises(ValueError, match="max_lifetime is 1 ms or more, and cannot be '0 s'"):
        broker.tokens.create("alice", max_lifetime="0 s")
    with pytest.raises(ValueError, match="period is 1 ms or more"):
        broker.tokens.renew(broker.tokens.create("alice"), 0)
    with Broker() as plain, pytest.raises(RuntimeError, match="the broker has no security"):
        _ = plain.tokens
    with Broker(security="SSL") as with_tls:
        token = with_tls.tokens.create("alice")
        with pytest.raises(ValueError, match="with SSL nobody logs in with a token"):
            with_tls.client_config("java", token=token)
