// Files: a log directory down to the byte. A segment is drawn with its batches, and its index entries as arrows into it.

import { html, useMemo, useState } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address, go } from "../core/places.js";
import { bytes, counted, moment } from "../core/text.js";
import { Bytes } from "../components/bytes.js";
import { Rows } from "../components/rows.js";

export const id = "files";
export const title = "Files";
export const icon = "▥";

const ROW_PX = 26;
const pathOf = (file) => (file.folder ? `${file.folder}/${file.name}` : file.name);

export function View({ names, query }) {
  const [listed, error] = useLive("files", {}, 3000);
  const [found] = useLive("files/damaged", {}, 5000);
  const damaged = found?.damaged ?? {};
  const [wanted, setWanted] = useState("");
  if (error && !listed) return html`<p class="notice bad">${error}</p>`;
  const files = listed?.files || [];
  const rows = [];
  for (const file of files.filter((each) => each.size > 0 && pathOf(each).includes(wanted))) {
    if (file.folder && file.folder !== rows[rows.length - 1]?.folder) rows.push({ folder: file.folder, isFolder: true });
    rows.push(file);
  }
  const selected = rows.findIndex((each) => !each.isFolder && pathOf(each) === names[0]);
  const select = (at) => { const file = rows[at].isFolder ? rows[at + 1] : rows[at]; go("files", [pathOf(file)], {}, { replace: true }); };
  return html`<div class="sides">
    <aside aria-busy=${!listed}><div class="toolbar"><label class="filter"><span class="icon" aria-hidden="true">⌕</span><input aria-label="Find a file" value=${wanted} onInput=${(event) => setWanted(event.target.value)} placeholder=${listed ? counted(files.length, "file") : ""}/></label></div>
      <${Rows} id="files" label="Files" count=${rows.length} height=${ROW_PX} selected=${selected} select=${select}
        row=${(at) => (rows[at].isFolder ? html`<span class="folder">${rows[at].folder}</span>` : html`<span class=${`file ${damaged[pathOf(rows[at])] ? "damaged" : ""}`} title=${damaged[pathOf(rows[at])] ? `damaged in ${counted(damaged[pathOf(rows[at])], "place")}` : rows[at].kind}><span>${rows[at].name.replace(/^0{10,}(?=\d)/, "…")}${damaged[pathOf(rows[at])] ? html` <b class="tagged bad">damaged</b>` : ""}</span><span class="soft">${bytes(rows[at].size)}</span></span>`)}/>
      ${listed && !rows.length && html`<p class="empty">There is no file that can be shown.</p>`}</aside>
    ${names[0] ? html`<${File} key=${names[0]} path=${names[0]} at=${Number(query.at) || 0}/>` : html`<p class="empty">Choose a file. Its bytes are shown beside what they are.</p>`}
  </div>`;
}

function File({ path, at }) {
  const [found, error] = useLive("files/content", { path, at }, 0);
  const [damage] = useLive("files/damage", { path }, 0);
  const [retention] = useLive("files/retention", { path }, 0);
  const isOfSegment = /\.(log|index|timeindex|txnindex)$/.test(path);
  const [segment] = useLive(isOfSegment ? "files/segment" : "", { path }, 0);
  const [compaction] = useLive("files/compaction", { path }, 0);
  const tree = useMemo(() => found && marked(found.tree, path.endsWith(".log") && compaction ? compaction.offsets : []), [found, compaction]);
  const [part, setPart] = useState(-1);
  if (error) return html`<section><p class="notice bad">${error}</p></section>`;
  if (!found) return html`<section aria-busy="true"></section>`;
  const { start, size, next } = found;
  const chosen = part >= 0 ? part : at ? Math.max(tree.rows.findIndex((row) => row.depth === 1 && start + row.end > at), 0) : -1;
  const folder = path.includes("/") ? path.slice(0, path.lastIndexOf("/") + 1) : "";
  const to = (position, name = segment && folder + segment.log) => { setPart(-1); go("files", [name], { at: position }); };
  const unit = path.endsWith("index") ? "entries" : "batches";
  const row = tree.rows[chosen];
  const target = segment && path.endsWith(".index") ? [row, tree.rows[chosen + 1], tree.rows[chosen + 2]].find((each) => each?.name === "position") : undefined;
  return html`<section class="stack file"><div class="head"><h2>${path}</h2><span class="soft">${tree.rows[0]?.name}, ${bytes(size)}</span>
      ${damage && (damage.length ? html`<b class="tagged bad">damaged in ${counted(damage.length, "place")}</b>` : html`<b class="tagged good">no damage found</b>`)}
      ${retention?.length > 0 && html`<b class="tagged fault" title=${retention.join("\n")}>retention would take ${counted(retention.length, "segment")}</b>`}
      ${compaction && html`<${Compaction} found=${compaction}/>`}<span class="grow"></span>
      ${target && html`<button onClick=${() => to(Number(target.value))}>go to the batch at ${target.value}</button>`}
      ${start > 0 && html`<button onClick=${() => to(0, path)}>first ${unit}</button>`}${next !== null && html`<button onClick=${() => to(next, path)}>next ${unit}</button>`}</div>
    <div class="above">${segment && segment.batches.length > 0 && html`<${Segment} segment=${segment} damage=${damage ?? []} lit=${row} start=${start} isLog=${path.endsWith(".log")} to=${to}/>`}
      ${damage?.map((each) => html`<p class="bad">${each.path}, byte ${each.position}${each.offset === null ? "" : `, offset ${each.offset}`}: ${each.found}; expected ${each.expected}</p>`)}</div>
    <${Bytes} key=${`${path} ${start}`} tree=${tree} name="file" selected=${chosen} select=${setPart}/>
  </section>`;
}

// Mark the records that compaction would take.
function marked(tree, offsets) {
  if (!offsets.length) return tree;
  const taken = new Set(offsets.map((offset) => `offset ${offset}`));
  return { ...tree, rows: tree.rows.map((row) => (row.type === "Record" && taken.has(row.meaning) ? { ...row, taken: true } : row)) };
}

// How much compaction would take, of which segments, and whether it is due.
function Compaction({ found }) {
  const sum = (name) => found.segments.reduce((all, each) => all + each[name], 0);
  const lines = found.segments.map((each) => `${each.path}: ${each.taken_records} of ${counted(each.records, "record")}, ${bytes(each.taken_bytes)} of ${bytes(each.size_bytes)}`);
  const when = `dirty ratio ${found.ratio.toFixed(2)}: ${found.is_due ? "it is due" : "it is not due yet"}`;
  if (found.why) return html`<span class="soft" title=${found.why}>what compaction would take is not known</span>`;
  if (!lines.length) return html`<span class="soft" title=${`The active segment is never compacted; ${when}`}>compaction would take nothing</span>`;
  return html`<b class="tagged fault" title=${[...lines, when].join("\n")}>compaction would take ${counted(sum("taken_records"), "record")}, ${bytes(sum("taken_bytes"))}</b>`;
}

const WIDTH = 1000;

// The log as a bar of batches; above it the entries of its indexes, each an arrow to its batch.
function Segment({ segment, damage, lit, start, isLog, to }) {
  const x = (position) => (position / segment.size) * WIDTH;
  const batchOf = (offset) => segment.batches.find((batch) => batch.first <= offset && offset <= batch.last);
  const arrow = (at, position, y, name, label) => html`<g class=${name}><title>${label}</title><line x1=${at} y1=${y} x2=${x(position)} y2="62" marker-end="url(#tip)"/><circle cx=${at} cy=${y} r="4"/></g>`;
  const spread = (at, count) => ((at + 0.5) / count) * WIDTH;
  const isLit = (batch) => isLog && lit && batch.position >= start + lit.start && batch.position < start + Math.max(lit.end, lit.start + 1) && lit.depth > 0;
  const isDamaged = (batch) => damage.some((each) => each.path === segment.log && each.position >= batch.position && each.position < batch.position + batch.size);
  return html`<div class="segment"><svg viewBox=${`-6 0 ${WIDTH + 12} 100`} preserveAspectRatio="none" role="img" aria-label=${`${counted(segment.batches.length, "batch", "batches")}, ${counted(segment.index.length, "entry", "entries")} of the offset index`}>
    <defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>
    ${segment.timeindex.slice(0, 100).map(([time, offset], at, all) => { const batch = batchOf(offset); return batch && arrow(spread(at, all.length), batch.position, 10, "of-time", `.timeindex: up to offset ${offset} no timestamp is larger than ${moment(time)}`); })}
    ${segment.index.slice(0, 100).map(([offset, position], at, all) => arrow(spread(at, all.length), position, 32, "of-offset", `.index: offset ${offset} is in the batch at ${position}`))}
    ${segment.batches.map((batch) => html`<rect class=${`batch ${batch.kind} ${isLit(batch) ? "lit" : ""} ${isDamaged(batch) ? "damaged" : ""}`} x=${x(batch.position)} y="64" width=${Math.max(x(batch.size) - 0.8, 0.6)} height="26" onClick=${() => to(batch.position)}><title>offsets ${batch.first} to ${batch.last}, ${batch.kind}${isDamaged(batch) ? ", damaged" : ""}, ${bytes(batch.size)} at ${batch.position}</title></rect>`)}
  </svg><p class="legend"><i class="plain"></i>batch <i class="transactional"></i>in a transaction <i class="aborted"></i>aborted <i class="control"></i>marker ${segment.batches.some(isDamaged) && html`<i class="damaged"></i>damaged`} ${segment.index.length > 0 && html`<i class="of-offset"></i>.index`} ${segment.timeindex.length > 0 && html`<i class="of-time"></i>.timeindex`}</p></div>`;
}
