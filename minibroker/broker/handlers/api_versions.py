"""ApiVersions: which APIs and versions are served, and which features the cluster has.

Behaviour: only APIs with a handler are listed; those of telemetry, and versions that Kafka has not released, only if
they are enabled. The dispatcher answers an unknown version of this API with UNSUPPORTED_VERSION in version 0 (KIP-511).

Versions: 3 brought the name and version of the client's software (INVALID_REQUEST if malformed) and features
(KIP-584). Features whose lowest level is 0 are listed from version 4 on, as older clients cannot read them. 5 brought
the cluster and node that the client means to reach (KIP-1242): REBOOTSTRAP_REQUIRED if they are others, INVALID_REQUEST
if only one is given.
"""

from __future__ import annotations

import re

from minibroker.broker.metadata.features import KRAFT_VERSION, SUPPORTED
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import SERVED, ServedApi, handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_WITH_SOFTWARE = 3
FIRST_WITH_LEVEL_0 = 4
NO_NODE = -1
RELEASED = {ApiKey.INIT_PRODUCER_ID: 5}  # the newest released version, where a newer one is served
OF_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


@handles(ApiKey.API_VERSIONS)
def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= FIRST_WITH_SOFTWARE:
        texts = (request.client_software_name, request.client_software_version)
        if not all(SOFTWARE_NAME.fullmatch(text) for text in texts):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.software = f"{texts[0]} {texts[1]}"
    if (request.cluster_id is None) != (request.node_id == NO_NODE):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    here = context.cluster.cluster_id, context.node.node_id
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != here:
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    if context.connection.authenticator is not None:
        context.connection.authenticator.mark_api_versions_sent()
    levels = {**context.cluster.image.features, KRAFT_VERSION: context.cluster.metadata_log.kraft_version}
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=key, min_version=served.versions[0], max_version=_choose_announced_version(context, key, served)
            )
            for key, served in sorted(SERVED.items())
            if key not in OF_TELEMETRY or context.cluster.settings["client.telemetry.enable"]
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=levels[0], max_version=levels[-1])
            for name, levels in SUPPORTED.items()
            if levels[0] > 0 or context.version >= FIRST_WITH_LEVEL_0
        ],
        finalized_features_epoch=context.cluster.metadata_log.storage.log_end_offset - 1,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
            if level and name in SUPPORTED  # Kafka's log directory may have features that are not known here
        ],
    )


def _choose_announced_version(context: RequestContext, api_key: int, served: ServedApi) -> int:
    """Return the newest version of an API to announce: an unstable one only if the settings allow it."""
    newest = served.versions[-1]
    return newest if context.cluster.settings["unstable.api.versions.enable"] else RELEASED.get(ApiKey(api_key), newest)
