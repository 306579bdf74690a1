"""What is imported once clients can connect: everything that requests would wait for, and little at a time."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import asyncio, sys
import minibroker.broker.process, minibroker.broker.configuration
from minibroker.operating_system import new_event_loop
new_event_loop().close()
from minibroker.broker.late_imports import LATE, import_late
sizes = [len(sys.modules)]
before = set(sys.modules)
async def sleep(seconds):
    sizes.append(len(sys.modules))
asyncio.run(import_late(sleep))
sizes.append(len(sys.modules))
print(max(after - before for before, after in zip(sizes, sizes[1:])), len(set(LATE) & before))
late = set(sys.modules)
import minibroker.broker.groups.group_coordinator, minibroker.broker.groups.consumer.heartbeat
import minibroker.broker.groups.group_expiry, minibroker.broker.groups.consumer.consumer_descriptions
import minibroker.broker.transactions.transaction_coordinator, minibroker.broker.transactions.verification
import minibroker.broker.upkeep.cleaner
print(len(set(sys.modules) - late))
print(*[name for name in sys.modules if name in ("cryptography", "minibroker.broker.network.tls_layer")])
"""


def test_few_modules_are_imported_at_a_time_and_none_is_left_for_a_request() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    at_once, there_already, left, *only_with_tls = ran.stdout.split()
    assert only_with_tls == []
    at_once, there_already, left = map(int, (at_once, there_already, left))
    assert at_once <= 6
    assert there_already == 0
    assert left == 0
