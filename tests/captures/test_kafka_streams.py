"""Requests and answers in the streams of connections: found, in step again behind gaps, and paired."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.captures.explained_capture import CaptureExplainer, number_pairs
from minibroker.captures.kafka_streams import Conversation, RequestAnswerPair, find_conversation, find_conversations
from minibroker.captures.packets import Address, Capture
from minibroker.captures.tcp_streams import Connection, GaplessBytes, Stream, collect_connections, make_stream
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.security import SaslHandshakeRequest, SaslHandshakeResponse
from tests.captures.capturing import Wire, pcap
from tests.captures.frames import HELLO, WELCOME, answer, heartbeat, heartbeat_answer, request, sized
from tests.protocol.explaining.explained import check_that_each_byte_has_one_part, named

ENDS = Address("10.0.0.1", 50_000), Address("10.0.0.2", 9092)
ID = bytes(range(16))


def streams(asked: bytes | Stream, answered: bytes | Stream) -> Connection:
    to_server, to_client = (make_stream(each) if isinstance(each, bytes) else each for each in (asked, answered))
    return Connection(*ENDS, to_server, to_client, has_begin=True)


def conversation(asked: bytes | Stream, answered: bytes | Stream) -> Conversation:
    found = find_conversation(streams(asked, answered))
    assert found is not None
    return found


def ids(pairs: list[RequestAnswerPair]) -> list[tuple[int | None, int | None]]:
    return [
        (
            each.request.correlation_id if each.request else None,
            each.answer.correlation_id_of_answer if each.answer else None,
        )
        for each in pairs
    ]


def middle(data: bytes) -> Stream:
    """Return a stream whose begin was not captured."""
    return Stream([GaplessBytes(0, data, [])], has_begin=False, end=len(data))


def texts(found: Conversation) -> list[str]:
    explainer = CaptureExplainer()
    return [item.part.meaning for each in number_pairs([found]) for item in explainer.explain_pair(each)]


def test_responses_are_paired_and_explained_in_the_version_of_their_request() -> None:
    found = conversation(HELLO + heartbeat(1) + heartbeat(2), WELCOME + heartbeat_answer(1) + heartbeat_answer(2, 27))
    assert ids(found.pairs) == [(0, 0), (1, 1), (2, 2)]
    assert texts(found) == ["ApiVersions version 3"] * 2 + ["Heartbeat version 4"] * 4
    assert found.notes == []
    (_, last) = CaptureExplainer().explain_pair(number_pairs([found])[2])
    assert named(last.part, "error_code").meaning == "REBALANCE_IN_PROGRESS"


def test_a_request_without_a_response_is_listed_without_one() -> None:
    silent = request(ProduceRequest(acks=0), 9, 1)
    found = conversation(heartbeat(0) + silent + heartbeat(2), heartbeat_answer(0) + heartbeat_answer(2))
    assert ids(found.pairs) == [(0, 0), (1, None), (2, 2)]


def test_requests_with_a_constant_correlation_id_are_paired_with_responses_in_order() -> None:
    found = conversation(heartbeat(0, "a") + heartbeat(0, "b"), heartbeat_answer(0, 1) + heartbeat_answer(0, 2))
    assert [pair.answer.data for pair in found.pairs if pair.answer] == [heartbeat_answer(0, 1), heartbeat_answer(0, 2)]


def test_decoding_starts_at_the_next_frame_if_the_capture_starts_within_one() -> None:
    asked = heartbeat(1)[9:] + heartbeat(2) + heartbeat(3)
    answered = heartbeat_answer(1)[5:] + heartbeat_answer(2) + heartbeat_answer(3)
    found = conversation(middle(asked), middle(answered))
    assert ids(found.pairs) == [(2, 2), (3, 3)]
    assert "the capture does not have the first bytes of the client" in found.notes
    assert f"{len(heartbeat(1)) - 9} bytes of the client belong to no frame whose begin is known" in found.notes


def test_responses_whose_requests_were_not_captured_are_reported() -> None:
    found = conversation(middle(heartbeat(2)), middle(heartbeat_answer(1) + heartbeat_answer(2)))
    assert ids(found.pairs) in ([(2, 2)], [(2, 2), (None, 1)])


def test_decoding_continues_with_the_next_frame_after_a_gap() -> None:
    parts = [heartbeat(number) for number in range(6)]
    size = len(parts[0])
    whole = b"".join(parts)
    lost = slice(size + 14, 2 * size + 5)  # the end of a frame, and the begin of the next
    stream = Stream(
        [GaplessBytes(0, whole[: lost.start], []), GaplessBytes(lost.stop, whole[lost.stop :], [])], end=len(whole)
    )
    found = conversation(stream, b"".join(heartbeat_answer(number) for number in range(6)))
    assert [pair for pair in ids(found.pairs) if pair[0] is not None] == [(0, 0), (1, 1), (3, 3), (4, 4), (5, 5)]
    cut = found.pairs[1].request
    assert cut is not None
    assert cut.missing_bytes == size - 14
    assert f"{lost.stop - lost.start} bytes of the client are not in the capture" in found.notes


def test_a_gap_within_one_frame_hides_only_that_frame() -> None:
    parts = [heartbeat(0), heartbeat(1, "g" * 100), heartbeat(2)]
    whole = b"".join(parts)
    start = len(parts[0]) + 40
    stream = Stream(
        [GaplessBytes(0, whole[:start], []), GaplessBytes(start + 20, whole[start + 20 :], [])], end=len(whole)
    )
    found = conversation(stream, b"")
    assert [pair[0] for pair in ids(found.pairs)] == [0, 1, 2]


def test_unsupported_api_versions_requests_are_answered_in_version_0() -> None:
    from minibroker.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

    asked = bytearray(request(ApiVersionsRequest(), 3, 0))
    asked[6:8] = (77).to_bytes(2, "big")
    refusal = answer(ApiVersionsResponse(error_code=35), 0, 0)
    found = conversation(bytes(asked) + heartbeat(1), refusal + heartbeat_answer(1))
    assert texts(found)[1] == "ApiVersions version 0"


def test_fetched_topic_ids_are_explained_by_the_names_from_metadata() -> None:
    topic = MetadataResponse.MetadataResponseTopic(name="orders", topic_id=ID)
    asked = request(MetadataRequest(), 12, 0) + request(FetchRequest(), 17, 1)
    fetched = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic_id=ID)])
    found = conversation(asked, answer(MetadataResponse(topics=[topic]), 12, 0) + answer(fetched, 17, 1))
    explainer = CaptureExplainer()
    parts = [item.part for each in number_pairs([found]) for item in explainer.explain_pair(each)]
    assert named(parts[-1], "topic_id").meaning.endswith(", orders")


def test_raw_sasl_tokens_without_headers_are_hidden() -> None:
    token = sized(b"\0alice\0open sesame")
    asked = request(SaslHandshakeRequest(mechanism="PLAIN"), 0, 0) + token + heartbeat(1)
    answered = answer(SaslHandshakeResponse(), 0, 0) + sized(b"") + heartbeat_answer(1)
    found = conversation(asked, answered)
    assert [pair.request.is_token for pair in found.pairs if pair.request] == [False, True, False]
    assert ids(found.pairs)[2] == (1, 1)
    explainer = CaptureExplainer()
    items = [item for each in number_pairs([found]) for item in explainer.explain_pair(each)]
    said = " ".join(f"{part.value} {part.meaning}" for item in items for _, part in item.part.iterate_parts())
    assert "alice" in said
    assert "sesame" not in said


def test_the_client_is_identified_by_the_requests_or_the_port() -> None:
    answered, asked = WELCOME + heartbeat_answer(1), HELLO + heartbeat(1)
    turned = Connection(ENDS[1], ENDS[0], make_stream(answered), make_stream(asked), has_begin=False)
    for found in (find_conversation(turned), find_conversation(turned, ENDS[1].port)):
        assert found is not None
        assert found.connection.client == ENDS[0]
        assert ids(found.pairs) == [(0, 0), (1, 1)]
    assert find_conversation(turned, 1234) is None


def test_tls_connections_and_other_protocols_are_counted_separately() -> None:
    web = streams(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + bytes(200))
    tls = streams(bytes.fromhex("16030100a5") + bytes(165), b"")
    found = find_conversations([web, streams(HELLO, WELCOME), tls])
    assert len(found.found) == 1
    assert (found.tls, found.others) == ([tls], 1)


def test_requests_of_several_connections_are_numbered_by_time() -> None:
    first, second = Wire().open(), Wire(("127.0.0.1", 50_001)).open()
    first.asks(HELLO)
    second.packets += second.packets[:0]
    second.asks(heartbeat(1)).answers(heartbeat_answer(1))
    late = [(time + 0.0005, packet) for time, packet in second.packets]
    first.answers(WELCOME).asks(heartbeat(2))
    packets = sorted([*first.packets, *late])
    found = find_conversations(collect_connections(Capture(pcap(packets)).iterate_segments())).found
    pairs = number_pairs(found)
    assert [(each.number, each.connection.client.port, each.name) for each in pairs] == [
        (1, 50_000, "ApiVersions 3"),
        (2, 50_001, "Heartbeat 4"),
        (3, 50_000, "Heartbeat 4"),
    ]
    asked, answered = CaptureExplainer().explain_pair(pairs[1])
    assert asked.heading == "#2 request, 22:13:20.003500Z, 127.0.0.1:50001 > 127.0.0.1:9092"
    assert answered.heading == "#2 answer, 22:13:20.004500Z, 127.0.0.1:9092 > 127.0.0.1:50001, after 1.0 ms"


def check(connection: Connection) -> None:
    explainer = CaptureExplainer()
    found = find_conversations([connection]).found
    for each in number_pairs(found):
        for item in explainer.explain_pair(each):
            check_that_each_byte_has_one_part(item.part, 0, len(item.data))


@given(st.binary(max_size=120), st.binary(max_size=120), st.booleans())
def test_decoding_arbitrary_streams_never_raises(asked: bytes, answered: bytes, has_begin: bool) -> None:
    make = make_stream if has_begin else middle
    check(streams(make(HELLO + asked), make(WELCOME + answered)))


@given(st.data())
def test_decoding_streams_with_any_gap_never_raises(data: st.DataObject) -> None:
    whole = b"".join(heartbeat(number) for number in range(5))
    first = data.draw(st.integers(0, len(whole)))
    last = data.draw(st.integers(first, len(whole)))
    stream = Stream([GaplessBytes(0, whole[:first], []), GaplessBytes(last, whole[last:], [])], end=len(whole))
    check(streams(stream, b"".join(heartbeat_answer(number) for number in range(5))))
