"""Where the main parts of each view are: what a change of the page moves is seen without comparing pixels.

Pixels differ with fonts and versions of the browser; these boxes do so by a few. After a change that moves them on
purpose, look at the page, and write them anew: `python3 -m conformance.explorer.layouts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer
from playwright.sync_api import Page

from conformance.explorer.browsing import SIZE, Explorer, chromium
from minibroker.testing import Broker
from tests.explorer.asking import ask

REFERENCE: Final = Path(__file__).parent / "layouts.json"
NARROW: Final = {"width": 760, "height": 900}
WINDOWS: Final = {"wide": SIZE, "narrow": NARROW}
TOLERANCE_PX: Final = 32
USER: Final = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
PARTS: Final = (
    *("header", "nav", "main", ".toolbar", ".timeline", ".columns", ".rows", ".sides > aside", ".sides > section"),
    *(".head", ".tabs", ".detail", ".bytes .hex", ".bytes .tree", ".compose", "section.outcome", ".versions", ".parts"),
    *(".page", ".reading", ".controls section", ".segment", ".lesson-panel"),
)
SHOWN: Final = {  # what is there once a view is complete
    "#/frames?filter=api%3DMetadata": "answered",
    "#/frames/{frame}?filter=api%3DMetadata": "correlation_id",
    "#/topics/orders": "high watermark",
    "#/topics/orders/configs": "retention.ms",
    "#/topics/users/0/0": "leader epoch",
    "#/schemas/users-value/1": "AVRO schema 1",
    "#/transactions/billing": "CompleteCommit",
    "#/files/orders-0%2F00000000000000000000.log": "batch [0]",
    "#/try/Metadata/12": "RequestHeader version 2",
    "#/controls": "take a snapshot",
    "#/lessons/produce": "Send Produce to the topic lesson",
    "#/try/Produce/9": "client_id",  # with the lesson beside it
}
BOXES: Final = """(parts) => Object.fromEntries(parts.map((part) => [part, [...document.querySelectorAll(part)]
    .map((element) => element.getBoundingClientRect()).filter((box) => box.width > 0 && box.height > 0)
    .map((box) => [box.left, box.top, box.right, box.bottom].map(Math.round))]).filter(([, boxes]) => boxes.length))"""

Boxes = dict[str, list[list[int]]]


class Filled(NamedTuple):
    """A broker with something for each view, and the number of a frame to open."""

    broker: Broker
    frame: int


@contextmanager
def filled() -> Iterator[Filled]:
    """Yield a broker that each time has the same topics, schemas, and requests of the page itself."""
    with Broker(explorer=True, registry=True) as broker:
        broker.create_topic("orders", 2)
        broker.produce("orders", "first", "second", key="k", partition=0)
        broker.registry.register("users-value", USER)
        broker.produce("users", b"\0\0\0\0\1\6ann", key="ann")
        _pay(broker)
        broker.journal.clear()
        form = ask(broker, "try/form?api=Metadata&version=12")["values"]
        asked = ask(broker, "try/encode", "POST", {"api": "Metadata", "version": 12, "fields": form})["hex"]
        for _ in range(3):
            ask(broker, "try/send", "POST", {"hex": asked})
        yield Filled(broker, broker.requests("Metadata", client_id="explorer")[0].number)


def _pay(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "billing"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"paid", partition=1)
    producer.commit_transaction()


def shown(explorer: Explorer, given: Filled, place: str, window: str) -> Page:
    """Open a view in a window, and wait until it is complete."""
    explorer.page.set_viewport_size(WINDOWS[window])  # type: ignore[arg-type]
    page = explorer.open(place.format(frame=given.frame))
    page.get_by_text(SHOWN[place]).first.wait_for()
    page.wait_for_function("() => !document.querySelector('[aria-busy=true]')")
    return page


def boxes(page: Page) -> Boxes:
    """Return left, top, right and bottom of the main parts, by their selectors."""
    found: Boxes = page.evaluate(BOXES, list(PARTS))
    return found


def moved(before: Boxes, now: Boxes) -> list[str]:
    """Return what is not where it was."""
    said = []
    for part in sorted(before.keys() | now.keys()):
        were, are = before.get(part, []), now.get(part, [])
        if len(were) != len(are):
            said.append(f"{part}: {len(were)} before, {len(are)} now")
        for was, is_ in zip(were, are, strict=False):
            if any(abs(one - other) > TOLERANCE_PX for one, other in zip(was, is_, strict=True)):
                said.append(f"{part}: {was} before, {is_} now")
    return said


def main() -> None:
    """Write the places of all parts."""
    found: dict[str, Any] = {}
    with filled() as given, chromium() as browser:
        for window in WINDOWS:
            explorer = Explorer(browser, given.broker.explorer_url)
            for place in SHOWN:
                found[f"{window} {place}"] = boxes(shown(explorer, given, place, window))
            explorer.close()
    lines = (f"{json.dumps(name)}: {json.dumps(each, separators=(',', ':'))}" for name, each in found.items())
    REFERENCE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
