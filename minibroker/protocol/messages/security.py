"""Authentication (SASL, SCRAM credentials) and authorization (ACLs)."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64


class SaslHandshakeRequest(Message, api_key=17, versions="0-1", kips={0: 43, 1: 152}):
    """Asks to authenticate by a SASL mechanism."""

    mechanism: str = field(
        about="How the client wants to log in, such as PLAIN or SCRAM-SHA-256: the next messages are in its language."
    )


class SaslHandshakeResponse(Message, api_key=17, versions="0-1", kips={0: 43, 1: 152}):
    """Says whether the mechanism is enabled, and which ones are."""

    error_code: int16 = field()
    mechanisms: list[str] = field(
        about="What the listener has enabled, so that a refused client can say what would have worked."
    )


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+", kips={0: 152, 1: 368, 2: 482}):
    """Carries a client's next SASL token (after a version 1 handshake)."""

    auth_bytes: bytes = field(
        about="The client's next message in the mechanism's own language; it may contain a password."
    )


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+", kips={0: 152, 1: 368, 2: 482}):
    """Carries the broker's next token, and how long the session lasts."""

    error_code: int16 = field()
    error_message: str | None = field()
    auth_bytes: bytes = field(
        about="The broker's next message in the mechanism's own language, such as SCRAM's challenge."
    )
    session_lifetime_ms: int64 = field(
        "1+", about="After this time the broker wants a new login on the connection, or closes it; 0 is never."
    )


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+", kips={0: 554}):
    """Asks which SCRAM credentials users have (KIP-554)."""

    users: list[UserName] | None = field(about="Whose credentials to describe; null or an empty list for all users.")

    class UserName(Struct):
        name: str = field(about="The user, as in the login.")


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+", kips={0: 554}):
    """Lists mechanisms and iteration counts, never secrets."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    results: list[DescribeUserScramCredentialsResult] = field(about="The credentials of each user, or an error.")

    class DescribeUserScramCredentialsResult(Struct):
        user: str = field(about="The user who has these credentials.")
        error_code: int16 = field()
        error_message: str | None = field()
        credential_infos: list[CredentialInfo] = field(
            about="A credential for each mechanism that the user may log in by."
        )

        class CredentialInfo(Struct):
            mechanism: int8 = field(about="1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.")
            iterations: int32 = field(about="How often the password is hashed: more is slower to guess, and to log in.")


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+", kips={0: 554}):
    """Asks to set or delete SCRAM credentials of users."""

    deletions: list[ScramCredentialDeletion] = field(about="The credentials to take away.")
    upsertions: list[ScramCredentialUpsertion] = field(
        about="The credentials to set, whether there were others or not."
    )

    class ScramCredentialDeletion(Struct):
        name: str = field(about="The user who loses the credential.")
        mechanism: int8 = field(about="1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.")

    class ScramCredentialUpsertion(Struct):
        name: str = field(about="The user who gets the credential.")
        mechanism: int8 = field(about="1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.")
        iterations: int32 = field(about="How often the password was hashed: more is slower to guess, and to log in.")
        salt: bytes = field(
            about="Random bytes that were hashed with the password, so that equal passwords do not look equal."
        )
        salted_password: bytes = field(
            about="The hash that the client has computed, so that the broker never sees the password."
        )


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+", kips={0: 554}):
    """Says for each user whether the credential was changed."""

    throttle_time_ms: int32 = field()
    results: list[AlterUserScramCredentialsResult] = field(about="A result for each user of the request.")

    class AlterUserScramCredentialsResult(Struct):
        user: str = field(about="The user this is the result of.")
        error_code: int16 = field()
        error_message: str | None = field()


class DescribeAclsRequest(Message, api_key=29, versions="0-3", flexible="2+", kips={1: 290}):
    """Asks for the ACLs that match a filter."""

    resource_type_filter: int8 = field(
        about="Which kind of resource: 1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, 6 token, 7 user."
    )
    resource_name_filter: str | None = field(about="The resource the ACLs are for; null for all.")
    pattern_type_filter: int8 = field(
        "1+",
        default=3,
        about="How names are compared: 1 any, 2 all that would apply to the name, 3 literal, 4 prefixed.",
    )
    principal_filter: str | None = field(about='The user the ACLs are for, such as "User:alice"; null for all.')
    host_filter: str | None = field(about="The client address the ACLs are for; null for all.")
    operation: int8 = field(
        about="Which operation: 1 any, 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, and so on."
    )
    permission_type: int8 = field(about="1 asks for both, 2 for those that deny, 3 for those that allow.")


class DescribeAclsResponse(Message, api_key=29, versions="0-3", flexible="2+", kips={1: 290}):
    """Lists the ACLs by resource."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    resources: list[DescribeAclsResource] = field(about="The ACLs that match, by resource.")

    class DescribeAclsResource(Struct):
        resource_type: int8 = field(
            about="Which kind of resource: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 token, 7 user."
        )
        resource_name: str = field(
            about='The resource the ACLs are for, or the beginning of its name if the pattern is prefixed; "*" is all.'
        )
        pattern_type: int8 = field(
            "1+", default=3, about="3 if the name is meant literally, 4 if it is the beginning of names."
        )
        acls: list[AclDescription] = field(about="Who may or may not do what with it.")

        class AclDescription(Struct):
            principal: str = field(about='The user the ACL is for, such as "User:alice"; "User:*" is everybody.')
            host: str = field(about='The client address the ACL is for; "*" is all.')
            operation: int8 = field(
                about="What is allowed or denied: 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, and more."
            )
            permission_type: int8 = field(about="2 denies, which always wins, and 3 allows.")


class CreateAclsRequest(Message, api_key=30, versions="0-3", flexible="2+", kips={1: 290}):
    """Asks to add ACLs."""

    creations: list[AclCreation] = field(about="The ACLs to add; each succeeds or fails on its own.")

    class AclCreation(Struct):
        resource_type: int8 = field(
            about="Which kind of resource: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 token, 7 user."
        )
        resource_name: str = field(
            about='The resource the ACL is for, or the beginning of its name if the pattern is prefixed; "*" is all.'
        )
        resource_pattern_type: int8 = field(
            "1+", default=3, about="3 if the name is meant literally, 4 if it is the beginning of names."
        )
        principal: str = field(about='The user the ACL is for, such as "User:alice"; "User:*" is everybody.')
        host: str = field(about='The client address the ACL is for; "*" is all.')
        operation: int8 = field(
            about="What to allow or deny: 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, and so on."
        )
        permission_type: int8 = field(about="2 denies, which always wins, and 3 allows.")


class CreateAclsResponse(Message, api_key=30, versions="0-3", flexible="2+"):
    """Says for each ACL whether it was added, in the order of the request."""

    throttle_time_ms: int32 = field()
    results: list[AclCreationResult] = field(about="A result for each ACL, in the order of the request.")

    class AclCreationResult(Struct):
        error_code: int16 = field()
        error_message: str | None = field()


class DeleteAclsRequest(Message, api_key=31, versions="0-3", flexible="2+", kips={1: 290}):
    """Asks to delete all ACLs that match filters."""

    filters: list[DeleteAclsFilter] = field(about="What to delete: all ACLs that match any of these.")

    class DeleteAclsFilter(Struct):
        resource_type_filter: int8 = field(
            about="Which kind of resource: 1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, 6 token, 7 user."
        )
        resource_name_filter: str | None = field(about="The resource the ACLs are for; null for all.")
        pattern_type_filter: int8 = field(
            "1+",
            default=3,
            about="How names are compared: 1 any, 2 all that would apply to the name, 3 literal, 4 prefixed.",
        )
        principal_filter: str | None = field(about='The user the ACLs are for, such as "User:alice"; null for all.')
        host_filter: str | None = field(about="The client address the ACLs are for; null for all.")
        operation: int8 = field(
            about="Which operation: 1 any, 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, and so on."
        )
        permission_type: int8 = field(about="1 deletes both, 2 those that deny, 3 those that allow.")


class DeleteAclsResponse(Message, api_key=31, versions="0-3", flexible="2+", kips={1: 290}):
    """Lists the deleted ACLs for each filter."""

    throttle_time_ms: int32 = field()
    filter_results: list[DeleteAclsFilterResult] = field(about="What was deleted, in the order of the filters.")

    class DeleteAclsFilterResult(Struct):
        error_code: int16 = field()
        error_message: str | None = field()
        matching_acls: list[DeleteAclsMatchingAcl] = field(
            about="The ACLs that matched the filter, and whether each was deleted."
        )

        class DeleteAclsMatchingAcl(Struct):
            error_code: int16 = field()
            error_message: str | None = field()
            resource_type: int8 = field(
                about="Which kind of resource: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 token, 7 user."
            )
            resource_name: str = field(
                about="The resource the ACL was for, or the beginning of its name if the pattern is prefixed."
            )
            pattern_type: int8 = field(
                "1+", default=3, about="3 if the name was meant literally, 4 if it was the beginning of names."
            )
            principal: str = field(about='The user the ACL was for, such as "User:alice".')
            host: str = field(about='The client address the ACL was for; "*" is all.')
            operation: int8 = field(
                about="What it allowed or denied: 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, and more."
            )
            permission_type: int8 = field(about="2 if it denied, 3 if it allowed.")
