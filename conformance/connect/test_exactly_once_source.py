"""Kafka Connect writes each line of a file exactly once, whichever worker is killed or falls silent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.conftest import Broker
from conformance.connect.processes import Worker, running
from conformance.connect.reading import end_offset, values
from conformance.kafka_files.contents import client
from conformance.kafka_files.scenario import done

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]
LINES = 20_000
BATCH = "100"
CONFIG = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "topic": "lines",
    "batch.size": BATCH,
    "tasks.max": "1",
    "exactly.once.support": "required",
    "transaction.boundary": "poll",
}


def test_each_line_is_written_once_whichever_worker_is_killed(
    start_broker: Callable[[Path], AbstractContextManager[Broker]], tmp_path: Path
) -> None:
    """Twice the worker with the task is killed; then it is silent while the other takes over, and comes back."""
    source = tmp_path / "lines"
    source.write_text("")
    with start_broker(tmp_path) as broker:
        first, second = (Worker(tmp_path / name, broker.bootstrap_servers) for name in ("first", "second"))

        def are_there() -> bool:
            return len(values(broker.bootstrap_servers, "lines")) >= written

        def has_grown() -> bool:
            return end_offset(broker.bootstrap_servers, "lines") > end + 10 * int(BATCH)

        admin = AdminClient(client(broker.bootstrap_servers))
        done(admin.create_topics([NewTopic("lines", 1, 1)]))
        with running(first, second):
            first.run_connector("lines", CONFIG | {"file": str(source)})
            written = 0
            for step in ("kill", "kill", "silence", "wait"):
                end = end_offset(broker.bootstrap_servers, "lines")
                with source.open("a") as file:
                    file.writelines(f"{number}\n" for number in range(written, written + LINES))
                written += LINES
                first.await_true(has_grown)  # and goes on
                owner, other = (first, second) if first.has_task("lines") else (second, first)
                if step == "kill":
                    owner.kill()
                    owner.start()
                elif step == "silence":
                    owner.pause()
                other.await_true(are_there)
                owner.resume()
            with source.open("a") as file:
                file.write(f"{written}\n")
            written += 1
            first.await_true(are_there)
        found = values(broker.bootstrap_servers, "lines")
    assert found == list(map(str, range(written)))
