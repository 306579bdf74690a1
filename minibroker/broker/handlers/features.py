"""UpdateFeatures: the levels of features, such as metadata.version, raised and lowered (KIP-584, KIP-1022).

Behaviour: all updates of a request are made, or none, and then the answer names the first that cannot be. A level must
be supported by all registered brokers, also by those that are away. Nothing goes down unless the client says so, and
metadata.version never behind a level in which the records have another form. That of kraft.version stays as a Kafka
has left it. Which features there are is in `broker/features`.

Versions: 0 cannot lower a level here, as in Kafka, whatever its allow_downgrade says; 1 brought the type of an upgrade
and validate_only, 2 one answer for all features.
"""

from __future__ import annotations

from minibroker.broker.metadata.features import Update
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.cluster import UpdateFeaturesRequest, UpdateFeaturesResponse
from minibroker.protocol.steps import Steps

Result = UpdateFeaturesResponse.UpdatableFeatureResult

LAST_WITH_RESULTS = 1


@handles(ApiKey.UPDATE_FEATURES, durable=True)
def update_features(context: RequestContext, request: UpdateFeaturesRequest) -> Steps[UpdateFeaturesResponse]:
    context.authorize(ALTER_CLUSTER)
    asked = request.feature_updates
    updates = [Update(update.feature, update.max_version_level, update.upgrade_type) for update in asked]
    latest = {update.name: update for update in updates}  # of a feature that stands twice the last is meant
    try:
        validate_only = request.validate_only
        yield from context.cluster.controller.update_features_in_steps(
            list(latest.values()), validate_only=validate_only
        )
    except KafkaError as error:
        reason = f"The update failed for all features since the following feature had an error: {error.message}"
        raise KafkaError(error.code, reason) from error
    told = updates if context.version <= LAST_WITH_RESULTS else []
    return UpdateFeaturesResponse(
        error_message=None,
        results=[Result(feature=update.name, error_message=ErrorCode.NONE.name) for update in told],
    )
