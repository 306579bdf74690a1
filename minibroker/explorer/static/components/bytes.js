// Bytes beside the tree of what they are. Pointing at one side lights up the other; a click keeps it.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../core/lib.js";
import { Rows } from "./rows.js";
import { bytes as sizeText, counted, fromBase64, hex2 } from "../core/text.js";

const LINE = 16; // bytes
const SHORT_LINE = 8; // where there is little room
const SIDES_PX = 700; // from here on, bytes and fields are side by side
const LONG_SIDES_PX = 1010; // with long lines
const LONG_STACKED_PX = 600;
const LINE_PX = 20;
const ROW_PX = 24;
const TINTS = 6;

// For each byte, the number of the innermost row that covers it, and whether it is a secret.
function covered(tree, block, size) {
  const owner = new Int32Array(size).fill(-1);
  tree.rows.forEach((row, at) => {
    if (row.block === block) owner.fill(at, row.start, Math.min(row.end, size));
  });
  return owner;
}

function readTree(tree, length) {
  const blocks = tree.blocks.map((block, at) => {
    const data = fromBase64(block.base64);
    return { data, base: block.base || 0, size: block.size, owner: covered(tree, at, data.length) };
  });
  const lines = [];
  blocks.forEach((block, at) => {
    if (at > 0) lines.push({ title: `decompressed, ${sizeText(block.size)}` });
    for (let start = 0; start < block.data.length; start += length) lines.push({ block: at, start });
    if (block.size > block.data.length) lines.push({ title: `${counted(block.size - block.data.length, "more byte")}` });
  });
  const lineOf = new Map();
  lines.forEach((line, at) => { if (line.start === 0) lineOf.set(line.block, at); });
  return { blocks, lines, lineOf, length };
}

export function Bytes({ tree, selected, select, name }) {
  const box = useRef();
  const [width, setWidth] = useState(LONG_SIDES_PX);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(box.current?.clientWidth || LONG_SIDES_PX));
    observer.observe(box.current);
    setWidth(box.current.clientWidth || LONG_SIDES_PX);
    return () => observer.disconnect();
  }, []);
  const isLong = width >= LONG_SIDES_PX || (width < SIDES_PX && width >= LONG_STACKED_PX);
  const read = useMemo(() => readTree(tree, isLong ? LINE : SHORT_LINE), [tree, isLong]);
  const [pointed, point] = useState(-1);
  const lit = tree.rows[pointed >= 0 ? pointed : selected];
  const kept = tree.rows[selected];
  useEffect(() => point(-1), [tree]);
  const line = kept && kept.end > kept.start ? (read.lineOf.get(kept.block) ?? 0) + Math.floor(kept.start / read.length) : -1;

  return html`<div ref=${box} class=${`bytes ${width < SIDES_PX ? "stacked" : ""} ${isLong ? "" : "short"}`} style=${{ "--hex": `${read.lines.length * LINE_PX + 4}px` }}>
    <div class="hex">
      <${Rows} id=${`${name}-hex`} label=${`Bytes of the ${name}`} count=${read.lines.length} height=${LINE_PX} selected=${line}
        select=${(at) => picked(read, at, select)} className="mono quiet"
        row=${(at) => html`<${Line} line=${read.lines[at]} read=${read} tree=${tree} lit=${lit} point=${point} select=${select}/>`}/>
    </div>
    <div class="tree" onMouseLeave=${() => point(-1)}>
      <${Rows} id=${`${name}-tree`} label=${`Fields of the ${name}`} count=${tree.rows.length} height=${ROW_PX} selected=${selected}
        select=${select} row=${(at) => html`<${Field} row=${tree.rows[at]} lit=${at === pointed} point=${() => point(at)} tint=${at % TINTS}/>`}/>
      ${tree.more_rows > 0 && html`<p class="more">${counted(tree.more_rows, "more field")}: minibroker explain shows all</p>`}
    </div>
    <${About} row=${lit} base=${tree.blocks[0].base || 0}/>
  </div>`;
}

function picked(read, at, select) {
  const line = read.lines[at];
  const owner = line.title === undefined ? read.blocks[line.block].owner[line.start] : -1;
  if (owner >= 0) select(owner);
}

function Line({ line, read, tree, lit, point, select }) {
  if (line.title !== undefined) return html`<span class="title">${line.title}</span>`;
  const { data, owner, base } = read.blocks[line.block];
  const cells = [];
  let text = "";
  for (let at = line.start; at < Math.min(line.start + read.length, data.length); at += 1) {
    const row = tree.rows[owner[at]];
    const isLit = lit && lit.block === line.block && at >= lit.start && at < lit.end;
    const isPrefix = isLit && lit.prefix && at < lit.start + lit.prefix;
    const byte = data[at];
    cells.push(html`<span data-p=${owner[at]} class=${`byte t${owner[at] % TINTS}${isLit ? " lit" : ""}${isPrefix ? " prefix" : ""}${at % 8 === 0 && at % read.length ? " half" : ""}`}>${
      row && row.secret ? "··" : hex2(byte)}</span>`);
    text += row && row.secret ? "·" : byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·";
  }
  const over = (event) => { if (event.target.dataset.p !== undefined) point(Number(event.target.dataset.p)); };
  const click = (event) => {
    if (event.target.dataset.p === undefined) return;
    event.stopPropagation();
    select(Number(event.target.dataset.p));
  };
  return html`<span class="offset">${(base + line.start).toString(16).padStart(4, "0")}</span>
    <span class="cells" onMouseOver=${over} onClick=${click}>${cells}</span><span class="ascii">${text}</span>`;
}

function Field({ row, lit, point, tint }) {
  return html`<div class=${`field ${lit ? "lit" : ""}`} style=${{ "--depth": row.depth }} onMouseEnter=${point}>
    <i class=${`tint t${tint}`}></i><span class="name">${row.name}</span>
    ${row.value !== undefined && html`<span class=${`value ${row.value[0] === '"' ? "string" : ""}`} title=${row.value}>${row.value}</span>`}
    ${row.meaning && html`<span class=${`meaning ${row.meaning.startsWith("WRONG") ? "bad" : ""}`} title=${row.meaning}>${row.meaning}</span>`}
    ${row.taken && html`<span class="tagged fault">compaction would take it</span>`}
    ${row.problem && html`<span class="bad">${row.problem}</span>`}
    <span class="type">${row.type}</span></div>`;
}

function About({ row, base }) {
  if (!row) return html`<p class="about">Point at a byte or a field: the other side shows what belongs to it. Arrow keys walk through the fields.</p>`;
  const size = row.end - row.start;
  return html`<p class="about"><b>${row.name}</b> <span class="type">${row.type}</span> ${counted(size, "byte")} at ${base + row.start}
    ${row.prefix ? `, of which ${row.prefix} ${row.prefix === 1 ? "is" : "are"} the length` : ""}
    ${row.meaning ? html`<span class=${row.meaning.startsWith("WRONG") ? "bad" : "meant"}>${row.meaning}</span>` : ""}
    ${row.versions ? html`<span class="tag">versions ${row.versions}</span>` : ""}${row.kip ? html`<span class="tag">KIP-${row.kip}</span>` : ""}
    ${row.about ? html`<br/>${row.about}` : ""}</p>`;
}
