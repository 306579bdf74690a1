// Lessons: a text and steps, which are checked against what the reader did with this broker. An opened one stays beside
// the work in all views.

import { html, useEffect } from "../core/lib.js";
import { go } from "../core/places.js";
import { Lesson } from "../components/lesson.js";
import { Rows } from "../components/rows.js";
import { LESSONS } from "../lessons/all.js";
import { current, enter, isDone, lessonOf } from "../lessons/progress.js";

export const id = "lessons";
export const title = "Lessons";
export const icon = "✎";

const ROW_PX = 36;

export function View({ names }) {
  const lesson = lessonOf(names[0]) || LESSONS[Number(names[0]) - 1] || lessonOf(current.value) || LESSONS.find((each) => !isDone(each)) || LESSONS[0];
  useEffect(() => enter(lesson.name), [lesson]);
  return html`<div class="sides"><aside><div class="toolbar soft">${LESSONS.filter(isDone).length} of ${LESSONS.length} done, in any order</div>
      <${Rows} id="lessons" label="Lessons" count=${LESSONS.length} height=${ROW_PX} selected=${LESSONS.indexOf(lesson)} select=${(at) => go("lessons", [LESSONS[at].name], {}, { replace: true })}
        row=${(at) => html`<span class="lesson"><span class="soft num">${at + 1}</span><span>${LESSONS[at].title}</span>${isDone(LESSONS[at]) ? html`<b class="good" aria-label="done">✓</b>` : ""}</span>`}/></aside>
    <section class="scroll page reading" tabindex="0" role="region" aria-label="Lesson"><h2>${LESSONS.indexOf(lesson) + 1}. ${lesson.title}</h2><${Lesson} key=${lesson.name} lesson=${lesson}/></section></div>`;
}
