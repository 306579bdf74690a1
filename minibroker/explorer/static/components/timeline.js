// The timeline: a lane for each connection, client or node, a bar for each frame, from its request to its answer.
// It draws on a canvas, at most one bar per pixel and lane.

import { html, useEffect, useRef } from "../core/lib.js";
import { frames, changes, position } from "../core/frames.js";
import { family } from "../core/text.js";

const LANE = 16;
const LEFT = 150;
const TOP = 18;
const MOST_LANES = 8;
const NEAR = 8; // pixels
export const LANES = { connection: (row) => row.connection, client: (row) => row.client_id || "no client id", node: (row) => `node ${row.node}` };

function colours(element) {
  const probe = document.createElement("i");
  element.append(probe);
  const found = {};
  for (const name of ["produce", "fetch", "txn", "group", "login", "meta", "admin", "bad", "fault", "ink", "soft", "line", "panel", "mark", "accent"]) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function lanesOf(rows, name) {
  const counts = new Map();
  for (const row of rows) counts.set(name(row), (counts.get(name(row)) || 0) + 1);
  const names = [...counts.keys()];
  if (names.length <= MOST_LANES) return names;
  const busiest = names.sort((a, b) => counts.get(b) - counts.get(a)).slice(0, MOST_LANES - 1);
  return [...busiest, "others"];
}

function draw(canvas, { by, zoom, selected, end }) {
  const box = canvas.parentElement.getBoundingClientRect();
  const rows = frames.shown;
  const name = LANES[by];
  const last = rows.length ? rows[rows.length - 1].at + 50 : 1000;
  const to = end === null ? last : Math.min(end, last);
  const from = zoom ? Math.max(to - zoom, rows.length ? rows[0].at : 0) : rows.length ? rows[0].at : 0;
  const visible = rows.slice(atAxis(rows, from - 2000), atAxis(rows, to + 1));
  const lanes = lanesOf(visible, name);
  const height = TOP + Math.max(lanes.length, 1) * LANE + 6;
  const ratio = devicePixelRatio;
  if (canvas.width !== Math.round(box.width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  const ink = colours(canvas.parentElement);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, box.width, height);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const scale = (box.width - LEFT - 12) / Math.max(to - from, 1);
  const x = (at) => LEFT + (at - from) * scale;
  const laneAt = new Map(lanes.map((lane, at) => [lane, at]));
  const laneOf = (row) => laneAt.get(name(row)) ?? lanes.length - 1;
  canvas.view = { from, scale, to, laneOf };

  lanes.forEach((lane, at) => {
    const y = TOP + at * LANE + LANE / 2;
    pen.strokeStyle = ink.line;
    pen.beginPath();
    pen.moveTo(LEFT, y + LANE / 2 + 0.5);
    pen.lineTo(box.width, y + LANE / 2 + 0.5);
    pen.stroke();
    pen.fillStyle = ink.soft;
    pen.fillText(lane.length > 22 ? `${lane.slice(0, 21)}…` : lane, 8, y);
  });

  const drawn = new Int32Array(lanes.length).fill(-1e9);
  for (const row of visible) {
    const at = laneOf(row);
    const left = Math.max(x(row.at), LEFT);
    const width = Math.max((row.duration_ms ?? 0) * scale, 2.5);
    const isStriking = row.faults.length || row.errors.length;
    if (left + width < LEFT || (!isStriking && Math.round(left + width) <= drawn[at])) continue;
    drawn[at] = Math.round(left + width);
    const y = TOP + at * LANE + 3;
    pen.fillStyle = ink[family(row.api)];
    pen.globalAlpha = row.duration_ms > 200 ? 0.45 : 1;
    pen.fillRect(left, y, Math.min(width, box.width - left), LANE - 6);
    pen.globalAlpha = 1;
    if (isStriking) {
      pen.fillStyle = row.faults.length ? ink.fault : ink.bad;
      pen.beginPath();
      pen.moveTo(left - 4, y - 3);
      pen.lineTo(left + 5, y - 3);
      pen.lineTo(left + 0.5, y + 4);
      pen.fill();
    }
    if (row.number === selected) {
      pen.strokeStyle = ink.ink;
      pen.lineWidth = 2;
      pen.strokeRect(left - 2, y - 2, Math.min(width, box.width - left) + 4, LANE - 2);
      pen.lineWidth = 1;
    }
  }

  pen.setLineDash([3, 3]);
  let free = 0; // where the next text may begin
  for (const mark of frames.marks) {
    const next = rows[Math.min(position(rows, mark.after + 1), rows.length - 1)];
    if (!next || next.at < from || next.at > to) continue;
    const left = Math.round(x(next.at)) - 2.5;
    pen.strokeStyle = ink.mark;
    pen.beginPath();
    pen.moveTo(left, 4);
    pen.lineTo(left, height);
    pen.stroke();
    if (left > free) {
      const text = mark.text.length > 40 ? `${mark.text.slice(0, 39)}…` : mark.text;
      pen.fillStyle = ink.mark;
      pen.fillText(text, left + 4, 9);
      free = left + pen.measureText(text).width + 12;
    }
  }
  pen.setLineDash([]);
}

function atAxis(rows, at) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].at < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function Timeline({ by, zoom, selected, select }) {
  const canvas = useRef();
  const seen = changes.value;
  useEffect(() => {
    const element = canvas.current;
    if (!element) return undefined; // the view was left before it was drawn
    const again = () => draw(element, { by, zoom, selected, end: null });
    again();
    const observer = new ResizeObserver(again);
    observer.observe(element.parentElement);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", again);
    addEventListener("themechange", again);
    return () => {
      observer.disconnect();
      scheme.removeEventListener("change", again);
      removeEventListener("themechange", again);
    };
  }, [by, zoom, selected, seen]);

  // The frame whose bar is at the pointer, or beside it in its lane.
  const pointed = (event) => {
    const { from, scale, laneOf } = canvas.current.view;
    const at = from + (event.offsetX - LEFT) / scale;
    const lane = Math.floor((event.offsetY - TOP) / LANE);
    const away = (row) => Math.max(row.at - at, at - row.at - (row.duration_ms ?? 0), 0);
    return frames.shown.slice(atAxis(frames.shown, at - 2000), atAxis(frames.shown, at + NEAR / scale))
      .filter((row) => laneOf(row) === lane && away(row) <= NEAR / scale)
      .sort((a, b) => away(a) - away(b))[0];
  };
  const clicked = (event) => {
    const found = pointed(event);
    if (found) select(found.number);
  };
  const moved = (event) => {
    const found = pointed(event);
    canvas.current.title = found ? `${found.number}: ${found.api} v${found.version} of ${found.client_id ?? "no client id"}, ${found.duration_ms ?? "?"} ms${[...found.errors, ...found.faults].map((each) => `, ${each}`).join("")}` : "";
    canvas.current.style.cursor = found ? "pointer" : "default";
  };
  return html`<div class="timeline"><canvas ref=${canvas} role="img" onClick=${clicked} onMouseMove=${moved}
    aria-label="Timeline of the frames below: a bar for each, with marks for faults, errors and what tests did"></canvas></div>`;
}
