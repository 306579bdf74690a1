// A state machine: its states and arrows, with the current state lit.

import { html } from "../core/lib.js";

// Where states are, in columns and rows; states that are not here are placed one after the other.
const PLACES = {
  Empty: [0, 1], PreparingRebalance: [1, 0], CompletingRebalance: [2, 0], Stable: [3, 1], Dead: [1, 2],
  NotReady: [1, 1], Assigning: [1, 0], Reconciling: [2, 0],
  Ongoing: [1, 1], PrepareCommit: [2, 0], PrepareAbort: [2, 2], CompleteCommit: [3, 0], CompleteAbort: [3, 2],
};
const OF_TRANSACTIONS = { Dead: [0, 2] };
const COLUMN = 192;
const ROW = 62;
const WIDTH = 140;
const HEIGHT = 30;

function border(from, to) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const scale = Math.min(Math.abs(dx) ? (WIDTH / 2 + 3) / Math.abs(dx) : Infinity, Math.abs(dy) ? (HEIGHT / 2 + 3) / Math.abs(dy) : Infinity);
  return [from[0] + dx * scale, from[1] + dy * scale];
}

function path(from, to, bends, passes) {
  if (passes) { // below the states that are between the two
    const [left, right, low] = [from[0] - WIDTH / 4, to[0] + WIDTH / 4, from[1] + HEIGHT / 2 + 3];
    return `M${left},${low} C${left - 30},${low + 30} ${right + 30},${low + 30} ${right},${low}`;
  }
  const [x1, y1] = border(from, to);
  const [x2, y2] = border(to, from);
  const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const bend = bends ? 14 : 0;
  return `M${x1},${y1} Q${mx - ((y2 - y1) / length) * bend},${my + ((x2 - x1) / length) * bend} ${x2},${y2}`;
}

export function Machine({ arrows, state, name }) {
  const states = [...new Set(arrows.flat())];
  const places = name === "transaction" ? { ...PLACES, ...OF_TRANSACTIONS } : PLACES;
  const at = (each) => {
    const [column, row] = places[each] || [states.indexOf(each) % 4, 3];
    return [column * COLUMN + WIDTH / 2 + 4, row * ROW + HEIGHT / 2 + 6];
  };
  const passes = (from, to) => states.some((each) => each !== from && each !== to && at(each)[1] === at(from)[1] && at(to)[1] === at(from)[1]
    && at(each)[0] < Math.max(at(from)[0], at(to)[0]) && at(each)[0] > Math.min(at(from)[0], at(to)[0]));
  const height = Math.max(...states.map((each) => at(each)[1])) + HEIGHT / 2 + (arrows.some((each) => passes(...each)) ? 32 : 6);
  const width = Math.max(...states.map((each) => at(each)[0])) + WIDTH / 2 + 4;
  const has = (from, to) => arrows.some(([a, b]) => a === from && b === to);
  return html`<svg class="machine" viewBox=${`0 0 ${width} ${height}`} style=${{ width: `${width}px`, height: `${height}px` }} role="img" aria-label=${`States ${states.join(", ")}; now ${state}`}>
    <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" /></marker></defs>
    ${arrows.map(([from, to]) => html`<path class=${from === state ? "next" : ""} d=${path(at(from), at(to), has(to, from), passes(from, to))} marker-end="url(#head)" />`)}
    ${states.map((each) => { const [x, y] = at(each); return html`<g class=${each === state ? "now" : ""}><rect x=${x - WIDTH / 2} y=${y - HEIGHT / 2} width=${WIDTH} height=${HEIGHT} rx="8" /><text x=${x} y=${y + 4}>${each}</text></g>`; })}
  </svg>`;
}

const SAMPLES = 240;
const samples = new Map();

// A number over time, as long as the page is open: one sample for each time that it is asked for.
export function Course({ name, value, label }) {
  if (!samples.has(name)) samples.set(name, []);
  const course = samples.get(name);
  course.push(value);
  if (course.length > SAMPLES) course.shift();
  const most = Math.max(...course, 1);
  const points = course.map((each, at) => `${((at / Math.max(course.length - 1, 1)) * 240).toFixed(1)},${(38 - (each / most) * 34).toFixed(1)}`);
  if (course.length < 2) return html`<p class="course"><b>${value.toLocaleString("en")}</b> <span class="soft">${label}</span></p>`;
  return html`<div class="course"><svg viewBox="0 0 240 40" width="240" height="40" role="img" aria-label=${`${label}: ${value} now, ${most} at most`}><polyline points=${points.join(" ")} /></svg><span><b>${value.toLocaleString("en")}</b> <span class="soft">${label}, at most ${most.toLocaleString("en")}</span></span></div>`;
}
