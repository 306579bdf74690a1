// A lesson: its text, its steps with what they want, a hint after a wrong try, and what has happened.

import { html, useEffect, useState } from "../core/lib.js";
import { address, go, place } from "../core/places.js";
import { control } from "../core/server.js";
import { LESSONS } from "../lessons/all.js";
import { answer, beginAgain, current, enter, hints, isDone, isOpen, lessonOf, look, missing, nextStep, sentenceOf, wanted } from "../lessons/progress.js";

const VIEWS = { try: "Open in Try it", controls: "Open Controls", topics: "Open in Topics", groups: "Open in Groups", files: "Open Files" };

export function Lesson({ lesson }) {
  const next = nextStep(lesson);
  const after = LESSONS[LESSONS.indexOf(lesson) + 1];
  return html`${lesson.text.map((part) => (typeof part === "string" ? html`<p>${part}</p>` : html`<${Parts} ...${part}/>`))}
    ${missing.value.map((name) => html`<${Missing} key=${name} name=${name} config=${lesson.topics[name]}/>`)}
    <ol class="steps">${lesson.steps.map((_, at) => html`<${Step} key=${at} lesson=${lesson} at=${at} isNext=${at === next}/>`)}</ol>
    ${isDone(lesson) ? html`<p class="good"><b>Done.</b> ${after ? html`<button class="main" onClick=${() => { enter(after.name); if (place.value.view === "lessons") go("lessons", [after.name]); }}>Go on with ${after.title}</button>` : "This was the last one."}</p>` : ""}
    ${lesson.steps.some((_, at) => sentenceOf(lesson, at) !== undefined) && html`<p><button class="plain" onClick=${() => beginAgain(lesson)}>begin this lesson again</button></p>`}`;
}

const Parts = ({ head, rows }) => html`<table><thead><tr>${head.map((each) => html`<th>${each}</th>`)}</tr></thead><tbody>${rows.map((row) => html`<tr>${row.map((each) => html`<td>${each}</td>`)}</tr>`)}</tbody></table>`;

// A topic that the lesson works with, and which is not there.
function Missing({ name, config }) {
  const [said, setSaid] = useState("");
  const create = () => control("POST", "topics", { name, partitions: 1, config }).then(look, (error) => setSaid(error.message));
  const configs = Object.entries(config).map(([key, value]) => `${key}=${value}`).join(", ");
  return html`<p class="missing">This lesson works with the topic <b>${name}</b>${configs ? ` (${configs})` : ""}, which is not there. <button class="main" onClick=${create}>create it</button> <span class="bad" role="status">${said}</span></p>`;
}

function Step({ lesson, at, isNext }) {
  const step = lesson.steps[at];
  const said = sentenceOf(lesson, at);
  const isPossible = isOpen(lesson, at);
  const hint = hints.value[at];
  const submitted = (event) => { event.preventDefault(); answer(lesson, at, new FormData(event.target).get("answer")); };
  if (said !== undefined) return html`<li class="done"><span class="box" aria-hidden="true">✓</span><div><p>${step.say}<span class="hidden"> (done)</span></p><p class="happened">${said}</p></div></li>`;
  return html`<li class=${isNext ? "next" : "later"} aria-current=${isNext ? "step" : undefined}><span class="box" aria-hidden="true">${at + 1}</span><div><p>${step.say}</p>
    ${isPossible ? html`<${Wanted} step=${step} values=${wanted.value[at]}/>
      ${step.place ? html`<a href=${step.place}>${VIEWS[step.place.split("/")[1]]}</a>` : ""}
      ${step.asks ? html`<form class="verbs" onSubmit=${submitted}><input name="answer" aria-label="Your answer" size="12" autocomplete="off"/><button>check</button></form>` : ""}
      <p class=${step.isSent || step.asks ? "hint" : "soft"} role="status">${hint}</p>` : html`<p class="soft">First do step ${step.after.map((before) => before + 1).join(" and ")}.</p>`}</div></li>`;
}

// The fields that a request must have, so that nobody needs to keep them in mind.
function Wanted({ step, values = {} }) {
  if (!step.isSent) return "";
  const version = step.version === undefined ? "" : ` version ${[step.version].flat().join(" or ")}`;
  return html`<p class="wanted"><b>${step.api}${version}</b>${Object.entries(values).map(([name, value]) => html`<span><i>${name}</i> ${value === undefined || value === "" ? "…" : value}</span>`)}</p>`;
}

// The lesson beside the work, in each view but that of the lessons.
export function LessonPanel() {
  const lesson = lessonOf(current.value);
  const [isSmall, setSmall] = useState(false);
  useEffect(() => { document.querySelector(".lesson-panel .next")?.scrollIntoView({ block: "nearest" }); }, [current.value, lesson && nextStep(lesson), isSmall]);
  if (!lesson) return "";
  const left = lesson.steps.filter((_, at) => sentenceOf(lesson, at) === undefined).length;
  return html`<aside class=${`lesson-panel ${isSmall ? "small" : ""}`} aria-label="Lesson"><div class="head"><a href=${address("lessons", [lesson.name])} title="All lessons">${LESSONS.indexOf(lesson) + 1}. ${lesson.title}</a>
      <span class="soft">${left ? `${lesson.steps.length - left} of ${lesson.steps.length}` : "done"}</span><span class="grow"></span>
      <button class="plain" aria-expanded=${!isSmall} onClick=${() => setSmall(!isSmall)}>${isSmall ? "show" : "hide"}</button><button class="plain" aria-label="Leave the lesson" onClick=${() => enter("")}>✕</button></div>
    ${isSmall ? "" : html`<div class="scroll reading" tabindex="0" role="region" aria-label="Lesson text"><${Lesson} key=${lesson.name} lesson=${lesson}/></div>`}</aside>`;
}
