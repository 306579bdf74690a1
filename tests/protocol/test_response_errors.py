"""Error codes are found wherever a response has them."""

from __future__ import annotations

from minibroker.protocol.apis import ApiKey, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsResponse
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.messages.produce import ProduceResponse
from minibroker.protocol.messages.share_fetch import ShareFetchResponse
from minibroker.protocol.response_errors import collect_error_codes
from tests.cases import for_each

SharePartition = ShareFetchResponse.ShareFetchableTopicResponse.PartitionData
Topic = ProduceResponse.TopicProduceResponse
Partition = Topic.PartitionProduceResponse


@for_each(
    ("response", "codes"),
    [
        (ApiVersionsResponse(), []),
        (ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), [35]),
        (FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), [70]),
        (ProduceResponse(responses=[]), []),
        (
            ProduceResponse(
                responses=[
                    Topic(partition_responses=[Partition(error_code=2), Partition(), Partition(error_code=2)]),
                    Topic(partition_responses=[Partition(error_code=-1)]),
                ]
            ),
            [2, 2, -1],
        ),
        (
            ShareFetchResponse(
                responses=[
                    ShareFetchResponse.ShareFetchableTopicResponse(
                        partitions=[
                            SharePartition(error_code=3),
                            SharePartition(acknowledge_error_code=121),
                            SharePartition(error_code=6, acknowledge_error_code=42),
                        ]
                    )
                ]
            ),
            [3, 121, 6, 42],
        ),
    ],
)
def test_error_codes_are_found_at_any_depth(response: Message, codes: list[int]) -> None:
    assert collect_error_codes(response) == codes


@for_each("key", list(ApiKey))
def test_every_response_can_be_searched_for_errors(key: ApiKey) -> None:
    response = get_response_class(key)()
    assert collect_error_codes(response) == []
