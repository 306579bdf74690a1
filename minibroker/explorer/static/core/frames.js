// All frames that the page knows, in the order of their numbers, and those that the filter lets pass.
// They are plain arrays, since a hundred thousand of them change; `changes` says that something did.

import { batch, signal, effect } from "./lib.js";
import { filter } from "./filters.js";
import { follow, get } from "./server.js";

export const changes = signal(0);
export const state = signal(null);
export const problem = signal("");
export const source = signal("");

export const frames = { all: [], shown: [], marks: [], first: 1 };

let columns = [];
let passes = () => true;
let asked = false;

export const frameOf = (number) => {
  const found = frames.all[number - frames.first];
  return found && found.number === number ? found : undefined;
};

function added(values) {
  const row = {};
  columns.forEach((name, at) => { row[name] = values[at]; });
  const at = row.number - frames.first;
  const known = frames.all[at];
  if (known) {
    const was = passes(known);
    Object.assign(known, row);
    const now = passes(known);
    if (was !== now) shownAgain(known, now);
  } else {
    if (!frames.all.length) frames.first = row.number;
    frames.all.push(row);
    row.at = axis(row);
    if (passes(row)) frames.shown.push(row);
  }
}

// Put a frame that has changed among those shown, or take it away.
function shownAgain(row, isShown) {
  const at = position(frames.shown, row.number);
  if (isShown) frames.shown.splice(at, 0, row);
  else frames.shown.splice(at, 1);
}

// The first place in a sorted array whose number is not smaller.
export function position(rows, number) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].number < number) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Where a frame is on the timeline, in ms. Long silences, and moves of the clock, are cut short.
const SILENCE_MS = 1500;
let last = null;
function axis(row) {
  const gap = last === null ? 0 : Math.min(Math.max(row.started_ms - last.started_ms, 0), SILENCE_MS);
  const at = last === null ? 0 : last.at + gap;
  last = { at, started_ms: row.started_ms };
  return at;
}

function forgetBefore(oldest) {
  const gone = Math.min(oldest - frames.first, frames.all.length);
  if (gone <= 0) return;
  frames.all = frames.all.slice(gone);
  frames.first = frames.all.length ? frames.all[0].number : oldest;
  frames.shown = frames.shown.slice(position(frames.shown, oldest));
}

function came({ rows, marks, oldest }) {
  forgetBefore(oldest);
  // A row of a frame that is gone meanwhile is not worth a place.
  rows.filter((values) => values[0] >= frames.first || !frames.all.length).forEach(added);
  if (marks.length) frames.marks = [...frames.marks, ...marks].slice(-1000);
  changed();
}

// Tell at most once per picture.
let isTold = false;
function changed() {
  if (isTold) return;
  isTold = true;
  requestAnimationFrame(() => {
    isTold = false;
    changes.value += 1;
  });
}

export function refilter(text) {
  try {
    passes = filter(text);
    frames.shown = frames.all.filter(passes);
    batch(() => { problem.value = ""; source.value = text; });
  } catch (error) {
    batch(() => { problem.value = error.message; source.value = text; });
  }
  changed();
}

export async function watch() {
  if (asked) return;
  asked = true;
  columns = (await get("frames/grammar")).columns;
  const after = () => ({ after: frames.all.length ? frames.all[frames.all.length - 1].number : 0 });
  follow("frames/stream", after, {
    frames: came,
    state: (now) => {
      state.value = { ...now, at: performance.now() };
      if (now.seen < frames.first + frames.all.length - 1) forgetBefore(Infinity); // another broker
    },
  });
}

effect(() => { document.documentElement.dataset.frames = String(changes.value && frames.all.length); });
