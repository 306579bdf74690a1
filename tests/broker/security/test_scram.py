"""SCRAM as the broker speaks it: the examples of the RFCs, Kafka's rules, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.security.exchanges import (
    AuthenticatedClient,
    AuthenticationFailed,
    Exchange,
    InvalidCredentials,
    start_sasl_exchange,
)
from minibroker.broker.security.scram import (
    ScramMechanism,
    TokenLogin,
    exchange_scram_proof,
    make_scram_credential,
    salt_password,
)
from minibroker.client.client_errors import AuthenticationFailed as ClientRefuses
from minibroker.client.client_mechanisms import authenticate_by_scram as client_scram
from minibroker.protocol.messages.metadata_records import UserScramCredentialRecord
from tests.cases import for_each

SHA_256, SHA_512 = ScramMechanism


def record(
    name: str,
    password: str,
    mechanism: ScramMechanism = SHA_256,
    salt: bytes = b"salt of alice",
    iterations: int = 4096,
) -> UserScramCredentialRecord:
    salted = salt_password(mechanism, password, salt, iterations)
    return make_scram_credential(name, mechanism, salt, iterations, salted)


class Clients:
    """Users with these credentials, and holders of these tokens by id."""

    def __init__(self, known: Iterable[UserScramCredentialRecord], tokens: Mapping[str, TokenLogin]) -> None:
        self._known = {(each.name, each.mechanism): each for each in known}
        self._tokens = tokens

    def find_credential(self, name: str, mechanism: int) -> UserScramCredentialRecord | None:
        return self._known.get((name, mechanism))

    def iterate_credentials(self, mechanism: int) -> list[UserScramCredentialRecord]:
        return [each for each in self._known.values() if each.mechanism == mechanism]

    def find_token_login(self, token_id: str, mechanism: ScramMechanism) -> TokenLogin | None:
        found = self._tokens.get(token_id)
        return found if found is not None and found.credential.mechanism == mechanism else None


def exchange(
    *known: UserScramCredentialRecord,
    mechanism: ScramMechanism = SHA_256,
    nonce: str = "server",
    tokens: Mapping[str, TokenLogin] | None = None,
) -> Exchange:
    return start_sasl_exchange(exchange_scram_proof(mechanism, Clients(known, tokens or {}), nonce))


def finished(running: Exchange, token: bytes) -> AuthenticatedClient:
    with pytest.raises(StopIteration) as ended:
        running.send(token)
    end: AuthenticatedClient = ended.value.value
    return end


def run(running: Exchange, client: Exchange) -> AuthenticatedClient:
    """Let our own client talk to the broker's exchange, to the end of both."""
    challenge = running.send(next(client))
    assert challenge is not None
    end = finished(running, client.send(challenge))  # type: ignore[arg-type]
    with pytest.raises(StopIteration):
        client.send(end.token)
    return end


def test_the_example_of_rfc_7677_is_reproduced() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    running = exchange(record("user", "pencil", salt=salt), nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    challenge = running.send(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    end = finished(running, proof)
    assert end == AuthenticatedClient(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user", None)


@for_each("mechanism", ScramMechanism)
@for_each("name", ["alice", "a,b=c", "=2C", "x" * 300])
def test_the_right_password_authenticates_by_scram(mechanism: ScramMechanism, name: str) -> None:
    running = exchange(record(name, "pässwörd", mechanism), mechanism=mechanism)
    end = run(running, client_scram(mechanism.hash_name, name, "pässwörd"))  # type: ignore[arg-type]
    assert end.name == name


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_a_wrong_password_and_an_unknown_user_fail_alike_at_the_proof(mechanism: ScramMechanism, name: str) -> None:
    running = exchange(record("alice", "right", mechanism), mechanism=mechanism)
    client = client_scram(mechanism.hash_name, name, "wrong")
    challenge = running.send(next(client))
    assert challenge is not None
    with pytest.raises(InvalidCredentials, match="^the client does not prove that it knows the password$"):
        running.send(client.send(challenge))


def test_an_unknown_user_gets_the_same_salt_each_time() -> None:
    first = [exchange(nonce="n").send(b"n,,n=nobody,r=c") for _ in range(2)]
    assert first[0] == first[1] != exchange(nonce="n").send(b"n,,n=somebody,r=c")


def shown(running: Exchange, name: str) -> tuple[int, int, bool]:
    """What a challenge shows: the length of the salt, the iterations, and whether the salt is a text."""
    challenge = running.send(f"n,,n={name},r=c".encode())
    assert isinstance(challenge, bytes)
    parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salt = base64.b64decode(parts["s"])
    return len(salt), int(parts["i"]), salt.isalnum()


def test_an_unknown_user_gets_a_challenge_like_a_known_one() -> None:
    alice = record("alice", "x", salt=b"\0" * 13, iterations=8192)
    bob, carol = record("bob", "x", salt=b"0123456789abcdefghijklmnop"), record("carol", "x", SHA_512, b"\0" * 70)
    names = [f"nobody{number}" for number in range(30)]
    assert shown(exchange(alice), "alice") == (13, 8192, False)
    assert {shown(exchange(alice, carol), name) for name in names} == {(13, 8192, False)}
    assert {shown(exchange(carol, mechanism=SHA_512), name) for name in names} == {(70, 4096, False)}
    before = {name: shown(exchange(alice, bob), name) for name in names}
    assert {*before.values()} == {(13, 8192, False), (26, 4096, True)}
    assert {
        name: shown(exchange(alice, bob, record("dave", "x", salt=b"\1" * 13, iterations=8192)), name) for name in names
    } == before
    assert shown(exchange(), "nobody") == (24, 4096, False)


def test_a_credential_of_one_mechanism_is_not_valid_for_the_other() -> None:
    running = exchange(record("alice", "right", SHA_512))
    client = client_scram("sha256", "alice", "right")
    challenge = running.send(next(client))
    assert challenge is not None
    with pytest.raises(InvalidCredentials):
        running.send(client.send(challenge))


def test_an_authorization_id_that_differs_from_the_user_is_rejected() -> None:
    with pytest.raises(AuthenticationFailed, match="Client requested an authorization id that is different"):
        exchange(record("alice", "x")).send(b"n,a=bob,n=alice,r=c")
    with pytest.raises(AuthenticationFailed, match="Client requested an authorization id that is different"):
        exchange().send(b"n,a=bob,n=alice,r=c")  # nobody learns whether there is an alice
    challenge = exchange(record("alice", "x")).send(b"n,a=alice,n=alice,r=c")
    assert challenge is not None and challenge.startswith(b"r=cserver,")


@for_each(
    "first",
    [
        b"",
        b"n,,n=alice",
        b"n,,r=c,n=alice",
        b"n,,n=,r=c",
        b"n,,n=alice,r=",
        b"y,,n=alice,r=c",
        b"p=tls-unique,,n=alice,r=c",
        b"n,,m=x,n=alice,r=c",
        b"n,,n=a=b,r=c",
        b"n,,n=a=2c,r=c",
        b"n,,n=alice,r=c d",
        b"n,,n=alice,r=c,",
        b"n,,n=alice,r=c,x",
        "n,,n=ünal,r=c".encode(),
        b"n,,n=\xff,r=c",
        b"n,,n=alice,r=c\n",
        b"n,,n=" + b"a" * (16 << 10) + b",r=c",
    ],
)
def test_malformed_first_scram_messages_are_rejected(first: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        exchange(record("alice", "x")).send(first)


@pytest.mark.parametrize("extension", [b",tokenauth=false", b",x=y", b",x=y=z,abc=1"])
def test_a_scram_extension_that_the_client_did_not_sign_is_rejected(extension: bytes) -> None:
    running = exchange(record("alice", "right"))
    client = client_scram("sha256", "alice", "right")
    challenge = running.send(next(client) + extension)
    assert challenge is not None
    with pytest.raises(InvalidCredentials, match="does not prove"):  # the client's proof does not know of it
        running.send(client.send(challenge))


def final_message(first: str, challenge: str, password: str) -> bytes:
    """What a client says last that began with `first`, after n,, and knows the password."""
    parts = dict(part.split("=", 1) for part in challenge.split(","))
    salted = salt_password(SHA_256, password, base64.b64decode(parts["s"]), int(parts["i"]))
    without_proof = f"c=biws,r={parts['r']}"
    said = f"{first},{challenge},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    proof = bytes(part ^ key for part, key in zip(signature, client_key, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def logged_in(running: Exchange, first: str, password: str) -> AuthenticatedClient:
    challenge = running.send(f"n,,{first}".encode())
    assert isinstance(challenge, bytes)
    return finished(running, final_message(first, challenge.decode(), password))


@pytest.mark.parametrize("extension", ["tokenauth=true", "tokenauth=TRUE", "x=y,tokenauth=false,tokenauth=True"])
def test_a_token_authenticates_its_owner_until_it_expires(extension: str) -> None:
    token = TokenLogin(record("token-id", "secret"), "alice", 1234)
    running = exchange(record("token-id", "other"), tokens={"token-id": token})
    end = logged_in(running, f"n=token-id,r=nonce,{extension}", "secret")
    assert (end.name, end.expires_ms, end.has_token) == ("alice", 1234, True)


@pytest.mark.parametrize("extension", [",tokenauth=false", ",tokenauth= true", ",TOKENAUTH=true", ",x=tokenauth=true"])
def test_a_password_is_expected_if_the_tokenauth_extension_is_missing(extension: str) -> None:
    token = TokenLogin(record("a", "secret"), "alice", 1234)
    running = exchange(record("a", "password"), tokens={"a": token})
    end = logged_in(running, f"n=a,r=nonce{extension}", "password")
    assert (end.name, end.expires_ms, end.has_token) == ("a", None, False)


@pytest.mark.parametrize(("name", "password"), [("token-id", "password"), ("alice", "password"), ("nobody", "secret")])
def test_a_wrong_secret_an_unknown_token_and_a_user_password_fail_alike(name: str, password: str) -> None:
    token = TokenLogin(record("token-id", "secret"), "alice", 1234)
    running = exchange(record("alice", "password"), tokens={"token-id": token})
    client = client_scram("sha256", name, password, is_token=True)
    challenge = running.send(next(client))
    assert challenge is not None
    with pytest.raises(InvalidCredentials, match="^the client does not prove that it knows the password$"):
        running.send(client.send(challenge))


@for_each(
    ("final", "reason"),
    [
        (b"", "not one of SCRAM"),
        (b"c=biws,r=cserver", "not one of SCRAM"),
        (b"c=biws,r=cserver,p=", "not one of SCRAM"),
        (b"c=biws,r=cother,p=AAAA", "the nonce is not"),
        (b"c=biws,r=c,p=AAAA", "the nonce is not"),
        (b"c=biwsAA==,r=cserver,p=AAAA", "channel binding"),
        (b"c=bi,r=cserver,p=AAAA", "not in base64"),
        (b"c=biws,r=cserver,p=AAAA", "does not prove"),
        (b"c=biws,r=cserver,p=A", "not in base64"),
        (b"c=biws,r=cserver,p=" + base64.b64encode(bytes(32)), "does not prove"),
    ],
)
def test_an_invalid_proof_is_rejected(final: bytes, reason: str) -> None:
    running = exchange(record("alice", "x"))
    running.send(b"n,,n=alice,r=c")
    with pytest.raises(InvalidCredentials, match=reason):
        running.send(final)


def test_a_credential_with_too_few_iterations_is_not_used() -> None:
    with pytest.raises(InvalidCredentials, match="4095 iterations"):
        exchange(record("alice", "x", iterations=4095)).send(b"n,,n=alice,r=c")


MESSAGES = st.one_of(
    st.binary(max_size=80),
    st.text(alphabet="nyacrpim=,2CDalice/+A \x01é", max_size=60).map(str.encode),
    st.sampled_from([b"n,,n=alice,r=c", b"c=biws,r=cserver,p=AAAA"]),
)


@given(MESSAGES, MESSAGES)
def test_arbitrary_scram_messages_are_rejected(first: bytes, final: bytes) -> None:
    running = exchange(record("alice", "x"))
    with pytest.raises((InvalidCredentials, AuthenticationFailed)):
        running.send(first)
        running.send(final)


def test_our_client_rejects_a_broker_that_does_not_know_the_password() -> None:
    running = exchange(record("alice", "right"))
    client = client_scram("sha256", "alice", "right")
    challenge = running.send(next(client))
    assert challenge is not None
    end = finished(running, client.send(challenge))
    with pytest.raises(ClientRefuses):
        client.send(end.token[:-5] + b"AAAA=")
