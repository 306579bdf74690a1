"""Sessions of clients that log in by SASL end by the test's clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from minibroker.testing import Broker

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_alice="a" user_bob="b";',
    "connections.max.reauth.ms": "3600000",
    "connections.max.idle.ms": "-1",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice",
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


def client(broker: Broker, name: str) -> Client:
    login = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": name[0],
    }
    return Client(ClientSettings(login))


def created(client: Client, name: str) -> int:
    """The error code with which a client is answered that creates a topic."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    code: int = client.request(CreateTopicsRequest(topics=[topic])).topics[0].error_code
    return code


def test_permissions_are_those_of_the_logged_in_user(broker: Broker) -> None:
    with client(broker, "alice") as alice, client(broker, "bob") as bob:
        assert created(alice, "t") == 0
        assert created(bob, "u") == 29  # TOPIC_AUTHORIZATION_FAILED
        assert bob.request(DeleteTopicsRequest(topic_names=["t"]), highest=5).responses[0].error_code == 29


def test_a_connection_with_an_expired_session_is_closed(broker: Broker) -> None:
    with client(broker, "alice") as alice:
        assert created(alice, "t") == 0
        broker.journal.on()
        broker.clock.advance("59 min")
        assert created(alice, "u") == 0
        assert broker.journal.requests("SaslHandshake") == []
        broker.clock.advance("1 min")
        with pytest.raises(ClientError, match="closed the connection"):
            created(alice, "v")
        assert created(alice, "v") == 0
        assert len(broker.journal.requests("SaslHandshake")) == 1


def test_clients_keep_their_principals_across_a_reset(broker: Broker) -> None:
    with client(broker, "alice") as alice, client(broker, "bob") as bob:
        assert created(alice, "t") == 0
        broker.reset()
        assert created(alice, "t") == 0
        assert created(bob, "u") == 29
