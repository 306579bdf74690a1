"""A walk through the explorer's lessons: what a reader does who follows their steps, and answers what they ask."""

from __future__ import annotations

from typing import Any, Protocol

from playwright.sync_api import Page, expect

from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey
from minibroker.testing import Broker
from tests.explorer import asking

TOPIC = "lesson"
LESSONS = 20
TOPICS = ("once", "undecided", "old", "convert")  # that lessons work with, and which a button of theirs creates
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Source(Protocol):
    """What answers the page, and does what its buttons do."""

    @property
    def url(self) -> str:
        """The address of the page."""

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Return an answer of the explorer."""

    def create_topic(self, name: str, **configs: Any) -> None:
        """Create a topic with one partition."""

    def advance(self, duration: str) -> None:
        """Let time pass."""


class Server:
    """A broker that serves the explorer."""

    def __init__(self, broker: Broker) -> None:
        self.url = broker.explorer_url
        self._broker = broker

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        return asking.ask(self._broker, path, method, body)

    def create_topic(self, name: str, **configs: Any) -> None:
        self._broker.create_topic(name, **configs)

    def advance(self, duration: str) -> None:
        self._broker.clock.advance(duration)


class Reader:
    """Sends what the lessons ask for, from the values with which the form of each request begins."""

    def __init__(self, source: Source, page: Page) -> None:
        self.source = source
        self.page = page
        self.finished: set[str] = set()

    def composed(self, api: str, version: int, **fields: Any) -> str:
        values = self.source.ask(f"try/form?api={api}&version={version}")["values"]
        body = {"api": api, "version": version, "fields": values | fields}
        encoded: str = self.source.ask("try/encode", "POST", body)["hex"]
        return encoded

    def send(self, digits: str) -> dict[str, str]:
        """Send bytes; return the values in the answer by the names of their fields."""
        answer = self.source.ask("try/send", "POST", {"hex": digits})
        assert answer["answer"] is not None, answer
        return {row["name"]: row.get("value", "") for row in answer["answer"]["rows"]}

    def does(self, api: str, version: int, **fields: Any) -> dict[str, str]:
        return self.send(self.composed(api, version, **fields))

    def produces(self, records: str, topic: str = TOPIC, version: int = 9, **fields: Any) -> str:
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        return self.composed("Produce", version, topic_data=topics, **fields)

    def fetches(self, version: int, topic: str, offset: str = "0", **fields: Any) -> dict[str, str]:
        fetched = {"partition": 0, "fetch_offset": int(offset), "partition_max_bytes": 1 << 20}
        return self.does("Fetch", version, topics=[{"topic": topic, "partitions": [fetched]}], **fields)

    def asks_for(self, timestamp: int, topic: str = TOPIC, **fields: Any) -> dict[str, str]:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        return self.does("ListOffsets", 9, topics=[{"name": topic, "partitions": [partition]}], **fields)

    def writes(self, digits: str) -> None:
        """Write a request into the page, byte by byte, and send it."""
        self.page.goto(f"{self.source.url}#/try/Produce/3")
        written = self.page.get_by_label("The bytes of the request, to edit")
        expect(written).not_to_have_value("")  # the form's own bytes come first
        written.fill(digits)
        written.blur()
        expect(self.page.get_by_role("listbox", name="Fields of the request")).to_contain_text('"hand"')
        self.page.get_by_role("button", name="send").click()
        expect(self.page.get_by_role("listbox", name="Fields of the answer")).to_contain_text("NONE")

    def sees(self, lesson: str, steps: int) -> None:
        """Look at a lesson until so many of its steps are done."""
        self.page.goto(f"{self.source.url}#/lessons/{lesson}")
        expect(self.page.locator("li.done")).to_have_count(steps)

    def waits(self, lesson: str, done: int, hint: str) -> None:
        """Look at a lesson until it gives a hint, with no more steps done than these."""
        self.page.goto(f"{self.source.url}#/lessons/{lesson}")
        expect(self.page.get_by_text(hint)).to_be_visible()
        expect(self.page.locator("li.done")).to_have_count(done)

    def answers(self, lesson: str, *answers: object) -> None:
        """Open a lesson and answer its questions in their order."""
        self.page.goto(f"{self.source.url}#/lessons/{lesson}")
        questions = self.page.locator("li form")
        for number, answer in enumerate(answers):
            expect(questions).to_have_count(len(answers) - number)
            questions.first.get_by_label("Your answer").fill(str(answer))
            questions.first.get_by_role("button").click()

    def finishes(self, lesson: str, *answers: object) -> None:
        """Open a lesson, answer its questions in their order, and see that it is done."""
        self.answers(lesson, *answers)
        expect(self.page.get_by_text("Done.")).to_be_visible()
        self.finished.add(lesson)


def walk_on(reader: Reader) -> None:
    """Do all lessons behind the first ones."""
    for topic in TOPICS:
        reader.source.create_topic(topic)
    for part in (records, logs, groups, producers, transaction, control_batches, compaction, formats):
        part(reader)
    assert len(reader.finished) == LESSONS


def frames_and_topics(reader: Reader) -> None:
    first = reader.composed("ApiVersions", 3)
    reader.send(first)
    reader.send(first[:16] + "0000002a" + first[24:])
    reader.finishes("framing", len(first) // 2 - 4)
    reader.does("ApiVersions", 0)
    reader.finishes("versions", SERVED[ApiKey.FETCH].versions[-1])
    reader.source.create_topic(TOPIC)  # so that the first answer has its partitions, too
    reader.does("Metadata", 12, topics=[{"name": TOPIC, "topic_id": NO_ID}])
    reader.sees("metadata", 2)
    expect(reader.page.locator("li.next")).to_contain_text("Send it once more")
    answer = reader.does("Metadata", 12, topics=[{"name": TOPIC, "topic_id": NO_ID}])
    reader.finishes("metadata", answer["leader_id"])


def records(reader: Reader) -> None:
    says_what_differs(reader)
    offset = reader.send(reader.produces("by=hand"))["base_offset"]
    reader.finishes("produce", offset)
    spoilt = bytearray.fromhex(reader.produces("by=hand"))
    spoilt[-5] ^= 1
    reader.send(spoilt.hex())
    reader.sees("checksum", 1)
    reader.writes(by_hand())
    reader.finishes("checksum", 2)
    plain = reader.produces("k=v")
    reader.send(plain)
    marked = plain.replace("10000000026b027600", "10010000026b027600")
    assert marked != plain
    crc = next(
        row for row in reader.source.ask("try/explain", "POST", {"hex": marked})["tree"]["rows"] if row["name"] == "crc"
    )
    right = crc["meaning"].rpartition(" ")[2]
    reader.send(marked[: 2 * crc["start"]] + right + marked[2 * crc["end"] :])
    reader.source.create_topic("elided", record_attributes_elide=True)
    reader.send(reader.produces("k=v", "elided"))
    reader.finishes("attributes", 9, 10, 8)


def says_what_differs(reader: Reader) -> None:
    """The lesson is beside the work, and says what of a wrong try differs."""
    page = reader.page
    page.goto(f"{reader.source.url}#/lessons/produce")
    page.get_by_role("link", name="Open in Try it").click()
    reader.source.create_topic("other")
    reader.send(reader.produces("by=me", "other"))
    lesson = page.get_by_role("complementary", name="Lesson")
    expect(lesson).to_contain_text("name is other; the lesson's is lesson. value is me; the lesson's is hand.")


def by_hand() -> str:
    """Return what the lesson says of a Produce of version 3, with the CRC that the page names."""
    header = "0000 0003 00000007 0004 68616e64"
    body = "ffff 0001 00007530 00000001 0006 6c6573736f6e 00000001 00000000 0000004b"
    batch = "0000000000000000 0000003f 00000000 02 f10c76be 0000 00000000 000001a221ec35e7 000001a221ec35e7"
    record = "1a 00 00 00 06 6f776e 08 6d696e65 00"
    return f"00000079 {header} {body} {batch} {'ff' * 14} 00000001 {record}"


def logs(reader: Reader) -> None:
    reader.asks_for(-1)
    first = reader.source.ask(f"files/segment?path={TOPIC}-0/00000000000000000000.log")["batches"][0]
    reader.finishes("offsets", first["size"])
    session = reader.fetches(11, TOPIC, session_epoch=0)["session_id"]
    reader.does("Fetch", 11, topics=[], session_id=int(session), session_epoch=1)
    reader.finishes("sessions", session)
    reader.page.goto(f"{reader.source.url}#/lessons/index")
    reader.page.get_by_role("button", name="create it").click()
    expect(reader.page.get_by_text("which is not there")).to_have_count(0)
    reader.send(reader.produces("k=0\nk=1\nk=2\nk=3", "indexed"))  # four records, but one request
    reader.waits("index", 0, "It has 1 of 4 batches: each request makes one.")
    for number in range(3):
        reader.send(reader.produces(f"k={number}", "indexed"))
    reader.sees("index", 1)
    reader.source.advance("1 hour")
    reader.send(reader.produces("k=later", "indexed"))
    found = reader.source.ask("files/segment?path=indexed-0/00000000000000000000.log")
    reader.finishes("index", found["index"][1][1], 8)
    reader.sees("timeindex", 1)
    first = reader.asks_for(found["timeindex"][1][0], "indexed")["offset"]
    reader.answers("timeindex", 12, first)  # before anything was asked behind that time
    expect(reader.page.get_by_text("There is nothing to answer yet")).to_be_visible()
    offset = reader.asks_for(found["timeindex"][1][0] + 1, "indexed")["offset"]
    expect(reader.page.get_by_text(f"{first} is not it.")).to_be_visible()  # judged again, as there is something now
    reader.finishes("timeindex", offset)


def groups(reader: Reader) -> None:
    reader.does("FindCoordinator", 4)
    joined = reader.does("JoinGroup", 3)
    member = {"member_id": joined["member_id"].strip('"')}
    generation = int(joined["generation_id"])
    reader.does("SyncGroup", 3, generation_id=generation, **member)
    reader.sees("classic-group", 4)
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": None}
    committed = {"generation_id_or_member_epoch": generation, "topics": [{"name": TOPIC, "partitions": [partition]}]}
    reader.does("OffsetCommit", 8, **committed, **member)
    reader.does("LeaveGroup", 2, **member)
    reader.finishes("classic-group")
    subscription = {"subscribed_topic_names": [TOPIC], "topic_partitions": [], "rebalance_timeout_ms": 60_000}
    joined = reader.does("ConsumerGroupHeartbeat", 0, group_id="new-group", **subscription)
    reader.sees("new-group", 2)
    member = {"member_id": joined["member_id"].strip('"')}
    reader.does("ConsumerGroupHeartbeat", 0, group_id="new-group", member_epoch=-1, **member)
    reader.finishes("new-group")


def producers(reader: Reader) -> None:
    producer_id = reader.does("InitProducerId", 4)["producer_id"]
    again = reader.produces(f"@producer {producer_id} 0 0\na=b", "once")
    reader.send(again)
    reader.send(again)
    reader.send(reader.produces(f"@producer {producer_id} 0 5\na=b", "once"))
    reader.finishes("idempotence")
    reader.source.create_topic("numbered")
    reader.send(reader.produces(f"@producer {producer_id} 0 0\na=1\nb=2\nc=3", "numbered"))
    reader.finishes("once-a-batch", 2, 14, 42)


def begin(reader: Reader, topic: str, record: str) -> dict[str, Any]:
    """Write a record in a transaction; return the producer's id and epoch."""
    reader.does("FindCoordinator", 4, key_type=1, coordinator_keys=[topic])
    begun = reader.does("InitProducerId", 4, transactional_id=topic)
    own = {"producer_id": int(begun["producer_id"]), "producer_epoch": int(begun["producer_epoch"])}
    added: dict[str, Any] = {f"v3_and_below_{name}": value for name, value in own.items()}
    added |= {"v3_and_below_transactional_id": topic, "v3_and_below_topics": [{"name": topic, "partitions": [0]}]}
    reader.does("AddPartitionsToTxn", 3, **added)
    batch = f"@producer {own['producer_id']} {own['producer_epoch']} 0\n@transactional\n{record}"
    reader.send(reader.produces(batch, topic, transactional_id=topic))
    return own


def transaction(reader: Reader) -> None:
    own = begin(reader, TOPIC, "in=it")
    reader.does("EndTxn", 3, transactional_id=TOPIC, committed=True, **own)
    reader.finishes("transaction")


def control_batches(reader: Reader) -> None:
    own = begin(reader, "undecided", "x=y")
    ends = [reader.asks_for(-1, "undecided", isolation_level=level)["offset"] for level in (0, 1)]
    assert ends == ["1", "0"]
    reader.does("EndTxn", 3, transactional_id="undecided", committed=False, **own)
    reader.fetches(11, "undecided", isolation_level=1)
    reader.finishes("control-batches", "ABORT", 1)


def compaction(reader: Reader) -> None:
    named = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    configs = [{"name": name, "value": value} for name, value in named.items()]
    topic = {"name": "compacted", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    reader.does("CreateTopics", 5, topics=[topic])
    for record in ("a=1", "k=old"):
        reader.send(reader.produces(record, "compacted"))
    reader.waits("compaction", 1, "No record k=new comes after k=old yet.")
    reader.send(reader.produces("k=new", "compacted"))
    reader.sees("compaction", 2)
    for done, record, then in ((3, "x=1", "@tombstone k"), (5, "x=2", ""), (6, "x=3", "")):
        reader.source.advance("7 days")
        reader.send(reader.produces(record, "compacted"))
        reader.source.advance("1 day")
        reader.sees("compaction", done)
        if then:
            reader.send(reader.produces(then, "compacted"))
    reader.finishes("compaction")


def formats(reader: Reader) -> None:
    for version in (1, 2):
        reader.send(reader.produces("a=b", "old", version))
    reader.finishes("timestamps", 8, 61)
    offset = reader.send(reader.produces("@compress gzip\na=1\nb=2\nc=3", "old"))["base_offset"]
    reader.fetches(3, "old", offset)
    reader.fetches(1, "old", offset)
    reader.finishes("relative-offsets", 0, offset)
    offset = reader.send(reader.produces("still=here", "convert"))["base_offset"]
    for version in (4, 3, 0):
        reader.fetches(version, "convert", offset)
    reader.finishes("down-conversion", "timestamp")
