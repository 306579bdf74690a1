"""Client quotas, SCRAM credentials, ACLs and delegation tokens, of a broker without an authorizer or authentication.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from conformance.wire.conftest import Differing
from conformance.wire.connection import Connection, ConnectionClosed
from conformance.wire.requests import repeated
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from minibroker.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from minibroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

INVALID = ErrorCode.INVALID_REQUEST
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
SHA_256, SHA_512 = 1, 2

# --- quotas -------------------------------------------------------------------------------------

Entry = AlterClientQuotasRequest.EntryData
Parts = list[tuple[str, str | None]]
Values = dict[str, float | None]


def alter_quotas(connection: Connection, version: int, parts: Parts, values: Values, **fields: Any) -> Any:
    """(error code, message) for one entity; None removes a quota."""
    entry = Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    (answer,) = connection.ask(AlterClientQuotasRequest(entries=[entry], **fields), version).entries
    return answer.error_code, answer.error_message


def quotas(connection: Connection, version: int, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """The quotas by entity, or (error code, message)."""
    shape = DescribeClientQuotasRequest.ComponentData
    asked = [shape(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    answer = connection.ask(DescribeClientQuotasRequest(components=asked, strict=strict), version)
    if answer.error_code:
        assert answer.entries is None
        return answer.error_code, answer.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {
            each.key: each.value for each in one.values
        }
        for one in answer.entries
    }


@pytest.mark.parametrize("version", range(2))
def test_quotas_are_set_described_and_removed(
    connection: Connection, new_name: Callable[[], str], version: int
) -> None:
    user, app = new_name(), new_name()
    alone, both = (("user", user),), (("client-id", app), ("user", user))
    assert alter_quotas(connection, version, [("user", user)], {"producer_byte_rate": 10.0}) == (0, None)
    limits: Values = {"request_percentage": 12.5, "consumer_byte_rate": 5.0, "controller_mutation_rate": 0.5}
    assert alter_quotas(connection, version, [("user", user), ("client-id", app)], limits) == (0, None)

    def found(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
        return quotas(connection, version, *components, strict=strict)

    of_user = ("user", EXACT, user)
    expected = {alone: {"producer_byte_rate": 10.0}, both: limits}
    assert repeated(lambda: found(of_user), lambda seen: seen == expected) == expected
    assert found(of_user, strict=True) == {alone: expected[alone]}
    assert found(of_user, ("client-id", SPECIFIED, None)) == {both: limits}
    assert both in found(("client-id", SPECIFIED, None)) and alone in found(("user", SPECIFIED, None), strict=True)
    assert found(("user", EXACT, f"{user}-not")) == found(strict=True) == {}
    gone: Values = dict.fromkeys(limits)
    assert alter_quotas(connection, version, [("client-id", app), ("user", user)], gone) == (0, None)
    left = {alone: expected[alone]}
    assert repeated(lambda: found(of_user), lambda seen: seen == left) == left


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("parts", "values", "message"),
    [
        ([], {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ([("nope", "x")], {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: nope"),
        ([("user", "")], {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ([("user", "a")], {"nope": 1.0}, "Invalid configuration key nope"),
        ([("ip", "1.2.3.4")], {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ([("user", "a")], {"producer_byte_rate": 0.0001 - 1}, "Quota producer_byte_rate must be greater than 0"),
        ([("user", "a")], {"request_percentage": inf}, "Quota request_percentage must be a finite number"),
        ([("user", "a")], {"producer_byte_rate": -inf}, "Quota producer_byte_rate must be a finite number"),
        ([("user", "a")], {"producer_byte_rate": nan}, "Quota producer_byte_rate must be a finite number"),
        ([("user", "a")], {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            [("user", "a")],
            {"producer_byte_rate": 1e30},
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            [("ip", "1.2.3.4")],
            {"connection_creation_rate": 1e10},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            [("ip", "no address")],
            {"connection_creation_rate": 1.0},
            "no address is not a valid IP or resolvable host.",
        ),
    ],
)
def test_invalid_quotas_are_rejected(
    connection: Connection, version: int, parts: Parts, values: Values, message: str
) -> None:
    assert alter_quotas(connection, version, parts, values) == (INVALID, message)


@pytest.mark.parametrize("version", range(2))
def test_an_ip_entity_cannot_be_combined_with_others(
    connection: Connection, version: int, differing: Differing
) -> None:
    begin = "Invalid quota entity combination, IP entity should"
    message = differing(
        kafka=f"{begin}not be combined with User or ClientId",
        minibroker=f"{begin} not be combined with User or ClientId",
        because="Kafka leaves out a blank",
    )
    parts: Parts = [("ip", "1.2.3.4"), ("user", "a")]
    assert alter_quotas(connection, version, parts, {"producer_byte_rate": 1.0}) == (INVALID, message)


@pytest.mark.parametrize("version", range(2))
def test_validate_only_changes_no_quota(connection: Connection, new_name: Callable[[], str], version: int) -> None:
    user = new_name()
    parts: Parts = [("user", user)]
    assert alter_quotas(connection, version, parts, {"producer_byte_rate": 1.0}, validate_only=True) == (0, None)
    assert alter_quotas(connection, version, parts, {"nope": None}) == (0, None)
    assert quotas(connection, version, ("user", EXACT, user)) == {}


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("user", 3, None)], INVALID, "Unknown match type 3"),
        ([("nope", SPECIFIED, None)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type nope"),
        ([("", SPECIFIED, None)], INVALID, "Invalid empty entity type."),
        ([("user", EXACT, None)], INVALID, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        (
            [("user", DEFAULT, "x")],
            INVALID,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", SPECIFIED, "x")],
            INVALID,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        (
            [("user", EXACT, "a"), ("user", EXACT, "b")],
            INVALID,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("ip", SPECIFIED, None), ("user", SPECIFIED, None)],
            INVALID,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        ),
    ],
)
def test_invalid_quota_filters_are_rejected(
    connection: Connection,
    version: int,
    components: list[tuple[str, int, str | None]],
    code: ErrorCode,
    message: str,
) -> None:
    assert quotas(connection, version, *components) == (code, message)


# --- SCRAM credentials --------------------------------------------------------------------------

Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> Upsertion:
    made: Upsertion = Upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt")
    made.salted_password = b"x" * 32
    return made


def alter_credentials(
    connection: Connection, upsertions: list[Upsertion], deletions: list[tuple[str, int]] | None = None
) -> dict[str, tuple[int, str | None]]:
    gone = [Deletion(name=name, mechanism=mechanism) for name, mechanism in deletions or ()]
    request = AlterUserScramCredentialsRequest(deletions=gone, upsertions=upsertions)
    return {one.user: (one.error_code, one.error_message) for one in connection.ask(request, 0).results}


def credentials(connection: Connection, *names: str) -> dict[str, Any]:
    """(mechanism, iterations) of each, or (error code, message)."""
    shape = DescribeUserScramCredentialsRequest.UserName
    users = [shape(name=name) for name in names] or None
    answer = connection.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        one.user: (one.error_code, one.error_message)
        if one.error_code
        else sorted((info.mechanism, info.iterations) for info in one.credential_infos)
        for one in answer.results
    }


def test_scram_credentials_are_set_described_and_deleted(connection: Connection, new_name: Callable[[], str]) -> None:
    ann, bob = new_name(), new_name()
    assert alter_credentials(connection, [upsertion(ann), upsertion(bob, SHA_512, 16384)]) == {
        ann: (0, None),
        bob: (0, None),
    }
    assert alter_credentials(connection, [upsertion(ann, SHA_512, 5000)]) == {ann: (0, None)}
    expected = {ann: [(SHA_256, 4096), (SHA_512, 5000)], bob: [(SHA_512, 16384)]}
    assert repeated(lambda: credentials(connection, ann, bob), lambda seen: seen == expected) == expected
    assert credentials(connection).items() >= expected.items()
    assert alter_credentials(connection, [], [(ann, SHA_256)]) == {ann: (0, None)}
    left = {ann: [(SHA_512, 5000)]}
    assert repeated(lambda: credentials(connection, ann), lambda seen: seen == left) == left


def test_unknown_scram_credentials_are_reported(connection: Connection, new_name: Callable[[], str]) -> None:
    name = new_name()
    message = f"Attempt to describe a user credential that does not exist: {name}"
    assert credentials(connection, name) == {name: (ErrorCode.RESOURCE_NOT_FOUND, message)}
    message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    assert credentials(connection, name, name) == {name: (ErrorCode.DUPLICATE_RESOURCE, message)}
    message = "Attempt to delete a user credential that does not exist"
    assert alter_credentials(connection, [], [(name, SHA_256)]) == {name: (ErrorCode.RESOURCE_NOT_FOUND, message)}


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (upsertion("a", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("a", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("a", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("a", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    ],
)
def test_invalid_scram_credentials_are_rejected(
    connection: Connection, wanted: Upsertion, code: ErrorCode, message: str
) -> None:
    assert alter_credentials(connection, [wanted]) == {wanted.name: (code, message)}


def test_altering_a_scram_user_twice_in_a_request_is_rejected(
    connection: Connection, new_name: Callable[[], str]
) -> None:
    name = new_name()
    message = "A user credential cannot be altered twice in the same request"
    refused = {name: (ErrorCode.DUPLICATE_RESOURCE, message)}
    assert alter_credentials(connection, [upsertion(name), upsertion(name, SHA_512)]) == refused
    assert alter_credentials(connection, []) == {}
    assert alter_credentials(connection, [upsertion(name)]) == {name: (0, None)}
    known = {name: [(SHA_256, 4096)]}
    assert repeated(lambda: credentials(connection, name), lambda seen: seen == known) == known
    assert alter_credentials(connection, [upsertion(name, SHA_512)], [(name, SHA_256)]) == refused
    assert alter_credentials(connection, [upsertion(name), upsertion(name, 3)]) == refused
    assert credentials(connection, name) == known


def test_errors_of_single_scram_alterations_take_precedence_over_that_of_a_duplicate_user(
    connection: Connection, new_name: Callable[[], str]
) -> None:
    """That of the deletions comes before that of the upsertions."""
    name = new_name()
    message = "Attempt to delete a user credential that does not exist"
    unknown = {name: (ErrorCode.RESOURCE_NOT_FOUND, message)}
    assert alter_credentials(connection, [upsertion(name)], [(name, SHA_256)]) == unknown
    assert alter_credentials(connection, [upsertion(name, 3)], [(name, SHA_256)] * 2) == unknown
    iterations = {name: (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")}
    assert alter_credentials(connection, [upsertion(name, iterations=1), upsertion(name)]) == iterations
    assert credentials(connection, name)[name][0] == ErrorCode.RESOURCE_NOT_FOUND


# --- ACLs and tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 4))
def test_acl_requests_require_an_authorizer(connection: Connection, version: int) -> None:
    disabled, message = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
    answer = connection.ask(DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), version)
    assert (answer.error_code, answer.resources) == (disabled, [])
    assert answer.error_message == "No Authorizer is configured on the broker"
    acl = CreateAclsRequest.AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3)
    acl.permission_type = 3
    created = connection.ask(CreateAclsRequest(creations=[acl] * 2), version).results
    assert [(one.error_code, one.error_message) for one in created] == [(disabled, message)] * 2
    asked = DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=2, operation=1, permission_type=1)
    (deleted,) = connection.ask(DeleteAclsRequest(filters=[asked]), version).filter_results
    assert (deleted.error_code, deleted.error_message, deleted.matching_acls) == (disabled, message, [])


def test_acl_filters_with_an_unknown_operation_close_the_connection(connection: Connection) -> None:
    with pytest.raises(ConnectionClosed):
        connection.ask(DescribeAclsRequest(resource_type_filter=1, operation=0, permission_type=1), 3)


@pytest.mark.parametrize("version", range(1, 4))
def test_delegation_tokens_require_authentication(connection: Connection, version: int) -> None:
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    made = connection.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
    assert (made.error_code, made.principal_type, made.principal_name) == (refused, "User", "ANONYMOUS")
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms, made.hmac) == (-1, -1, -1, b"")
    assert made.token_requester_principal_name == ("ANONYMOUS" if version >= 3 else "")
    listed = connection.ask(DescribeDelegationTokenRequest(owners=None), version)
    assert (listed.error_code, listed.tokens) == (refused, [])
    if version <= 2:
        renewed = connection.ask(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), version)
        expired = connection.ask(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), version)
        assert [(one.error_code, one.expiry_timestamp_ms) for one in (renewed, expired)] == [(refused, -1)] * 2


# --- SASL ---------------------------------------------------------------------------------------


def test_sasl_apis_are_announced_without_a_sasl_listener(connection: Connection) -> None:
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    told = {api.api_key: (api.min_version, api.max_version) for api in connection.ask(asked, 4).api_keys}
    assert (told[17], told[36]) == ((0, 1), (0, 2))


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", "SCRAM-SHA-512", "nonsense", ""])
@pytest.mark.parametrize("version", range(2))
def test_a_sasl_handshake_on_a_plaintext_listener_is_rejected(
    connection: Connection, version: int, mechanism: str
) -> None:
    """The connection goes on."""
    for _ in range(2):
        answer = connection.ask(SaslHandshakeRequest(mechanism=mechanism), version)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", range(3))
def test_sasl_authenticate_on_a_plaintext_listener_is_rejected(connection: Connection, version: int) -> None:
    message = "SaslAuthenticate request received after successful authentication"
    for _ in range(2):
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=b"\0ann\0secret"), version)
        assert (answer.error_code, answer.error_message) == (ErrorCode.ILLEGAL_SASL_STATE, message)
        assert (answer.auth_bytes, answer.session_lifetime_ms) == (b"", 0)
