"""What kafka-storage takes as --add-scram, and what it refuses."""

from __future__ import annotations

import base64

import pytest

from minibroker.broker.security.scram import ScramMechanism, make_scram_credential, salt_password
from minibroker.broker.security.scram_arguments import ScramArgumentError, parse_scram_credential
from tests.cases import for_each

SHA_256, SHA_512 = ScramMechanism


def test_a_scram_password_without_a_salt_gets_a_random_one() -> None:
    made, again = (parse_scram_credential("SCRAM-SHA-256=[name=alice,password=alice-secret]") for _ in range(2))
    assert (made.name, made.mechanism, made.iterations) == ("alice", SHA_256, 4096)
    salted = salt_password(SHA_256, "alice-secret", made.salt, 4096)
    assert made == make_scram_credential("alice", SHA_256, made.salt, 4096, salted)
    assert made.salt != again.salt


def test_salt_and_iterations_of_a_scram_credential_may_be_given() -> None:
    made = parse_scram_credential(' SCRAM-SHA-512=[name="alice",iterations=8192,salt="c2FsdA==",password="a=b"] ')
    salted = salt_password(SHA_512, "a=b", b"salt", 8192)
    assert made == make_scram_credential("alice", SHA_512, b"salt", 8192, salted)


def test_a_password_may_be_given_salted() -> None:
    salted = salt_password(SHA_256, "secret", b"salt", 4096)
    text = f"SCRAM-SHA-256=[name=alice,salt=c2FsdA==,saltedpassword={base64.b64encode(salted).decode()}]"
    assert parse_scram_credential(text) == make_scram_credential("alice", SHA_256, b"salt", 4096, salted)


@for_each(
    ("argument", "complaint"),
    [
        ("SCRAM-SHA-256", "Failed to find equals sign in SCRAM argument"),
        ("SCRAM-SHA-1=[name=a,password=secret]", "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        ("SCRAM-SHA-256=name=a,password=secret]", "Expected configuration string to start with"),
        ("SCRAM-SHA-256=[name=a,password=secret", "Expected configuration string to end with"),
        ("SCRAM-SHA-256=[]", "No equals sign found in SCRAM component"),
        ("SCRAM-SHA-256=[name=a,secret]", "No equals sign found in SCRAM component"),
        ("SCRAM-SHA-256=[password=secret]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2FsdA==]", "You must supply 'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,salt=secret,password=x]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,salt=c2FsdA==,saltedpassword=secret]", "Failed to decode given saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=x]", "Failed to parse iterations count"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=4095]", "The 'iterations' value must be >= 4096"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=16385]", "The 'iterations' value must be <= 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,x=1]", "Unknown SCRAM configurations: x"),
    ],
)
def test_invalid_arguments_are_rejected_without_showing_a_secret(argument: str, complaint: str) -> None:
    with pytest.raises(ScramArgumentError) as refused:
        parse_scram_credential(argument)
    assert complaint in str(refused.value) and "secret" not in str(refused.value)
