"""A page of explained bytes: hex on one side, the fields on the other, each lighting up the other.

It is one file that loads nothing. All that comes from the bytes is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import count
from typing import TYPE_CHECKING

from minibroker.protocol.explaining.explained_text import format_part_background, format_part_value

if TYPE_CHECKING:
    from minibroker.protocol.explaining.parts import ExplainedPart, Explanation
    from minibroker.protocol.records.varints import Bytes

ROW_BYTES = 16
HEX_BYTES = 65_536  # shown of one block
SECRET = -1  # in the place of a part's number: its bytes are not shown

HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
"""
STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5c6575; --paper: #fff; --line: #d9dde5; --lit: #ffe08a;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #9aa3b2; --paper: #14171d; --line: #2d333f; --lit: #6b5410; --bad: #ff8a80; } }
body { margin: 0; font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
.frame { display: grid; grid-template-columns: max-content 1fr; gap: 2rem; padding: 1rem 1.5rem; }
h1 { font-size: 1rem; margin: 1rem 1.5rem 0; }
.hex { position: sticky; top: 1rem; align-self: start; max-height: calc(100vh - 2rem); overflow: auto; margin: 0; }
.hex, .value, .type { font-family: ui-monospace, monospace; font-size: 12px; }
.at, .type, .meaning { color: var(--soft); }
.about { display: none; color: var(--soft); font-style: italic; }
li > span:hover > .about, li > span:focus > .about, .all .about { display: inline; }
.problem { color: var(--bad); }
ul { list-style: none; margin: 0; padding-left: 1.1rem; border-left: 1px solid var(--line); }
.tree > ul { border: 0; padding: 0; }
.lit { background: var(--lit); }
[data-p] { cursor: default; border-radius: 2px; }
"""
_LINE_END = "\n"
SCRIPT = """<script>
const light = (event, on) => {
  const part = event.target.closest("[data-p]");
  if (part) for (const each of part.closest(".frame").querySelectorAll(`[data-p="${part.dataset.p}"]`))
    each.classList.toggle("lit", on);
};
addEventListener("mouseover", (event) => light(event, true));
addEventListener("mouseout", (event) => light(event, false));
addEventListener("focusin", (event) => light(event, true));
addEventListener("focusout", (event) => light(event, false));
</script>
"""


def generate_html_page(items: Iterable[Explanation]) -> Iterator[str]:
    """Yield, in pieces, a complete HTML page of explained items."""
    yield HEAD.format(title="minibroker explain", style=STYLE) + "<main>\n"
    for item in items:
        part = item.part
        heading = f"{item.heading}: " if item.heading else ""
        yield f"<h1>{escape(heading + (part.meaning or part.name))}, {part.end - part.start:,} bytes</h1>\n"
        yield format_hex_beside_tree(item)
    yield "</main>\n" + SCRIPT


def format_hex_beside_tree(item: Explanation) -> str:
    """Return the HTML of one item: its bytes in hex beside the tree of its parts."""
    leaves: list[tuple[int, int, int]] = []
    blocks: list[str] = []
    tree = "".join(_generate_html_tree(item.part, item.data, count(), leaves, blocks))
    shown = f'<div class="hex">{_format_hex_as_html(item.data, leaves, item.part.start)}{"".join(blocks)}</div>'
    return f'<div class="frame">{shown}<div class="tree"><ul>{tree}</ul></div></div>\n'


def _generate_html_tree(
    part: ExplainedPart, data: Bytes, numbers: Iterator[int], byte_ranges: list[tuple[int, int, int]], blocks: list[str]
) -> Iterator[str]:
    """Yield the HTML of a part's tree; add (start, end, number) to `byte_ranges`, decompressed bytes to `blocks`."""
    number = next(numbers)
    is_leaf = not part.parts or part.payload is not None
    end = part.end if is_leaf else part.start + part.prefix_bytes
    if end > part.start:
        byte_ranges.append((part.start, end, SECRET if part.is_secret else number))
    yield f'<li><span data-p="{number}" tabindex="0">{escape(part.name)} {_format_part_as_html(part)}</span>'
    if part.parts:
        inner_leaves = byte_ranges if part.payload is None else []
        yield "<ul>"
        for each in part.parts:
            yield from _generate_html_tree(each, data, numbers, inner_leaves, blocks)
        yield "</ul>"
        if part.payload is not None:
            blocks.append(f"<p>decompressed</p>{_format_hex_as_html(part.payload, inner_leaves, 0)}")
    if part.problem:
        yield f'<div class="problem">{escape(part.problem)}</div>'
    yield "</li>"


def _format_part_as_html(part: ExplainedPart) -> str:
    said = [f'<span class="type">{escape(part.type)}</span>']
    if value := format_part_value(part):
        said.append(f'<span class="value">{escape(value)}</span>')
    if part.meaning:
        said.append(f'<span class="meaning">{escape(part.meaning)}</span>')
    if told := format_part_background(part):
        said.append(f'<span class="about">{escape(told)}</span>')
    return " ".join(said)


def _format_hex_as_html(data: Bytes, byte_ranges: list[tuple[int, int, int]], start: int) -> str:
    """Return rows of hex, in which the bytes of each part are marked by its number."""
    rows: list[str] = []
    position = start
    for first, last, number in byte_ranges:
        for at in range(first, min(last, start + HEX_BYTES)):
            if (at - start) % ROW_BYTES == 0:
                rows.append(f'{_LINE_END if rows else ""}<span class="at">{at:06x}</span> ')
            rows.append(f'<span data-p="{number}">{"··" if number == SECRET else f"{data[at]:02x}"}</span> ')
            position = at + 1
    rest = byte_ranges[-1][1] - position if byte_ranges else 0
    more = f"\n… {rest:,} more bytes" if rest > 0 else ""
    return f"<pre>{''.join(rows)}{more}</pre>"
