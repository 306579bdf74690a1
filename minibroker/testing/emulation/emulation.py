"""The interceptor that makes a broker answer as an older release of Apache Kafka did. It is the first interceptor.

    release         format on disk   a request that the release does not know
    0.8.2, 0.9      0                the connection is closed; there is no ApiVersions
    0.10.0-0.10.2   1                the connection is closed; ApiVersions in a newer version is answered with
                                     UNSUPPORTED_VERSION in version 0, without the APIs
    0.11-2.3        2                the same
    2.4 and newer   2                the same, but that answer names the versions of ApiVersions (KIP-511)
    4.0 and newer   2                the same; Produce is announced from 0 and refused below 3 (KAFKA-18659)

Records in a format that a client does not know are converted, as those releases did. `releases` has the versions of
APIs and the settings, the format on disk among them, which the broker gets when it starts; `quirks` the
differences other than codes of errors. A release has all error codes up to its highest; the source is the table
`Errors` in each release's newest kafka-clients, with which conformance/emulation compares this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, Final

from minibroker.broker.metadata.features import ELIGIBLE_LEADER_REPLICAS, INITIAL, METADATA_VERSION, SHARE_VERSION
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.requests.routes import UnanswerableRequest, encode_answer, encode_response_start
from minibroker.protocol.apis import ApiKey, get_api_name
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsResponse
from minibroker.testing.emulation.quirks import QuirkChange, list_quirks
from minibroker.testing.emulation.releases import is_release_or_newer, list_unstable_versions, list_versions_of_release
from minibroker.testing.seen.error_places import iterate_error_places

# The highest code from each of these releases on.
LAST_CODE: Final[dict[str, ErrorCode]] = {
    "0.8.2": ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    "0.9": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "0.10.0": ErrorCode.UNSUPPORTED_VERSION,
    "0.10.1": ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    "0.10.2": ErrorCode.POLICY_VIOLATION,
    "0.11": ErrorCode.OPERATION_NOT_ATTEMPTED,
    "1.0": ErrorCode.REASSIGNMENT_IN_PROGRESS,
    "1.1": ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    "2.0": ErrorCode.LISTENER_NOT_FOUND,
    "2.1": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    "2.2": ErrorCode.GROUP_MAX_SIZE_REACHED,
    "2.3": ErrorCode.FENCED_INSTANCE_ID,
    "2.4": ErrorCode.INVALID_RECORD,
    "2.5": ErrorCode.UNSTABLE_OFFSET_COMMIT,
    "2.7": ErrorCode.FEATURE_UPDATE_FAILED,
    "2.8": ErrorCode.INCONSISTENT_CLUSTER_ID,
    "3.0": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    "3.1": ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    "3.3": ErrorCode.NEW_LEADER_ELECTED,
    "3.5": ErrorCode.UNSUPPORTED_ASSIGNOR,
    "3.6": ErrorCode.STALE_MEMBER_EPOCH,
    "3.7": ErrorCode.INVALID_REGISTRATION,
    "3.8": ErrorCode.TRANSACTION_ABORTABLE,
    "3.9": ErrorCode.VOTER_NOT_FOUND,
    "4.0": ErrorCode.REBOOTSTRAP_REQUIRED,
    "4.1": ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    "4.4": ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
}
# By newer code, the code with which a release without it answered; for all other codes it was `OTHERWISE`.
BEFORE: Final[dict[ErrorCode, ErrorCode]] = {
    ErrorCode.INVALID_RECORD: ErrorCode.CORRUPT_MESSAGE,  # KIP-467: its exception had this code before
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_LEADER_OR_FOLLOWER,  # KIP-112: as older clients get today
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,  # KIP-460
    ErrorCode.ELECTION_NOT_NEEDED: ErrorCode.NONE,  # KIP-460
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,  # KIP-588
}
OTHERWISE: Final = ErrorCode.UNKNOWN_SERVER_ERROR
FIRST_TO_NAME_API_VERSIONS: Final = "2.4"  # KIP-511
FIRST_WITHOUT_OLD_PRODUCE: Final = "4.0"
FIRST_PRODUCE_THEN: Final = 3
FIRST_WITH_ELIGIBLE_LEADERS: Final = "4.1"  # by default; in 4.0 the feature must be enabled (KIP-966)
FIRST_LEVELS_BEFORE_4_4: Final = {METADATA_VERSION: 30, SHARE_VERSION: 1}  # Kafka 4.3 starts on such directories
# Each feature's highest level, from a release on (KIP-584). Clusters with ZooKeeper, before 3.3, had no features.
FEATURES: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "metadata.version": (
        ("3.3", 7),
        ("3.4", 8),
        ("3.5", 11),
        ("3.6", 14),
        ("3.7", 19),
        ("3.8", 20),
        ("3.9", 21),
        ("4.0", 25),
        ("4.1", 27),
        ("4.2", 29),
        ("4.3", 30),
        ("4.4", 33),
    ),
    "group.version": (("4.0", 1),),
    "transaction.version": (("4.0", 2),),
    "eligible.leader.replicas.version": (("4.0", 1),),
    "kraft.version": (("3.9", 1),),
    "share.version": (("4.1", 1), ("4.4", 2)),
    "streams.version": (("4.2", 1),),
}
# What a release offers with `unstable.feature.versions.enable`. Older ones begin with level 30 here, so that theirs
# would seem to be finalized; and those of Kafka 4.4 are not known here.
UNSTABLE_LEVELS: Final[dict[str, dict[str, int]]] = {"4.3": {METADATA_VERSION: 31}}


@cache
def find_newest_error_code(release: str) -> ErrorCode:
    """Return the highest error code of a release."""
    return max(code for since, code in LAST_CODE.items() if is_release_or_newer(release, since))


def translate_error_code_to_release(release: str, code: int) -> int:
    """Return the error code with which a release answers where this broker answers with `code`."""
    if code <= find_newest_error_code(release):
        return code
    return translate_error_code_to_release(release, BEFORE.get(ErrorCode(code), OTHERWISE))


def list_highest_feature_levels(release: str) -> dict[str, int]:
    """Return the features of a release, with their highest levels."""
    found = {}
    for name, changes in FEATURES.items():
        for since, level in changes:
            if is_release_or_newer(release, since):
                found[name] = level
    return found


def list_initial_feature_levels(release: str) -> dict[str, int]:
    """Return the levels of features in a new cluster of a release, as far as clients notice them."""
    levels = INITIAL if is_release_or_newer(release, "4.4") else {**INITIAL, **FIRST_LEVELS_BEFORE_4_4}
    eligible = is_release_or_newer(release, FIRST_WITH_ELIGIBLE_LEADERS)
    return {name: level for name, level in levels.items() if name != ELIGIBLE_LEADER_REPLICAS or eligible}


class Emulation(Interceptor):
    """Makes a broker announce, serve and reject what the release did."""

    def __init__(self, release: str) -> None:
        self.release = release
        self._announced = list_versions_of_release(release)
        self._served = dict(self._announced)
        if is_release_or_newer(release, FIRST_WITHOUT_OLD_PRODUCE):
            produce = self._announced[ApiKey.PRODUCE]
            self._served[ApiKey.PRODUCE] = range(FIRST_PRODUCE_THEN, produce.stop)
        self._unstable = list_unstable_versions(release)
        self._levels = list_highest_feature_levels(release)
        self._unsupported: set[Call] = set()
        self._quirks = list_quirks(release)
        self._changes: dict[Call, list[QuirkChange]] = {}  # of requests in progress

    def before_request(self, call: Call) -> Message | None:
        """Return the answer that the release gives in this broker's place, None if it is answered as usual."""
        versions = self._served.get(call.api_key)
        if versions is not None and (call.context.version in versions or self._is_unstable_version(call)):
            return self._apply_quirks(call) if call.api_key in self._quirks else None
        if call.api_key == ApiKey.API_VERSIONS and versions is not None:
            self._unsupported.add(call)
            return self._make_answer_with_other_versions(versions)
        name = f"{get_api_name(call.api_key)} version {call.context.version}"
        raise UnanswerableRequest(f"{name}, which Kafka {self.release} does not serve")

    def _is_unstable_version(self, call: Call) -> bool:
        """Return whether the request has a version that is not released yet, but enabled."""
        return call.context.version == self._unstable.get(call.api_key) and _enables_unstable_versions(call)

    def alter_unsupported_version_response(self, response: ApiVersionsResponse) -> ApiVersionsResponse:
        """Return the release's answer to a version of ApiVersions that this broker does not know."""
        versions = self._served.get(ApiKey.API_VERSIONS)
        if versions is None:
            raise UnanswerableRequest(f"ApiVersions, which Kafka {self.release} does not serve")
        return self._make_answer_with_other_versions(versions)

    def _apply_quirks(self, call: Call) -> Message | None:
        """Apply the release's quirks to the request; return the answer, if a quirk has one."""
        changes = self._changes[call] = [quirk.change(self.release, call) for quirk in self._quirks[call.api_key]]
        answers = (change.before_request(call.request) for change in changes)
        return next((answer for answer in answers if answer is not None), None)

    def _make_answer_with_other_versions(self, versions: range) -> ApiVersionsResponse:
        """Return the answer to an unsupported version of ApiVersions: the error and the supported ones."""
        known = ApiVersionsResponse.ApiVersion(
            api_key=ApiKey.API_VERSIONS, min_version=versions[0], max_version=versions[-1]
        )
        announced = [known] if is_release_or_newer(self.release, FIRST_TO_NAME_API_VERSIONS) else []
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=announced)

    def alter_response(self, call: Call, response: Message) -> Message:
        """Limit announced versions to the release's, apply its quirks, and translate error codes."""
        if call.api_key == ApiKey.API_VERSIONS and call not in self._unsupported:
            self._limit_announced_versions_to_release(
                response, self._unstable if _enables_unstable_versions(call) else {}, self._choose_feature_levels(call)
            )
        for change in self._changes.get(call, ()):
            change.alter_response(response)
        for place in iterate_error_places(response, lambda topic_id: None):
            place.translate_code(partial(translate_error_code_to_release, self.release))
        return response

    def _choose_feature_levels(self, call: Call) -> dict[str, int]:
        """Return the levels of features to announce."""
        if call.context.cluster.settings["unstable.feature.versions.enable"]:
            return self._levels | UNSTABLE_LEVELS.get(self.release, {})
        return self._levels

    def _limit_announced_versions_to_release(
        self, response: Any, unstable_versions: Mapping[ApiKey, int], levels: Mapping[str, int]
    ) -> None:
        """Leave only versions and levels in an ApiVersions answer that the release and this broker both have."""
        announced = []
        for api in response.api_keys:
            versions = self._announced.get(api.api_key)
            if versions is not None:
                api.min_version = max(api.min_version, versions[0])
                api.max_version = min(api.max_version, unstable_versions.get(api.api_key, versions[-1]))
                announced.append(api)
        response.api_keys = [api for api in announced if api.min_version <= api.max_version]
        response.supported_features = [each for each in response.supported_features if each.name in levels]
        for feature in response.supported_features:
            feature.max_version = min(feature.max_version, levels[feature.name])
        response.finalized_features = [each for each in response.finalized_features if each.name in levels]
        for feature in response.finalized_features:
            level = min(feature.max_version_level, levels[feature.name])
            feature.max_version_level = feature.min_version_level = level
        if not levels:
            response.finalized_features_epoch = -1

    def alter_frame(self, call: Call, items: list[Any]) -> list[Any]:
        """Return the answer to an unsupported version of ApiVersions in version 0, others unchanged."""
        if call not in self._unsupported:
            return items
        # KIP-511: in version 0, which every client can read.
        self._unsupported.discard(call)
        return encode_answer(
            self._make_answer_with_other_versions(self._served[ApiKey.API_VERSIONS]),
            0,
            encode_response_start(0),
            call.correlation_id,
        )

    def on_sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        """Forget the request."""
        self._changes.pop(call, None)

    def on_lost(self, call: Call) -> None:
        """Forget the request."""
        self._unsupported.discard(call)
        self._changes.pop(call, None)


def _enables_unstable_versions(call: Call) -> bool:
    enabled: bool = call.context.cluster.settings["unstable.api.versions.enable"]
    return enabled
