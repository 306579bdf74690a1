"""Debezium writes each change of a table in PostgreSQL exactly once, though its worker is killed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path

import pytest

from conformance import builds
from conformance.conftest import Broker
from conformance.connect.postgres import PROGRAMS, running_database
from conformance.connect.processes import Worker, running
from conformance.connect.reading import records

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROGRAMS is None, reason="it needs PostgreSQL: apt-get install postgresql"),
]
TOPIC = "shop.public.orders"
ROWS = 1000  # that are written at a time
JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFIG = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "127.0.0.1",
    "database.user": "postgres",
    "database.password": "",
    "database.dbname": "postgres",
    "topic.prefix": "shop",
    "plugin.name": "pgoutput",
    "table.include.list": "public.orders",
    "tombstones.on.delete": "true",
    "max.batch.size": "64",
    "tasks.max": "1",
    "exactly.once.support": "required",
    **{f"{kind}.converter": JSON for kind in ("key", "value")},
    **{f"{kind}.converter.schemas.enable": "false" for kind in ("key", "value")},
}


def test_each_change_of_a_table_is_written_once(
    start_broker: Callable[[Path], AbstractContextManager[Broker]], tmp_path: Path
) -> None:
    with start_broker(tmp_path) as broker, running_database() as database:

        def inserted(first: int) -> str:
            numbers = range(first, first + ROWS)
            return "".join(f"insert into orders values ({number}, 'new');\n" for number in numbers)

        def are_there(count: int) -> bool:
            return sum(map(len, records(broker.bootstrap_servers, TOPIC))) >= count

        database.run("create table orders (id int primary key, state text);")
        database.run("alter table orders replica identity full;" + inserted(0))
        worker = Worker(tmp_path / "worker", broker.bootstrap_servers, (builds.debezium(),))
        with running(worker):
            worker.run_connector("orders", {**CONFIG, "database.port": str(database.port)})
            worker.await_true(lambda: are_there(ROWS))
            database.run(inserted(ROWS))
            worker.await_true(lambda: are_there(ROWS + 1))
            worker.kill()
            database.run(f"update orders set state = 'paid' where id < {ROWS};\n" + inserted(2 * ROWS))
            worker.start()
            database.run(f"delete from orders where id >= {2 * ROWS};")
            worker.await_true(lambda: are_there(6 * ROWS))
        found = records(broker.bootstrap_servers, TOPIC)
    changes: dict[int, list[str]] = defaultdict(list)
    for record in chain.from_iterable(found):
        change = None if record.value is None else json.loads(record.value)
        changes[json.loads(record.key or b"")["id"]].append("tombstone" if change is None else change["op"])
    expected = (["r", "u"], ["c"], ["c", "d", "tombstone"])
    assert changes == {number: expected[number // ROWS] for number in range(3 * ROWS)}
