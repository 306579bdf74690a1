"""Open transactions: which ones hang, by their coordinator or by markers, and never by the times of records."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.pipeline.verifying.log_files import plan_verification_of_directory
from minibroker.pipeline.verifying.verify_job import verify_plan
from minibroker.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.pipeline.verifying.metadata_logs import metadata, topic
from tests.pipeline.verifying.support import Writer, judge

PRODUCER = 7
HOUR_MS = 3_600_000
EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 0, 1, 2, 4


def open_log(directory: Path) -> Writer:
    """A log in which a transaction of the producer is open from offset 3 on."""
    writer = Writer(directory)
    writer.write(3)
    writer.write(2, producer=PRODUCER, transactional=True)
    return writer


def of_transactions(directory: Path) -> list[tuple[str, str]]:
    """Kind and detail of what is found about transactions."""
    found = judge(directory, checks=["transactions"], topics=["orders"])
    assert {each.offset for each in found} == {3}
    return [(each.kind, each.detail) for each in found]


def coordinate(directory: Path, *states: tuple[int, str] | None, producer_id: int = PRODUCER) -> None:
    """Write what the coordinator of `pay` knew, state by state: its status and the topic in the transaction."""
    records = []
    for offset, each in enumerate(states):
        value = None
        if each is not None:
            partitions = [TransactionLogValue.PartitionsSchema(topic=each[1], partition_ids=[0])] if each[1] else None
            message = TransactionLogValue(
                producer_id=producer_id,
                producer_epoch=0,
                transaction_timeout_ms=60_000,
                transaction_status=each[0],
                transaction_partitions=partitions,
                transaction_last_update_timestamp_ms=1,
                transaction_start_timestamp_ms=1,
            )
            value = bytes(2) + bytes(message.encode(0))
        key = bytes(2) + bytes(TransactionLogKey(transactional_id="pay").encode(0))
        records.append(Record(offset, 1, key, value))
    (directory / "__transaction_state-0").mkdir()
    (directory / "__transaction_state-0" / f"{0:020d}.log").write_bytes(bytes(build_batch(records)))


def test_later_timestamps_do_not_make_a_transaction_hang(tmp_path: Path) -> None:
    writer = open_log(tmp_path)
    writer.now_ms += HOUR_MS
    writer.write(3)
    writer.close()
    detail = "producer 7; by the records' times the log goes on for 3600 s behind its last record"
    assert of_transactions(tmp_path) == [("open-transaction", detail)]


def test_markers_of_all_producers_show_how_long_a_transaction_has_been_open(tmp_path: Path) -> None:
    writer = open_log(tmp_path)
    for wait_ms, kind in ((HOUR_MS, "open-transaction"), (HOUR_MS, "hanging-transaction")):
        writer.now_ms += wait_ms  # the first marker may have come at once, whatever the times of the records are
        writer.write(1, producer=8, transactional=True)
        writer.end(8, commit=True)
        assert [found[0] for found in of_transactions(tmp_path)] == [kind]
    writer.close()
    assert (
        of_transactions(tmp_path)[0][1] == "producer 7; by the markers of others, it has been open for 3600 s or longer"
    )


@pytest.mark.parametrize("status", [ONGOING, PREPARE_COMMIT])
def test_a_transaction_its_coordinator_will_end_is_open_whatever_its_age(status: int, tmp_path: Path) -> None:
    writer = open_log(tmp_path)
    for _ in range(2):
        writer.now_ms += HOUR_MS
        writer.write(1, producer=8, transactional=True)
        writer.end(8, commit=True)
    writer.close()
    coordinate(tmp_path, (EMPTY, ""), (status, "orders"))
    ((kind, detail),) = of_transactions(tmp_path)
    assert kind == "open-transaction"
    assert detail.startswith("producer 7; the coordinator of 'pay' will end it: it is ")
    assert detail.endswith(", with a timeout of 60000 ms")


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([(ONGOING, "orders"), (COMPLETE_COMMIT, "")], "it is CompleteCommit"),
        ([(ONGOING, "orders"), (EMPTY, "")], "it is Empty"),
        ([(ONGOING, "payments")], "it is Ongoing"),
    ],
)
def test_a_transaction_its_coordinator_has_ended_hangs(
    states: list[tuple[int, str]], said: str, tmp_path: Path
) -> None:
    open_log(tmp_path).close()
    coordinate(tmp_path, *states)
    detail = f"producer 7; the coordinator of 'pay' will not end it: {said}"
    assert of_transactions(tmp_path) == [("hanging-transaction", detail)]
    found = plan_verification_of_directory(str(tmp_path), checks=["transactions"], topics=["orders"], in_use=True)
    assert [each.kind for each in verify_plan(found)] == ["open-transaction"]  # a running broker is ahead


def test_a_transaction_unknown_to_all_coordinators_hangs(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    coordinate(tmp_path, (ONGOING, "orders"), None)
    assert [kind for kind, _ in of_transactions(tmp_path)] == ["open-transaction"]  # another node may know it
    metadata(tmp_path, topic("orders"))
    assert of_transactions(tmp_path) == [("hanging-transaction", "producer 7; no coordinator knows it")]
