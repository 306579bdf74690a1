// Try it: a request composed from its fields, or edited as bytes, sent, and its answer explained.

import { html, useEffect, useState } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address, go } from "../core/places.js";
import { get, post } from "../core/server.js";
import { span } from "../core/text.js";
import { Bytes } from "../components/bytes.js";

export const id = "try";
export const title = "Try it";
export const icon = "▷";

export function View({ names, about }) {
  const [apis] = useLive("try/apis", {}, 0);
  const frame = names[0] === "frame" ? names[1] : null;
  const api = frame ? "" : names[0] || "Metadata";
  const found = apis?.find((each) => each.api === api);
  const [form, setForm] = useState(null);
  const [values, setValues] = useState({});
  const [bytes, setBytes] = useState(null);
  const [answer, setAnswer] = useState(null);
  const [said, setSaid] = useState("");
  const [part, setPart] = useState(-1);
  const [answerPart, setAnswerPart] = useState(-1);
  const [shows, setShows] = useState("request");
  const [node, setNode] = useState(about.nodes?.[0]);
  const version = frame ? undefined : names[1] === undefined ? found?.versions[found.versions.length - 1] : Number(names[1]);

  useEffect(() => {
    if (version === undefined) return;
    get("try/form", { api, version }).then((given) => { setForm(given); setValues(given.values); setSaid(""); }, (error) => setSaid(error.message));
  }, [api, version]);

  useEffect(() => {
    if (frame) get(`frames/${frame}`).then((found) => post("try/explain", { hex: found.copies.hex || "" })).then(setBytes, (error) => setSaid(error.message));
  }, [frame]);

  useEffect(() => {
    if (!form || form.version !== version) return undefined;
    const timer = setTimeout(() => post("try/encode", { api, version, fields: values }).then((given) => { setBytes(given); setSaid(""); setShows("request"); }, (error) => setSaid(error.message)), values === form.values ? 0 : 120);
    return () => clearTimeout(timer);
  }, [form, values]);

  const edited = (event) => {
    const hex = event.target.value;
    post("try/explain", { hex: hex.replace(/\s/g, "") }).then((given) => { setBytes(given); setSaid(""); }, (error) => { setBytes({ ...bytes, hex }); setSaid(error.message); });
  };
  const send = async (event) => {
    event.preventDefault();
    try {
      setAnswer(await post("try/send", { hex: bytes.hex, node }));
      setAnswerPart(-1);
      setShows("answer");
      setSaid("");
    } catch (error) {
      setSaid(error.message);
    }
  };
  if (!apis) return html`<div aria-busy="true"></div>`;
  return html`<div class="trying">
    <form class="compose" onSubmit=${send}><div class="toolbar">
        <select aria-label="API" value=${api} onChange=${(event) => go("try", [event.target.value])}>${frame ? html`<option value="">frame ${frame}</option>` : ""}${[...apis].sort((a, b) => a.api.localeCompare(b.api)).map((each) => html`<option>${each.api}</option>`)}</select>
        <label class="soft" hidden=${!!frame}>version <select value=${version} onChange=${(event) => go("try", [api, event.target.value])}>${found?.versions.map((each) => html`<option>${each}</option>`)}</select></label>
        ${about.nodes?.length > 1 && html`<label class="soft">to node <select value=${node} onChange=${(event) => setNode(Number(event.target.value))}>${about.nodes.map((each) => html`<option>${each}</option>`)}</select></label>`}
        <span class="grow"></span><button class="main" disabled=${!bytes || !about.bootstrap_servers}>send</button></div>
      <div class="scroll" tabindex="0" role="region" aria-label="Fields to fill in">${form && form.version === version && version !== undefined && html`<${Fields} fields=${form.fields} values=${values} change=${setValues}/>`}</div>
    </form>
    <section class="outcome"><div class="tabs"><span role="tablist" aria-label="Direction"><button role="tab" aria-selected=${shows === "request"} onClick=${() => setShows("request")}>Request</button>
        <button role="tab" aria-selected=${shows === "answer"} disabled=${!answer} onClick=${() => setShows("answer")}>Answer ${answer?.answer ? html`<span class="soft">after ${span(answer.took_ms)}</span>` : ""}</button></span>
        ${answer?.number ? html`<a class="frame-link" href=${address("frames", [], { filter: "client_id=explorer" })}>its frames</a>` : ""}<span class="bad" role="status">${said}</span></div>
      ${shows === "request" ? html`<label class="raw"><span class="hidden">The bytes of the request, to edit</span><textarea class="mono" rows="3" spellcheck="false" value=${(bytes?.hex || "").replace(/(..)(?=.)/g, "$1 ")} onChange=${edited}></textarea></label>
        ${bytes && html`<${Bytes} tree=${bytes.tree} name="request" selected=${part} select=${setPart}/>`}`
      : answer.answer ? html`<${Bytes} tree=${answer.answer} name="answer" selected=${answerPart} select=${setAnswerPart}/>` : html`<p class="empty">${answer.why}</p>`}
    </section></div>`;
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
  if (field.kind === "records") return html`<textarea class="mono" rows="3" aria-label=${`${label}: a line for each record, key=value`} value=${value} onInput=${(event) => change(event.target.value)}></textarea>`;
  return html`<input class="mono" aria-label=${field.kind === "bytes" ? `${label}, in hex` : label} value=${value} onInput=${(event) => change(event.target.value)}/>`;
}
