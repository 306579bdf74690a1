"""DescribeUserScramCredentials and AlterUserScramCredentials: what is kept of a password, told of it, and refused."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from minibroker.broker.metadata.features import METADATA_VERSION
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata_records import FeatureLevelRecord
from minibroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from tests.broker.harness import Harness

SHA_256, SHA_512 = 1, 2
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> Any:
    salted = hashlib.pbkdf2_hmac("sha256" if mechanism == SHA_256 else "sha512", b"secret", b"salt", iterations)
    return Upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted)


def deletion(name: str, mechanism: int = SHA_256) -> Any:
    return Deletion(name=name, mechanism=mechanism)


def alter(harness: Harness, *changes: Any) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, Deletion)],
        upsertions=[change for change in changes if isinstance(change, Upsertion)],
    )
    return {one.user: (one.error_code, one.error_message) for one in harness.request(request).results}


def describe(harness: Harness, *names: str) -> dict[str, Any]:
    """By user (mechanism, iterations) of each credential, or the error code."""
    shape = DescribeUserScramCredentialsRequest.UserName
    users = [shape(name=name) for name in names] or None
    answer = harness.request(DescribeUserScramCredentialsRequest(users=users))
    return {
        one.user: one.error_code or [(info.mechanism, info.iterations) for info in one.credential_infos]
        for one in answer.results
    }


@pytest.mark.parametrize("crash", [False, True])
def test_scram_credentials_survive_a_restart(harness: Harness, crash: bool) -> None:
    assert alter(harness, upsertion("ann"), upsertion("bob", SHA_512, 16384)) == {"ann": (0, None), "bob": (0, None)}
    assert alter(harness, upsertion("ann", SHA_512)) == {"ann": (0, None)}
    expected = {"ann": [(SHA_256, 4096), (SHA_512, 4096)], "bob": [(SHA_512, 16384)]}
    assert describe(harness) == expected
    harness.restart(crash=crash)
    assert describe(harness) == expected


def test_stored_credentials_prove_a_password_without_containing_it(harness: Harness) -> None:
    wanted = upsertion("ann")
    alter(harness, wanted)
    harness.restart()
    kept = harness.cluster.image.scram_credentials["ann", SHA_256]
    client_key = hmac.digest(wanted.salted_password, b"Client Key", "sha256")
    assert kept.stored_key == hashlib.sha256(client_key).digest()
    assert kept.server_key == hmac.digest(wanted.salted_password, b"Server Key", "sha256")
    assert (kept.salt, kept.iterations) == (b"salt", 4096)
    for file in (harness.directory / "data" / "__cluster_metadata-0").iterdir():
        assert wanted.salted_password not in file.read_bytes()


def test_credentials_are_changed_and_deleted(harness: Harness) -> None:
    alter(harness, upsertion("ann"), upsertion("bob"))
    assert alter(harness, upsertion("ann", iterations=8192), deletion("bob")) == {"bob": (0, None), "ann": (0, None)}
    harness.restart()
    assert describe(harness) == {"ann": [(SHA_256, 8192)]}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion("ann", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Upsertion(name="ann", mechanism=3, iterations=4096), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (Upsertion(name="ann", mechanism=1, iterations=4096), ErrorCode.UNKNOWN_SERVER_ERROR),
        (deletion("ann"), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("ann", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_invalid_alterations_are_rejected_and_others_are_applied(
    harness: Harness, change: Any, code: ErrorCode
) -> None:
    done = alter(harness, change, upsertion("zoe"))
    assert (done[change.name][0], done["zoe"][0]) == (code, ErrorCode.NONE)
    assert describe(harness) == {"zoe": [(SHA_256, 4096)]}


def test_scram_credentials_require_a_metadata_version_that_has_them(harness: Harness) -> None:
    too_low = (ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    harness.cluster.commit_metadata_records([FeatureLevelRecord(name=METADATA_VERSION, feature_level=10)])
    assert alter(harness, upsertion("alice"), deletion("bob")) == {
        "alice": too_low,
        "bob": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    }
    harness.cluster.commit_metadata_records([FeatureLevelRecord(name=METADATA_VERSION, feature_level=11)])
    assert alter(harness, upsertion("alice")) == {"alice": (ErrorCode.NONE, None)}
