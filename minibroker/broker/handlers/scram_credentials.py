"""DescribeUserScramCredentials and AlterUserScramCredentials: the SCRAM credentials of users (KIP-554).

Behaviour: the metadata log has the keys that are derived from the salted password (RFC 5802), not the password. An
answer has only the mechanism and the iterations. Each user succeeds or fails by itself, and may be listed only once in
a request. `broker/security/scram.py` uses the credentials.

Versions: there is only 0 of both.
"""

from __future__ import annotations

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.metadata.features import LOWEST_METADATA_VERSION, METADATA_VERSION
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER, DESCRIBE_CLUSTER, make_denial_text
from minibroker.broker.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, make_scram_credential
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import RemoveUserScramCredentialRecord
from minibroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from minibroker.protocol.steps import apply_to_items_in_steps, count_items_in_steps

FIRST_LEVEL = 11  # of metadata.version: 3.5-IV2

DescribedCredentials = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
AlteredCredentials = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
async def describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not context.allows(DESCRIBE_CLUSTER, is_needed=True):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # As in Kafka, there is a result for each user, but without the user's name.
        refused = [DescribedCredentials(error_code=denied, error_message=None) for _ in request.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=denied, error_message=None, results=refused)
    known = context.cluster.image.scram_credentials
    if request.users:
        counts = await run_in_slices(count_items_in_steps(user.name for user in request.users))
    else:
        counts = await run_in_slices(count_items_in_steps(dict.fromkeys(name for name, _ in sorted(known))))
    results = await run_in_slices(
        apply_to_items_in_steps(lambda name: _describe_scram_credentials(context, name, counts[name]), list(counts))
    )
    return DescribeUserScramCredentialsResponse(results=results)


def _describe_scram_credentials(context: RequestContext, name: str, count: int) -> DescribedCredentials:
    result = DescribedCredentials(user=name)
    known = context.cluster.image.scram_credentials
    found = [known[name, mechanism] for mechanism in ScramMechanism if (name, mechanism) in known]
    try:
        if count > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        if not found:
            message = f"Attempt to describe a user credential that does not exist: {name}"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    result.credential_infos = [
        DescribedCredentials.CredentialInfo(mechanism=one.mechanism, iterations=one.iterations)
        for one in found
        if count == 1
    ]
    return result


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, durable=True)
async def alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    by_user: dict[str, list[Upsertion | Deletion]] = {}
    changes: list[Upsertion | Deletion] = [*request.deletions, *request.upsertions]
    for change in changes:
        by_user.setdefault(change.name, []).append(change)
        await pause()
    results = await run_in_slices(
        apply_to_items_in_steps(lambda one: _alter_scram_credentials(context, *one), by_user.items())
    )
    return AlterUserScramCredentialsResponse(results=results)


def _alter_scram_credentials(
    context: RequestContext, name: str, changes: list[Upsertion | Deletion]
) -> AlteredCredentials:
    """Make the one change of a user. Of several, refuse all, but report an error of the first one instead."""
    result = AlteredCredentials(user=name, error_message=None)
    change = changes[0]
    try:
        context.authorize(ALTER_CLUSTER, message=make_denial_text(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ALTER_CLUSTER))
        _check_credential_change(context, change)
        if len(changes) > 1:
            message = "A user credential cannot be altered twice in the same request"
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        if context.cluster.image.features.get(METADATA_VERSION, LOWEST_METADATA_VERSION) < FIRST_LEVEL:
            message = "The current metadata.version does not support SCRAM"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        context.cluster.commit_metadata_records([_make_credential_record(change)])
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _check_credential_change(context: RequestContext, change: Upsertion | Deletion) -> None:
    """Raise KafkaError if a change is invalid."""
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in ScramMechanism.__members__.values():
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Upsertion):
        if change.iterations < MIN_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if change.iterations > MAX_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    elif (change.name, change.mechanism) not in context.cluster.image.scram_credentials:
        message = "Attempt to delete a user credential that does not exist"
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)


def _make_credential_record(change: Upsertion | Deletion) -> Message:
    if isinstance(change, Upsertion):
        if not change.salted_password:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka's answer to an empty key
        mechanism = ScramMechanism(change.mechanism)
        return make_scram_credential(change.name, mechanism, change.salt, change.iterations, change.salted_password)
    return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
