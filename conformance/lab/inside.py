"""Asks a lab in a page, and opens files in it, as its reader does."""

from __future__ import annotations

import base64
import io
import time
import zipfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record

ASK = """async ({ path, method, body }) => {
  const sent = body === null ? {} : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await lab.fetch(path, { method, ...sent });
  const text = await answer.text();
  const value = text ? JSON.parse(text) : null;
  return answer.ok ? value : [answer.status, value.message];
}"""
DROP = """({ name, text }) => {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer }));
}"""
HOSTILE = "hostile"


class InTheTab:
    """The broker in a page."""

    def __init__(self, page: Page, url: str) -> None:
        self.url = url
        self._page = page

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        return self._page.evaluate(ASK, {"path": f"api/{path}", "method": method, "body": body})

    def control(self, path: str, body: Any) -> None:
        found = self._page.evaluate(ASK, {"path": f"../v1/{path}", "method": "POST", "body": body})
        assert not isinstance(found, list), found

    def create_topic(self, name: str, **configs: Any) -> None:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        self.control("topics", {"name": name, "partitions": 1, "config": config})

    def advance(self, duration: str) -> None:
        self.control("clock/advance", {"by": duration})


def drop(page: Page, name: str, content: bytes) -> None:
    """Drop a file on a page."""
    page.evaluate(DROP, {"name": name, "text": base64.b64encode(content).decode()})


def zip_folder(folder: Path) -> bytes:
    """Return a zip archive of a folder, in a folder of its name."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder.parent))), path.read_bytes())
    return made.getvalue()


def make_hostile_batches() -> bytes:
    """Return a log whose records would take many calls or much memory to be shown, and one that does not."""
    values = [b"[" * 200_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, bytes(160 << 20), b"alive"]
    now_ms = time.time_ns() // 1_000_000
    return b"".join(
        build_batch([Record(timestamp=now_ms, key=None, value=value)], base_offset=offset, compression=1, level=1)
        for offset, value in enumerate(values)
    )
