// Which lesson the reader is in, what of it is done, and what the steps say. The browser keeps it.

import { effect, signal } from "../core/lib.js";
import { changes, frames } from "../core/frames.js";
import { ownFrames, topicNames } from "./checks.js";
import { LESSONS } from "./all.js";

const AGAIN_MS = 700;
const SOON_MS = 150;
const DONE = "minibroker-lessons";
const CURRENT = "minibroker-lesson";
const SINCE = "minibroker-lessons-since"; // in this tab, as another one may have another broker

export const current = signal(localStorage.getItem(CURRENT) || ""); // the name of the lesson, or "" for none
export const done = signal(JSON.parse(localStorage.getItem(DONE) || "{}")); // sentences by lesson and step
export const hints = signal({}); // sentences by step, of the current lesson
export const wanted = signal({}); // fields and values by step, of the current lesson
export const missing = signal([]); // topics that the current lesson works with, and which are not there
let given = {}; // answers by step, of the current lesson, that are not right so far
let entered = Infinity; // the newest frame when the reader came to the current lesson
const since = JSON.parse(sessionStorage.getItem(SINCE) || "{}"); // the frame behind which a lesson began anew

const nameOf = (lesson, step) => `${lesson.name}.${step}`;
const newest = () => (frames.all.length ? frames.all[frames.all.length - 1].number : 0);

export const lessonOf = (name) => LESSONS.find((each) => each.name === name);
export const sentenceOf = (lesson, step) => done.value[nameOf(lesson, step)];
export const isDone = (lesson) => lesson.steps.every((_, step) => sentenceOf(lesson, step) !== undefined);
export const nextStep = (lesson) => lesson.steps.findIndex((_, step) => sentenceOf(lesson, step) === undefined && isOpen(lesson, step));
export const isOpen = (lesson, step) => (lesson.steps[step].after ?? []).every((before) => sentenceOf(lesson, before) !== undefined);

function keep(all) {
  done.value = all;
  localStorage.setItem(DONE, JSON.stringify(all));
}

// Open a lesson, or none.
export function enter(name) {
  if (name === current.value) return;
  current.value = name;
  entered = newest();
  hints.value = {};
  given = {};
  wanted.value = {};
  missing.value = [];
  localStorage.setItem(CURRENT, name);
  look();
}

// Forget what was done in a lesson; only what comes now counts.
export function beginAgain(lesson) {
  since[lesson.name] = newest();
  sessionStorage.setItem(SINCE, JSON.stringify(since));
  delete used[lesson.name];
  hints.value = {};
  given = {};
  keep(Object.fromEntries(Object.entries(done.value).filter(([name]) => !name.startsWith(`${lesson.name}.`))));
}

// Check an answer to a question.
export async function answer(lesson, step, text) {
  await judge(lesson, step, text);
  look();
}

// An answer that is not right is judged again with each look: the frame that it is about may be on its way to the page.
async function judge(lesson, step, text) {
  given[step] = text;
  const found = await lesson.steps[step].check(text).catch(() => ({ hint: "The broker cannot tell at the moment." }));
  if (lesson.name !== current.value || given[step] !== text) return;
  if (found.done) {
    keep({ ...done.value, [nameOf(lesson, step)]: found.done });
    delete given[step];
  }
  hints.value = { ...hints.value, [step]: found.done ? "" : found.hint };
}

// A hint is about the reader's newest request, and is at the step that it comes closest to.
function hintsOf(lesson, found, used, newestOwn) {
  const said = Object.fromEntries(Object.entries(hints.value).filter(([step]) => found[step] === undefined));
  const near = Object.entries(found).filter(([, each]) => each.hint && each.missing !== undefined && each.number === newestOwn?.number && !used.has(each.number)).sort(([, one], [, other]) => one.missing - other.missing);
  const next = nextStep(lesson);
  if (near.length) said[near[0][0]] = near[0][1].hint;
  else if (newestOwn?.number > entered && !used.has(newestOwn.number) && lesson.steps[next]?.isSent) said[next] = `You sent ${newestOwn.api}; this step is about ${lesson.steps[next].api}.`;
  for (const [step, each] of Object.entries(found)) if (each.hint && each.missing === undefined) said[step] = each.hint;
  return said;
}

let isLooking = false;
let looksAgain = false;

// Look which steps are done.
export async function look() {
  looksAgain = true;
  if (isLooking) return;
  isLooking = true;
  while (looksAgain) {
    looksAgain = false;
    const lesson = lessonOf(current.value);
    if (lesson) await lookAt(lesson).catch(() => null);
  }
  isLooking = false;
}

const used = {}; // the frames that have done steps, by lesson and step
const ofLesson = (lesson) => (used[lesson.name] ||= {});

// The frame behind which a lesson looks; a broker that began anew counts from 1.
const beginningOf = (lesson) => (since[lesson.name] <= newest() ? since[lesson.name] : 0);

// The frame behind which a step is looked for: that which did the last step before it.
const beforeStep = (lesson, step) => Math.max(beginningOf(lesson), ...(step.after ?? []).map((before) => ofLesson(lesson)[before] ?? 0));

async function lookAt(lesson) {
  const found = {};
  const fields = {};
  const needed = Object.keys(lesson.topics ?? {});
  const names = needed.length ? await topicNames() : [];
  missing.value = needed.filter((each) => !names.includes(each));
  for (const [at, step] of lesson.steps.entries()) {
    if (given[at] !== undefined) await judge(lesson, at, given[at]);
    if (step.asks || sentenceOf(lesson, at) !== undefined || !isOpen(lesson, at)) continue;
    if (step.wants) fields[at] = await step.wants().catch(() => ({}));
    found[at] = await step.check(beforeStep(lesson, step)).catch(() => ({}));
    if (lesson.name !== current.value) return;
    if (found[at].done) {
      keep({ ...done.value, [nameOf(lesson, at)]: found[at].done });
      if (found[at].number) ofLesson(lesson)[at] = found[at].number;
      looksAgain = true; // a later step may have waited for it
    }
  }
  wanted.value = fields;
  entered = Math.min(entered, newest());
  hints.value = hintsOf(lesson, found, new Set(Object.values(ofLesson(lesson))), ownFrames(beginningOf(lesson))[0]);
}

// Frames may come all the time; a look asks the broker for several things.
let isDue = false;
effect(() => {
  if (!changes.value || !current.value || isDue) return;
  isDue = true;
  setTimeout(() => { isDue = false; look(); }, SOON_MS);
});
setInterval(() => { if (current.value && !document.hidden) look(); }, AGAIN_MS);
