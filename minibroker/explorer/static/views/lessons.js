// Lessons: a short text, and steps that are checked against what the reader did with this broker.

import { html, useEffect, useState } from "../core/lib.js";
import { LESSONS } from "../core/lessons.js";
import { address, go } from "../core/places.js";
import { Rows } from "../components/rows.js";

export const id = "lessons";
export const title = "Lessons";
export const icon = "✎";

const AGAIN_MS = 1000;
const DONE = "minibroker-lessons";
const done = new Set(JSON.parse(localStorage.getItem(DONE) || "[]"));

function keep(name) {
  done.add(name);
  localStorage.setItem(DONE, JSON.stringify([...done]));
}

const isDone = (at) => LESSONS[at].steps.every((_, step) => done.has(`${at}.${step}`));

export function View({ names }) {
  const unfinished = Math.max(LESSONS.findIndex((_, each) => !isDone(each)), 0);
  const at = Math.min(Math.max(Number(names[0] || unfinished + 1) - 1, 0), LESSONS.length - 1) || 0;
  const [, again] = useState(0);
  return html`<div class="sides"><aside><div class="toolbar soft">${LESSONS.filter((_, each) => isDone(each)).length} of ${LESSONS.length} done</div>
      <${Rows} id="lessons" label="Lessons" count=${LESSONS.length} height=${36} selected=${at} select=${(each) => go("lessons", [String(each + 1)], {}, { replace: true })}
        row=${(each) => html`<span class="lesson"><span class="soft num">${each + 1}</span>${LESSONS[each].title}${isDone(each) ? html` <b class="good" aria-label="done">✓</b>` : ""}</span>`}/></aside>
    <${Lesson} key=${at} at=${at} changed=${() => again(Math.random())}/></div>`;
}

function Lesson({ at, changed }) {
  const lesson = LESSONS[at];
  const [answers, setAnswers] = useState({});
  const next = lesson.steps.findIndex((_, step) => !done.has(`${at}.${step}`));
  useEffect(() => {
    let isGone = false;
    let timer = null;
    const look = async () => {
      const step = lesson.steps[next];
      if (step && !step.asks && await step.check()) {
        keep(`${at}.${next}`);
        if (!isGone) changed();
      }
      if (!isGone) timer = setTimeout(look, AGAIN_MS);
    };
    if (next >= 0) look();
    return () => { isGone = true; clearTimeout(timer); };
  }, [at, next]);
  const answered = async (event, step) => {
    event.preventDefault();
    const given = new FormData(event.target).get("answer");
    const isRight = await lesson.steps[step].check(given);
    setAnswers({ ...answers, [step]: isRight ? "" : "Not yet. Look again." });
    if (isRight) { keep(`${at}.${step}`); changed(); }
  };
  return html`<section class="scroll page reading" tabindex="0" role="region" aria-label="Lesson"><h2>${at + 1}. ${lesson.title}</h2>
    ${lesson.text.map((text) => html`<p>${text}</p>`)}
    <ol>${lesson.steps.map((step, each) => { const has = done.has(`${at}.${each}`); return html`<li class=${has ? "done" : each === next ? "next" : "later"}><span class="box" aria-hidden="true">${has ? "✓" : each + 1}</span><div>
      <p>${step.say}${has ? html`<span class="hidden"> (done)</span>` : ""}</p>
      ${step.place && !has ? html`<a href=${step.place}>go there</a>` : ""}
      ${step.asks && !has ? html`<form class="verbs" onSubmit=${(event) => answered(event, each)}><input name="answer" aria-label="Your answer" size="12" autocomplete="off"/><button>check</button><span class="bad" role="status">${answers[each]}</span></form>` : ""}</div></li>`; })}</ol>
    ${next < 0 ? html`<p class="good"><b>Done.</b> ${at + 1 < LESSONS.length ? html`<a href=${address("lessons", [String(at + 2)])}>Go on with lesson ${at + 2}</a>` : "This was the last one."}</p>` : ""}
  </section>`;
}
