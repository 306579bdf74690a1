// Try it: a request composed from its fields, or edited as bytes, sent, and its answer explained.

import { html, useEffect, useRef, useState } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address, go } from "../core/places.js";
import { get, post } from "../core/server.js";
import { span } from "../core/text.js";
import { Bytes } from "../components/bytes.js";
import { current } from "../lessons/progress.js";

export const id = "try";
export const title = "Try it";
export const icon = "▷";

const ENCODE_MS = 120;
const EXPLAIN_MS = 250;
const kept = new Map(); // what was composed and answered, by lesson, API and version, as long as the page is open
let last = null; // the API and the version that were open last

const spaced = (hex) => hex.replace(/(..)(?=.)/g, "$1 ");

export function View({ names, about }) {
  const [apis] = useLive("try/apis", {}, 0);
  const frame = names[0] === "frame" ? names[1] : null;
  useEffect(() => { if (!names.length && last) go("try", last, {}, { replace: true }); }, [names.length]);
  if (!apis) return html`<div aria-busy="true"></div>`;
  const api = frame ? "" : names[0] || "Metadata";
  const found = apis.find((each) => each.api === api);
  const version = frame ? undefined : names[1] === undefined ? found?.versions[found.versions.length - 1] : Number(names[1]);
  if (!frame && names.length) last = names;
  return html`<${Trying} key=${`${current.value} ${api} ${version} ${frame}`} api=${api} version=${version} versions=${found?.versions ?? []} apis=${apis} frame=${frame} about=${about}/>`;
}

function Trying({ api, version, versions, apis, frame, about }) {
  const name = `${current.value} ${api} ${version}`;
  const before = kept.get(name);
  const [form, setForm] = useState(null);
  const [values, setValues] = useState(before?.values ?? null);
  const [bytes, setBytes] = useState(before?.bytes ?? null);
  const [written, setWritten] = useState(null); // by the reader, into the box of bytes
  const [answer, setAnswer] = useState(before?.answer ?? null);
  const [said, setSaid] = useState("");
  const [part, setPart] = useState(-1);
  const [answerPart, setAnswerPart] = useState(-1);
  const [shows, setShows] = useState(before?.answer ? "answer" : "request");
  const [node, setNode] = useState(null); // null is the one that the request is for
  const [waits, setWaits] = useState(false);
  const isComposed = useRef(Boolean(before?.bytes)); // what was kept need not be encoded again
  const outcome = useRef();
  const failed = (error) => setSaid(error.message);

  useEffect(() => {
    if (version !== undefined) get("try/form", { api, version }).then((given) => { setForm(given); setValues((now) => now ?? given.values); }, failed);
    if (frame) get(`frames/${frame}`).then((found) => post("try/explain", { hex: found.copies.hex || "" })).then(setBytes, failed);
  }, []);
  useEffect(() => {
    if (!form || !values) return undefined;
    if (isComposed.current) { isComposed.current = false; return undefined; }
    const timer = setTimeout(() => post("try/encode", { api, version, fields: values }).then((given) => { setBytes(given); setWritten(null); setSaid(""); setShows("request"); }, failed), values === form.values ? 0 : ENCODE_MS);
    return () => clearTimeout(timer);
  }, [form, values]);
  useEffect(() => {
    if (written === null) return undefined;
    const timer = setTimeout(() => post("try/explain", { hex: written.replace(/\s/g, "") }).then((given) => { setBytes(given); setSaid(""); }, failed), EXPLAIN_MS);
    return () => clearTimeout(timer);
  }, [written]);
  useEffect(() => { if (values && bytes && form && !frame) kept.set(name, { values, bytes, answer }); }, [values, bytes, answer, form]);

  const send = async (event) => {
    event.preventDefault();
    setWaits(true);
    try {
      const now = form && written === null ? await post("try/encode", { api, version, fields: values }) : bytes; // with the time of now
      const found = await post("try/send", { hex: written === null ? now.hex : written.replace(/\s/g, ""), node });
      setBytes(now);
      setAnswer(found);
      setAnswerPart(-1);
      setShows("answer");
      setSaid("");
      outcome.current?.scrollIntoView({ block: "nearest" });
    } catch (error) {
      failed(error);
    }
    setWaits(false);
  };
  const afresh = () => { kept.delete(name); setAnswer(null); setWritten(null); setShows("request"); setValues({ ...form.values }); };
  return html`<div class="trying"><div class="panes">
    <form class="compose" onSubmit=${send}><div class="toolbar">
        <select aria-label="API" value=${api} onChange=${(event) => go("try", [event.target.value])}>${frame ? html`<option value="">frame ${frame}</option>` : ""}${[...apis].sort((a, b) => a.api.localeCompare(b.api)).map((each) => html`<option>${each.api}</option>`)}</select>
        <label class="soft" hidden=${!!frame}>version <select value=${version} onChange=${(event) => go("try", [api, event.target.value])}>${versions.map((each) => html`<option>${each}</option>`)}</select></label>
        ${about.nodes?.length > 1 && html`<label class="soft">to node <select value=${node ?? ""} onChange=${(event) => setNode(Number(event.target.value) || null)}><option value="">that it is for</option>${about.nodes.map((each) => html`<option>${each}</option>`)}</select></label>`}
        <span class="grow"></span>${form && html`<button type="button" class="plain" title="Begin again with the values that the form had at first" onClick=${afresh}>start over</button>`}<button class="main" disabled=${!bytes || !about.bootstrap_servers}>send</button></div>
      <div class="scroll" tabindex="0" role="region" aria-label="Fields to fill in">${form && values && html`<${Fields} fields=${form.fields} values=${values} change=${setValues}/>`}</div>
    </form>
    <section class="outcome" ref=${outcome}><div class="tabs"><span role="tablist" aria-label="Direction"><button role="tab" aria-selected=${shows === "request"} onClick=${() => setShows("request")}>Request</button>
        <button role="tab" aria-selected=${shows === "answer"} disabled=${!answer} onClick=${() => setShows("answer")}>Answer ${answer?.answer ? html`<span class="soft">${about.nodes?.length > 1 && answer.node ? `of node ${answer.node} ` : ""}after ${span(answer.took_ms)}</span>` : ""}</button></span>
        ${answer?.number ? html`<a class="frame-link" href=${address("frames", [], { filter: "client_id=explorer" })}>its frames</a>` : ""}${waits ? html`<span class="waiting">waits for the answer, up to 10 s</span>` : ""}<span class="bad" role="status">${said}</span></div>
      ${shows === "request" ? html`<label class="raw"><span class="hidden">The bytes of the request, to edit</span><textarea class="mono" rows="3" spellcheck="false" placeholder="The bytes of the request in hex, to edit" value=${written ?? spaced(bytes?.hex || "")} onInput=${(event) => setWritten(event.target.value)}></textarea></label>
        ${bytes && html`<${Bytes} tree=${bytes.tree} name="request" selected=${part} select=${setPart}/>`}`
      : answer.answer ? html`<${Bytes} tree=${answer.answer} name="answer" selected=${answerPart} select=${setAnswerPart}/>` : html`<p class="empty">${answer.why}</p>`}
    </section></div></div>`;
}

function Fields({ fields, values, change }) {
  return html`<div class="fields">${fields.map((field) => html`<${Entry} key=${field.name} field=${field} value=${values[field.name]} change=${(value) => change({ ...values, [field.name]: value })}/>`)}</div>`;
}

function Entry({ field, value, change }) {
  const isNull = value === null || value === undefined;
  const blank = field.kind === "array" ? [] : field.blank ?? (field.kind === "bool" ? false : field.kind === "integer" || field.kind === "float" ? 0 : "");
  return html`<div class="entry" title=${field.about || undefined}><span class="label"><b>${field.name}</b> <span class="soft">${field.type}</span>
      ${field.nullable || field.tagged ? html`<label class="soft"><input type="checkbox" checked=${isNull} onChange=${(event) => change(event.target.checked ? null : blank)}/>${field.tagged && !field.nullable ? "left out" : "null"}</label>` : ""}</span>
    ${isNull ? "" : html`<${Input} field=${field} value=${value} change=${change}/>`}${field.about ? html`<p class="soft">${field.about}</p>` : ""}</div>`;
}

function Input({ field, value, change }) {
  const label = field.name || "item";
  if (field.kind === "struct") return html`<${Fields} fields=${field.fields} values=${value} change=${change}/>`;
  if (field.kind === "array") {
    const set = (at, each) => change(value.map((old, index) => (index === at ? each : old)));
    return html`<div class="items">${value.map((each, at) => html`<div class="item" key=${at}><${Input} field=${{ ...field.item, name: `${label} ${at}` }} value=${each} change=${(now) => set(at, now)}/><button type="button" class="plain" aria-label=${`Remove ${label} ${at}`} onClick=${() => change(value.filter((_, index) => index !== at))}>✕</button></div>`)}
      <button type="button" onClick=${() => change([...value, field.blank])}>add</button></div>`;
  }
  if (field.kind === "bool") return html`<input type="checkbox" aria-label=${label} checked=${value} onChange=${(event) => change(event.target.checked)}/>`;
  if (field.kind === "integer") return html`<input type="number" aria-label=${label} value=${value} onInput=${(event) => { if (event.target.value !== "") change(Number(event.target.value)); }}/>`;
  if (field.kind === "records") return html`<textarea class="mono" rows="3" aria-label=${`${label}: a line for each record, key=value`} value=${value} onInput=${(event) => change(event.target.value)}></textarea>
    <p class="soft">A line for each record, as key=value. About the whole batch: @producer ID EPOCH SEQUENCE, @transactional, @compress gzip. A key without a value: @tombstone KEY.</p>`;
  return html`<input class="mono" aria-label=${field.kind === "bytes" ? `${label}, in hex` : label} value=${value} onInput=${(event) => change(event.target.value)}/>`;
}
