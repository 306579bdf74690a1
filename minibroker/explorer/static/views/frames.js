// Frames: the live timeline and list of all requests, and one of them opened.

import { html, signal, useEffect, useRef } from "../core/lib.js";
import { changes, frames, position, problem, refilter, source } from "../core/frames.js";
import { toggled, WORDS } from "../core/filters.js";
import { go, place } from "../core/places.js";
import { control } from "../core/server.js";
import { bytes, clock, counted, family, span } from "../core/text.js";
import { Empty } from "../components/empty.js";
import { Frame } from "../components/frame.js";
import { Rows } from "../components/rows.js";
import { LANES, Timeline } from "../components/timeline.js";

export const id = "frames";
export const title = "Frames";
export const icon = "≋";

const ROW_PX = 26;
const ZOOMS = [["all", 0], ["5 min", 300_000], ["1 min", 60_000], ["10 s", 10_000]];
const by = signal("connection");
const zoom = signal(0);
const follows = signal(true);

const open = (number, more = {}) => go("frames", number ? [number] : [], { filter: source.value, ...more }, { replace: true });

export function View({ names, query, about }) {
  const seen = changes.value;
  const number = Number(names[0]) || 0;
  useEffect(() => {
    const wanted = place.value.query.filter || ""; // as it is now: letters may have been typed meanwhile
    if (wanted !== source.value) refilter(wanted);
  }, [query.filter]);

  const at = number ? position(frames.shown, number) : -1;
  const selected = frames.shown[at]?.number === number ? at : -1;
  const side = names[1] === "answer" ? "answer" : "request";
  const filtered = (text) => {
    refilter(text);
    go("frames", names, { ...query, filter: text }, { replace: true });
  };
  const copyLink = () => navigator.clipboard.writeText(location.href);

  return html`<div class=${`frames ${number ? "split" : ""}`}>
    <${Filter} text=${source.value} change=${filtered} views=${about.views}/>
    <${Timeline} by=${by.value} zoom=${zoom.value} selected=${number} select=${(each) => open(each)}/>
    <div class="columns" aria-hidden="true"><span>#</span><span>time</span><span>client</span><span>API</span><span>about</span><span>outcome</span><span>took</span><span>bytes</span></div>
    <${Rows} id="list" label="Frames" count=${frames.shown.length} height=${ROW_PX} selected=${selected} follow=${follows.value && !number}
      select=${(each) => open(frames.shown[each].number)} row=${(each) => html`<${Row} row=${frames.shown[each]} seen=${seen}/>`}/>
    ${!frames.shown.length && (frames.all.length || !about.views.includes("try") ? html`<p class="empty">${frames.all.length ? "No frame meets the filter." : "No client has sent a request yet. Frames appear here as they come."}</p>`
      : html`<${Empty} text="No client has sent a request yet." way="This sends some:" lab="Start a client in Lab." command=${`kcat -b ${about.bootstrap_servers} -L`}/>`)}
    ${number > 0 && html`<${Frame} key=${number} number=${number} views=${about.views} side=${side} part=${names[2] === undefined ? -1 : Number(names[2])}
      show=${(which, part) => go("frames", [number, which, ...(part >= 0 ? [part] : [])], { filter: source.value }, { replace: true })}
      close=${() => open(0)} copyLink=${copyLink}/>`}
  </div>`;
}

function Filter({ text, change, views }) {
  const input = useRef();
  useEffect(() => { if (input.current.value !== source.value) input.current.value = source.value; }, [text]);
  useEffect(() => {
    const pressed = (event) => {
      if (event.key === "/" && !event.target.matches("input, textarea, select")) {
        event.preventDefault();
        input.current.focus();
      } else if (event.key === "Escape") {
        if (event.target === input.current) input.current.blur();
        else if (place.value.names.length) open(0);
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const typed = (event) => change(event.target.value);
  const toggle = (word, value) => change(toggled(text, word, value));
  return html`<div class="toolbar">
    <label class="filter"><span class="icon" aria-hidden="true">⌕</span><input ref=${input} onInput=${typed} spellcheck="false" autocomplete="off"
      aria-label="Filter" aria-invalid=${Boolean(problem.value)} aria-describedby="problem" placeholder="api=Produce|Fetch topic=orders error=any   ( / )" list="words"/></label>
    <datalist id="words">${WORDS.map((word) => html`<option value=${`${word}=`}/>`)}</datalist>
    <span id="problem" class="bad" role="status">${problem.value}</span>
    <button class=${text.includes("error=any") ? "on" : ""} aria-pressed=${text.includes("error=any")} onClick=${() => toggle("error", "any")}>errors</button>
    <button class=${text.includes("fault=any") ? "on" : ""} aria-pressed=${text.includes("fault=any")} onClick=${() => toggle("fault", "any")}>faults</button>
    <span class="grow"></span>
    <output class="soft">${counted(frames.shown.length, "frame")}${frames.shown.length < frames.all.length ? ` of ${frames.all.length.toLocaleString("en")}` : ""}</output>
    <label class="soft">lanes <select value=${by.value} onChange=${(event) => { by.value = event.target.value; }}>${Object.keys(LANES).map((each) => html`<option>${each}</option>`)}</select></label>
    <label class="soft">last <select value=${zoom.value} onChange=${(event) => { zoom.value = Number(event.target.value); }}>${ZOOMS.map(([name, ms]) => html`<option value=${ms}>${name}</option>`)}</select></label>
    <button class=${follows.value ? "on" : ""} aria-pressed=${follows.value} onClick=${() => { follows.value = !follows.value; }}>follow</button>
    ${views.includes("controls") && html`<button onClick=${() => control("DELETE", "requests")}>clear</button>`}
  </div>`;
}

function subjects(row) {
  const topics = Object.entries(row.topics).map(([name, partitions]) => (partitions.length ? `${name}-${partitions.length > 4 ? `[${partitions.length}]` : partitions.join(",")}` : name));
  return [...topics, ...row.groups, ...row.transactional_ids];
}

function Row({ row }) {
  const about = subjects(row);
  const wrong = [...row.errors.map((text) => [text, "bad"]), ...row.faults.map((text) => [text, "fault"])];
  return html`<span class="soft num">${row.number}</span><span class="mono soft">${clock(row.started_ms)}</span>
    <span class="who">${row.client_id ?? "—"}</span>
    <span><i class=${`api ${family(row.api)}`}>${row.api}</i> <span class="soft">v${row.version}</span></span>
    <span class="about">${about.join("  ")}</span>
    <span class="outcome" title=${wrong.map(([text]) => text).join("\n")}>${wrong.length ? wrong.map(([text, kind]) => html`<i class=${`tagged ${kind}`}>${text}</i>`) : html`<span class=${row.outcome === "answered" ? "soft" : "waiting"}>${row.outcome}</span>`}</span>
    <span class="num soft">${span(row.duration_ms)}</span><span class="num soft">${bytes(row.request_bytes)} / ${bytes(row.answer_bytes)}</span>`;
}
