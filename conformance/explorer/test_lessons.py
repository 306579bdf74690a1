"""The explorer's lessons: a reader who does what they say, and answers what they ask, gets through all of them."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from conformance.explorer.browsing import WAIT_MS, Explorer, chromium
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey
from minibroker.testing import Broker
from tests.explorer.asking import ask

TOPIC = "lesson"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
expect.set_options(timeout=WAIT_MS)


class Reader:
    """Sends what the lessons ask for, from the values with which the form of each request begins."""

    def __init__(self, broker: Broker, page: Page) -> None:
        self.broker = broker
        self.page = page

    def composed(self, api: str, version: int, **fields: Any) -> str:
        values = ask(self.broker, f"try/form?api={api}&version={version}")["values"]
        body = {"api": api, "version": version, "fields": values | fields}
        return ask(self.broker, "try/encode", "POST", body)["hex"]

    def send(self, digits: str) -> dict[str, str]:
        """Send bytes; return the values in the answer by the names of their fields."""
        answer = ask(self.broker, "try/send", "POST", {"hex": digits})
        assert answer["answer"] is not None, answer
        return {row["name"]: row.get("value", "") for row in answer["answer"]["rows"]}

    def does(self, api: str, version: int, **fields: Any) -> dict[str, str]:
        return self.send(self.composed(api, version, **fields))

    def produces(self, records: str, topic: str = TOPIC, transactional_id: str | None = None) -> str:
        partitions = [{"index": 0, "records": records}]
        topics = [{"name": topic, "partition_data": partitions}]
        return self.composed("Produce", 9, topic_data=topics, transactional_id=transactional_id)

    def writes(self, digits: str) -> None:
        """Write a request into the page, byte by byte, and send it."""
        self.page.goto(f"{self.broker.explorer_url}#/try/Produce/3")
        written = self.page.get_by_label("The bytes of the request, to edit")
        expect(written).not_to_have_value("")  # the form's own bytes come first
        written.fill(digits)
        written.blur()
        expect(self.page.get_by_role("listbox", name="Fields of the request")).to_contain_text('"hand"')
        self.page.get_by_role("button", name="send").click()
        expect(self.page.get_by_role("listbox", name="Fields of the answer")).to_contain_text("NONE")

    def sees(self, lesson: int, steps: int) -> None:
        """Look at a lesson until so many of its steps are done."""
        self.page.goto(f"{self.broker.explorer_url}#/lessons/{lesson}")
        expect(self.page.locator("li.done")).to_have_count(steps)

    def finishes(self, lesson: int, *answers: object) -> None:
        """Open a lesson, answer its questions in their order, and see that it is done."""
        self.page.goto(f"{self.broker.explorer_url}#/lessons/{lesson}")
        for answer in answers:
            question = self.page.locator("li.next form")
            question.get_by_label("Your answer").fill(str(answer))
            question.get_by_role("button").click()
        expect(self.page.get_by_text("Done.")).to_be_visible()


def test_the_lessons_can_be_completed() -> None:
    with Broker(explorer=True) as broker, chromium() as browser:
        explorer = Explorer(browser, broker.explorer_url)
        reader = Reader(broker, explorer.open())
        frames_and_topics(reader)
        records(reader)
        groups_and_transactions(reader)
        logs(reader)
        explorer.close()


def frames_and_topics(reader: Reader) -> None:
    first = reader.composed("ApiVersions", 3)
    reader.send(first)
    reader.send(first[:16] + "0000002a" + first[24:])
    reader.finishes(1, len(first) // 2 - 4)
    reader.does("ApiVersions", 0)
    reader.finishes(2, SERVED[ApiKey.FETCH].versions[-1])
    reader.does("Metadata", 12, topics=[{"name": TOPIC, "topic_id": NO_ID}])
    reader.finishes(3, 1)


def records(reader: Reader) -> None:
    offset = reader.send(reader.produces("by=hand"))["base_offset"]
    reader.finishes(4, offset)
    spoilt = bytearray.fromhex(reader.produces("by=hand"))
    spoilt[-5] ^= 1
    reader.send(spoilt.hex())
    reader.sees(5, 1)
    reader.writes(by_hand())
    reader.finishes(5, 2)
    for _ in range(2):
        reader.send(reader.produces("by=hand"))
    reader.does("ListOffsets", 9)
    reader.finishes(6, reader.broker.records(TOPIC)[0].offset + first_batch_bytes(reader.broker))
    session = reader.does("Fetch", 11, session_epoch=0)["session_id"]
    reader.finishes(7, session)


def by_hand() -> str:
    """Return what the lesson says of a Produce of version 3, with the CRC that the page names."""
    header = "0000 0003 00000007 0004 68616e64"
    body = "ffff 0001 00007530 00000001 0006 6c6573736f6e 00000001 00000000 0000004b"
    batch = "0000000000000000 0000003f 00000000 02 f10c76be 0000 00000000 000001a221ec35e7 000001a221ec35e7"
    record = "1a 00 00 00 06 6f776e 08 6d696e65 00"
    return f"00000079 {header} {body} {batch} {'ff' * 14} 00000001 {record}"


def first_batch_bytes(broker: Broker) -> int:
    segment = ask(broker, f"files/segment?path={TOPIC}-0/00000000000000000000.log")
    return segment["batches"][0]["size"]


def groups_and_transactions(reader: Reader) -> None:
    reader.does("FindCoordinator", 4)
    joined = reader.does("JoinGroup", 3)
    member = {"member_id": joined["member_id"].strip('"')}
    reader.does("SyncGroup", 3, generation_id=int(joined["generation_id"]), **member)
    reader.sees(8, 4)
    reader.does("LeaveGroup", 2, **member)
    reader.sees(8, 5)
    subscription = {"subscribed_topic_names": [TOPIC], "topic_partitions": [], "rebalance_timeout_ms": 60_000}
    reader.does("ConsumerGroupHeartbeat", 0, group_id="new-group", **subscription)
    reader.finishes(8)
    producer_id = reader.does("InitProducerId", 4)["producer_id"]
    reader.does("Metadata", 12, topics=[{"name": "once", "topic_id": NO_ID}])
    again = reader.produces(f"@producer {producer_id} 0 0\na=b", "once")
    reader.send(again)
    reader.send(again)
    reader.finishes(9)
    reader.does("FindCoordinator", 4, key_type=1, coordinator_keys=[TOPIC])
    begun = reader.does("InitProducerId", 4, transactional_id=TOPIC)
    own = {"producer_id": int(begun["producer_id"]), "producer_epoch": int(begun["producer_epoch"])}
    added = {f"v3_and_below_{name}": value for name, value in own.items()}
    added |= {"v3_and_below_transactional_id": TOPIC, "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}]}
    reader.does("AddPartitionsToTxn", 3, **added)
    batch = f"@producer {own['producer_id']} {own['producer_epoch']} 0\n@transactional\nin=it"
    reader.send(reader.produces(batch, transactional_id=TOPIC))
    reader.does("EndTxn", 3, transactional_id=TOPIC, committed=True, **own)
    reader.finishes(10)


def logs(reader: Reader) -> None:
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    topic = {"name": "compacted", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    reader.does("CreateTopics", 5, topics=[topic])
    for record in ("key=old", "key=new"):
        reader.send(reader.produces(record, "compacted"))
    reader.page.goto(f"{reader.broker.explorer_url}#/lessons/11")
    expect(reader.page.locator("li.done")).to_have_count(2)
    reader.broker.clock.advance("7 days")
    reader.send(reader.produces("other=key", "compacted"))
    reader.broker.clock.advance("1 day")
    reader.finishes(11)
    offset = int(reader.send(reader.produces("still=here"))["base_offset"])
    for version in (4, 3, 0):
        fetched = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        reader.does("Fetch", version, topics=[{"topic": TOPIC, "partitions": [fetched]}])
    reader.finishes(12, 61)
