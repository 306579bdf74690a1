"""UpdateFeatures: raises and lowers the levels of features such as metadata.version (KIP-584, KIP-1022).

Behaviour: a request makes all of its updates or none; the answer names the first one that fails. A level must be
supported by all registered brokers, also by those that are not running. A level is lowered only if the client allows a
downgrade. metadata.version is never lowered below a level at which records have another form. kraft.version cannot be
changed. `broker/metadata/features` has the list of features.

Versions: 0 cannot lower a level, as in Kafka, even with allow_downgrade; 1 brought the type of an upgrade and
validate_only, 2 one answer for all features.
"""

from __future__ import annotations

from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.metadata.features import FeatureUpdate
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER, make_denial_text
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.cluster import UpdateFeaturesRequest, UpdateFeaturesResponse
from minibroker.protocol.steps import apply_to_items_in_steps

FeatureResult = UpdateFeaturesResponse.UpdatableFeatureResult

LAST_WITH_RESULTS = 1


@handles(ApiKey.UPDATE_FEATURES, durable=True)
async def update_features(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    context.authorize(ALTER_CLUSTER, message=make_denial_text(ApiKey.UPDATE_FEATURES, ALTER_CLUSTER))
    updates = await run_in_slices(apply_to_items_in_steps(_parse_feature_update, request.feature_updates))
    latest = {update.name: update for update in updates}  # if a feature is listed twice, the last one counts
    try:
        validate_only = request.validate_only
        await run_in_slices(
            context.cluster.controller.update_features_in_steps(list(latest.values()), validate_only=validate_only)
        )
    except KafkaError as error:
        reason = f"The update failed for all features since the following feature had an error: {error.message}"
        raise KafkaError(error.code, reason) from error
    listed = updates if context.version <= LAST_WITH_RESULTS else []
    results = await run_in_slices(apply_to_items_in_steps(_make_feature_result, listed))
    return UpdateFeaturesResponse(error_message=None, results=results)


def _parse_feature_update(update: UpdateFeaturesRequest.FeatureUpdateKey) -> FeatureUpdate:
    return FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)


def _make_feature_result(update: FeatureUpdate) -> FeatureResult:
    return FeatureResult(feature=update.name, error_message=ErrorCode.NONE.name)
