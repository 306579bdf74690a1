"""Authentication (SASL, SCRAM credentials) and authorization (ACLs)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    """Asks to authenticate by a SASL mechanism."""

    mechanism: str = field()


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    """Says whether the mechanism is enabled, and which ones are."""

    error_code: int16 = field()
    mechanisms: list[str] = field()


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    """Carries a client's next SASL token (after a version 1 handshake)."""

    auth_bytes: bytes = field()


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    """Carries the broker's next token, and how long the session lasts."""

    error_code: int16 = field()
    error_message: str | None = field()
    auth_bytes: bytes = field()
    session_lifetime_ms: int64 = field("1+")


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    """Asks which SCRAM credentials users have (KIP-554)."""

    users: list[UserName] | None = field()

    class UserName(Struct):
        name: str = field()


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    """Lists mechanisms and iteration counts, never secrets."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    results: list[DescribeUserScramCredentialsResult] = field()

    class DescribeUserScramCredentialsResult(Struct):
        user: str = field()
        error_code: int16 = field()
        error_message: str | None = field()
        credential_infos: list[CredentialInfo] = field()

        class CredentialInfo(Struct):
            mechanism: int8 = field()
            iterations: int32 = field()


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    """Asks to set or delete SCRAM credentials of users."""

    deletions: list[ScramCredentialDeletion] = field()
    upsertions: list[ScramCredentialUpsertion] = field()

    class ScramCredentialDeletion(Struct):
        name: str = field()
        mechanism: int8 = field()

    class ScramCredentialUpsertion(Struct):
        name: str = field()
        mechanism: int8 = field()
        iterations: int32 = field()
        salt: bytes = field()
        salted_password: bytes = field()


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    """Says for each user whether the credential was changed."""

    throttle_time_ms: int32 = field()
    results: list[AlterUserScramCredentialsResult] = field()

    class AlterUserScramCredentialsResult(Struct):
        user: str = field()
        error_code: int16 = field()
        error_message: str | None = field()


class DescribeAclsRequest(Message, api_key=29, versions="0-3", flexible="2+"):
    """Asks for the ACLs that match a filter."""

    resource_type_filter: int8 = field()
    resource_name_filter: str | None = field()
    pattern_type_filter: int8 = field("1+", default=3)
    principal_filter: str | None = field()
    host_filter: str | None = field()
    operation: int8 = field()
    permission_type: int8 = field()


class DescribeAclsResponse(Message, api_key=29, versions="0-3", flexible="2+"):
    """Lists the ACLs by resource."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    resources: list[DescribeAclsResource] = field()

    class DescribeAclsResource(Struct):
        resource_type: int8 = field()
        resource_name: str = field()
        pattern_type: int8 = field("1+", default=3)
        acls: list[AclDescription] = field()

        class AclDescription(Struct):
            principal: str = field()
            host: str = field()
            operation: int8 = field()
            permission_type: int8 = field()


class CreateAclsRequest(Message, api_key=30, versions="0-3", flexible="2+"):
    """Asks to add ACLs."""

    creations: list[AclCreation] = field()

    class AclCreation(Struct):
        resource_type: int8 = field()
        resource_name: str = field()
        resource_pattern_type: int8 = field("1+", default=3)
        principal: str = field()
        host: str = field()
        operation: int8 = field()
        permission_type: int8 = field()


class CreateAclsResponse(Message, api_key=30, versions="0-3", flexible="2+"):
    """Says for each ACL whether it was added, in the order of the request."""

    throttle_time_ms: int32 = field()
    results: list[AclCreationResult] = field()

    class AclCreationResult(Struct):
        error_code: int16 = field()
        error_message: str | None = field()


class DeleteAclsRequest(Message, api_key=31, versions="0-3", flexible="2+"):
    """Asks to delete all ACLs that match filters."""

    filters: list[DeleteAclsFilter] = field()

    class DeleteAclsFilter(Struct):
        resource_type_filter: int8 = field()
        resource_name_filter: str | None = field()
        pattern_type_filter: int8 = field("1+", default=3)
        principal_filter: str | None = field()
        host_filter: str | None = field()
        operation: int8 = field()
        permission_type: int8 = field()


class DeleteAclsResponse(Message, api_key=31, versions="0-3", flexible="2+"):
    """Lists the deleted ACLs for each filter."""

    throttle_time_ms: int32 = field()
    filter_results: list[DeleteAclsFilterResult] = field()

    class DeleteAclsFilterResult(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        matching_acls: list[DeleteAclsMatchingAcl] = field()

        class DeleteAclsMatchingAcl(Struct):
            error_code: int16 = field()
            error_message: str | None = field()
            resource_type: int8 = field()
            resource_name: str = field()
            pattern_type: int8 = field("1+", default=3)
            principal: str = field()
            host: str = field()
            operation: int8 = field()
            permission_type: int8 = field()
