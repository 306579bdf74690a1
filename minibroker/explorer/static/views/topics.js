// Topics: their partitions, records and configs. Producing and deleting go through the test kit's verbs.

import { html, useEffect, useState } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address, go } from "../core/places.js";
import { control, get, Refused, remove as removed, save } from "../core/server.js";
import { bytes, counted, moment } from "../core/text.js";
import { Bytes } from "../components/bytes.js";
import { Batches } from "../components/batches.js";
import { Contents, FORMS, formsOf, preview } from "../components/contents.js";
import { Empty } from "../components/empty.js";
import { Rows } from "../components/rows.js";

export const id = "topics";
export const title = "Topics";
export const icon = "▤";

const ROW_PX = 44;
const RECORD_PX = 26;
const PAGE = 200;

export function View({ names, query, about }) {
  const [listed, error, again] = useLive("topics");
  const [wanted, setWanted] = useState("");
  if (error && !listed) return html`<p class="notice bad">${error}</p>`;
  const topics = listed?.topics || [];
  const shown = topics.filter((topic) => topic.name.toLowerCase().includes(wanted.toLowerCase()));
  const selected = shown.findIndex((topic) => topic.name === names[0]);
  return html`<div class="sides">
    <aside aria-busy=${!listed}><div class="toolbar"><label class="filter"><span class="icon" aria-hidden="true">⌕</span><input aria-label="Find a topic" value=${wanted} onInput=${(event) => setWanted(event.target.value)} placeholder=${listed ? counted(topics.length, "topic") : ""}/></label></div>
      <${Rows} id="topics" label="Topics" count=${shown.length} height=${ROW_PX} selected=${selected} select=${(at) => go("topics", [shown[at].name], {}, { replace: true })}
        row=${(at) => html`<${Summary} topic=${shown[at]}/>`}/>
      ${listed && !shown.length && html`<p class="empty">${topics.length ? "No topic has such a name." : "There is no topic yet."}</p>`}
      <${NewTopic} created=${again}/></aside>
    ${names.length ? html`<${Topic} key=${names[0]} name=${names[0]} rest=${names.slice(1)} query=${query}/>` : !listed || topics.length ? html`<p class="empty">Choose a topic.</p>` : html`<${Empty} text="There is no topic yet." way="This makes one, with a record:" lab="Create one below the list." command=${`echo hello | kcat -b ${about.bootstrap_servers} -P -t orders`}/>`}
  </div>`;
}

const Summary = ({ topic }) => html`<div class="two"><span class="name">${topic.name}</span>${topic.internal ? html`<i class="tagged">internal</i>` : ""}${topic.open_transactions ? html`<i class="tagged fault">open transaction</i>` : ""}
  <br/><span class="soft">${counted(topic.count, "partition")}, ${counted(topic.offsets, "offset")}, ${bytes(topic.bytes)}</span></div>`;

function NewTopic({ created }) {
  const [said, setSaid] = useState("");
  const submitted = async (event) => {
    event.preventDefault();
    const form = event.target;
    const given = new FormData(form);
    try {
      await control("POST", "topics", { name: given.get("name"), partitions: Number(given.get("partitions")) || 1 });
      go("topics", [given.get("name")]);
      form.reset();
      setSaid("");
      created();
    } catch (error) {
      setSaid(error.message);
    }
  };
  return html`<form class="toolbar bottom" onSubmit=${submitted}><input name="name" required aria-label="Name of a new topic" placeholder="new topic" size="12"/>
    <input name="partitions" type="number" min="1" max="1000" value="1" aria-label="Its partitions" size="3"/><button>create</button><span class="bad" role="status">${said}</span></form>`;
}

const TABS = ["partitions", "records", "configs"];

function Topic({ name, rest, query }) {
  const [topic, error] = useLive(`topics/${encodeURIComponent(name)}`);
  const isPartition = /^\d+$/.test(rest[0] || "");
  const tab = isPartition ? "records" : TABS.includes(rest[0]) ? rest[0] : "partitions";
  const partition = isPartition ? Number(rest[0]) : 0;
  const remove = async () => {
    if (!confirm(`Delete topic ${name} with all its records?`)) return;
    await removed(`topics/${encodeURIComponent(name)}`);
    go("topics");
  };
  if (error && !topic) return html`<section><p class="notice bad">${error}</p></section>`;
  if (!topic) return html`<section aria-busy="true"></section>`;
  return html`<section class="stack"><div class="head"><h2>${topic.name}</h2><span class="soft mono">${topic.id}</span><span class="tagged">cleanup.policy=${topic.cleanup}</span><span class="grow"></span>
      <a href=${address("frames", [], { filter: `topic=${topic.name}` })}>its frames</a><button class="danger" onClick=${remove}>delete</button></div>
    <div class="tabs" role="tablist">${TABS.map((each) => html`<button role="tab" aria-selected=${each === tab} onClick=${() => go("topics", [name, each === "records" ? "0" : each], {}, { replace: true })}>${each}</button>`)}</div>
    ${tab === "partitions" && html`<${Partitions} topic=${topic}/>`}
    ${tab === "configs" && html`<${Configs} name=${name}/>`}
    ${tab === "records" && html`<${Records} key=${partition} topic=${topic} partition=${partition} offset=${rest[1]} query=${query}/>`}
  </section>`;
}

function Partitions({ topic }) {
  const [shown, setShown] = useState(-1); // the partition whose producers are shown
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Partitions"><table><thead><tr><th>partition</th><th>leader</th><th>epoch</th><th>replicas</th><th>in sync</th><th>start</th><th>LSO</th><th>high watermark</th><th>end</th><th class="wide">log</th><th>bytes</th><th>producers</th></tr></thead>
    <tbody>${topic.partitions.map((each) => html`<tr><td><a href=${address("topics", [topic.name, String(each.index)])}>${each.index}</a></td>
      <td>${each.leader < 0 ? html`<b class="bad">none</b>` : each.leader}</td><td>${each.leader_epoch}</td><td>${each.replicas.join(" ")}</td><td class=${each.isr.length < each.replicas.length ? "bad" : ""}>${each.isr.join(" ")}</td>
      <td>${each.start}</td><td>${each.stable}</td><td>${each.high_watermark}</td><td>${each.end}</td><td><${Span} partition=${each}/></td><td>${each.bytes === undefined ? "" : bytes(each.bytes)}</td><td>${each.producers > 0 ? html`<button class="plain" aria-expanded=${each.index === shown} onClick=${() => setShown(each.index === shown ? -1 : each.index)}>${each.producers}</button>` : 0}</td></tr>`)}</tbody></table>
    ${shown >= 0 && html`<${Producers} key=${shown} topic=${topic.name} partition=${shown}/>`}
    ${topic.more > 0 && html`<p class="soft">${counted(topic.more, "more partition")}</p>`}</div>`;
}

function Producers({ topic, partition }) {
  const [producers, error] = useLive(`topics/${encodeURIComponent(topic)}/${partition}/producers`);
  if (error && !producers) return html`<p class="bad">${error}</p>`;
  return html`<h3 class="apart">producers of ${topic}-${partition}</h3><table><thead><tr><th>producer</th><th>epoch</th><th>open since offset</th><th class="wide">last five batches: sequences and offsets</th></tr></thead>
    <tbody>${producers?.map((each) => html`<tr key=${each.producer_id}><td>${each.producer_id}</td><td>${each.epoch}</td><td>${each.first_offset >= 0 ? each.first_offset : ""}</td><td><${Batches} batches=${each.batches}/></td></tr>`)}</tbody></table>`;
}

// The log as a bar: what is deleted, what everyone may read, what waits for a transaction to end.
function Span({ partition }) {
  const { start, stable, high_watermark: high, end } = partition;
  if (!end) return html`<span class="soft">empty</span>`;
  const part = (from, to) => `${Math.max(((to - from) / end) * 100, to > from ? 1 : 0)}%`;
  return html`<div class="span" role="img" aria-label=${`offsets ${start} to ${end}, stable up to ${stable}, high watermark ${high}`}>
    <i class="gone" style=${{ width: part(0, start) }}></i><i class="stable" style=${{ width: part(start, stable) }}></i><i class="open" style=${{ width: part(stable, high) }}></i><i class="pending" style=${{ width: part(high, end) }}></i></div>`;
}

function Configs({ name }) {
  const [configs, error] = useLive(`topics/${encodeURIComponent(name)}/configs`, {}, 3000);
  if (error) return html`<p class="notice bad">${error}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Configs"><table><thead><tr><th>config</th><th>value</th><th>source</th><th class="wide">meaning</th></tr></thead>
    <tbody>${(configs || []).map((each) => html`<tr class=${each.source === "default" ? "" : "set"}><td class="mono">${each.name}</td><td class="mono">${each.value}</td><td><i class=${each.source === "default" ? "soft" : "tagged good"}>${each.source}</i></td><td class="soft">${each.about}</td></tr>`)}</tbody></table></div>`;
}

function Records({ topic, partition, offset, query }) {
  const here = topic.partitions.find((each) => each.index === partition);
  const [first, setFirst] = useState(Number(query.from ?? -1));
  const [text, setText] = useState(query.text || "");
  const [where, setWhere] = useState("any");
  const [records, setRecords] = useState([]);
  const [next, setNext] = useState(null);
  const [stopped, setStopped] = useState([]);
  const [error, setError] = useState("");
  const [turn, setTurn] = useState(0);
  const path = `topics/${encodeURIComponent(topic.name)}/${partition}`;
  const end = here ? here.end : 0;
  const from = first >= 0 ? first : offset !== undefined ? Math.max(Number(offset) - 20, 0) : text ? 0 : Math.max(end - PAGE, here?.start || 0);
  useEffect(() => {
    let isGone = false;
    const timer = setTimeout(() => get(`${path}/records`, { first: from, count: PAGE, text, where }).then((found) => {
      if (isGone) return;
      setRecords(found.records);
      setStopped(found.stopped);
      setNext(found.next < found.end ? found.next : null);
      setError("");
    }, (problem) => { if (!isGone) setError(problem.message); }), text ? 200 : 0);
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [path, text, where, turn, first, first < 0 && !text ? end : 0]);
  const more = async () => {
    const found = await get(`${path}/records`, { first: next, count: PAGE, text, where });
    setRecords([...records, ...found.records]);
    setStopped([...stopped, ...found.stopped]);
    setNext(found.next < found.end ? found.next : null);
  };
  const at = async (event) => {
    const ms = event.target.valueAsDate ? new Date(event.target.value).getTime() : Date.parse(event.target.value);
    if (!Number.isNaN(ms)) setFirst((await get(`${path}/offset-at`, { time_ms: ms })).offset);
  };
  const selected = records.findIndex((record) => String(record.offset) === offset);
  const open = (each) => go("topics", [topic.name, String(partition), ...(each < 0 ? [] : [String(records[each].offset)])], {}, { replace: true });
  return html`<div class=${`records ${offset !== undefined ? "split" : ""}`}>
    <div class="toolbar"><label class="soft">partition <select value=${partition} onChange=${(event) => go("topics", [topic.name, event.target.value], {}, { replace: true })}>${topic.partitions.map((each) => html`<option>${each.index}</option>`)}</select></label>
      <label class="filter"><span class="icon" aria-hidden="true">⌕</span><input value=${text} onInput=${(event) => setText(event.target.value)} aria-label="Search records" placeholder="search"/></label>
      <select value=${where} onChange=${(event) => setWhere(event.target.value)} aria-label="Where to search">${["any", "key", "value", "header"].map((each) => html`<option>${each}</option>`)}</select>
      <label class="soft">from offset <input type="number" min="0" size="8" value=${first < 0 ? "" : first} placeholder="newest" onInput=${(event) => setFirst(event.target.value === "" ? -1 : Number(event.target.value))}/></label>
      <label class="soft">from time <input type="datetime-local" step="0.001" onChange=${at}/></label></div>
    <div class="columns" aria-hidden="true"><span>offset</span><span>time</span><span>key</span><span>value</span><span>transaction</span><span>bytes</span></div>
    <${Rows} id="records" label="Records" count=${records.length} height=${RECORD_PX} selected=${selected} select=${open} follow=${first < 0 && !text && offset === undefined}
      row=${(each) => html`<${Line} record=${records[each]}/>`}/>
    ${error ? html`<p class="empty bad">${error}</p>` : !records.length ? html`<p class="empty">${text ? "No record has this text." : "There is no record here."}</p>` : ""}
    ${stopped.map((line) => html`<p class="soft">${line}</p>`)}
    ${next !== null && html`<button class="next" onClick=${more}>go on from offset ${next}</button>`}
    ${offset !== undefined && html`<${Record} key=${offset} path=${path} offset=${offset} topic=${topic.name} close=${() => open(-1)}/>`}
    <${Produce} topic=${topic.name} partition=${partition} done=${() => setTurn(turn + 1)}/>
  </div>`;
}

const named = (content, subject) => (content?.schema ? html` by schema <a href=${address("schemas", [], { schema: content.schema, subject })}>${content.schema}</a>` : "");
const KINDS = { open: "fault", aborted: "bad", committed: "good" };

function Line({ record }) {
  const size = (record.key?.size || 0) + (record.value?.size || 0);
  return html`<span class="num">${record.offset}</span><span class="mono soft">${moment(record.timestamp_ms)}</span><span class="key">${preview(record.key)}</span><span class="value">${preview(record.value)}</span>
    <span>${record.transaction ? html`<i class=${`tagged ${KINDS[record.transaction]}`}>${record.transaction}</i>` : ""}</span><span class="num soft">${bytes(size)}</span>`;
}

function Record({ path, offset, topic, close }) {
  const [found, error] = useLive(`${path}/records/${offset}`, {}, 0);
  const [form, setForm] = useState("JSON");
  const [part, setPart] = useState(-1);
  if (error) return html`<section class="detail"><div class="head"><span class="bad">${error}</span><span class="grow"></span><button class="plain" onClick=${close} aria-label="Close">✕</button></div></section>`;
  if (!found) return html`<section class="detail" aria-busy="true"></section>`;
  const { record, batch, stopped } = found;
  const at = part >= 0 ? part : Math.max(batch.rows.findIndex((row) => row.name.startsWith("record [") && row.meaning === `offset ${offset}`), 0);
  if (!record) return html`<section class="detail"><div class="head"><h2>offset ${offset}</h2><span class="soft">${stopped[0] ?? "has no record: it is a marker, or was compacted"}</span><span class="grow"></span><button class="plain" onClick=${close} aria-label="Close">✕</button></div><${Bytes} tree=${batch} name="batch" selected=${at} select=${setPart}/></section>`;
  const there = new Set([...formsOf(record.key), ...formsOf(record.value), "bytes"]);
  const forms = FORMS.filter((each) => there.has(each));
  const whole = (part) => () => save(`${path}/records/${offset}/${part}`, `${topic}-${offset}-${part}`);
  const facts = { time: `${moment(record.timestamp_ms)} (${record.timestamp_type})`, "leader epoch": record.leader_epoch, format: record.magic,
    ...(record.producer_id >= 0 ? { producer: `${record.producer_id}, epoch ${record.producer_epoch}, sequence ${record.sequence}` } : {}), ...(record.transaction ? { transaction: record.transaction } : {}) };
  return html`<section class="detail record"><div class="head"><h2>${topic} <span class="soft">offset</span> ${offset}</h2>
      ${Object.entries(facts).map(([name, value]) => html`<span class="soft">${name} <b>${value}</b></span>`)}${stopped.map((line) => html`<span class="soft">${line}</span>`)}
      <span class="grow"></span><button class="plain" onClick=${close} aria-label="Close">✕</button></div>
    <div class="tabs" role="tablist">${forms.map((each) => html`<button role="tab" aria-selected=${each === form || (!forms.includes(form) && each === forms[0])} onClick=${() => setForm(each)}>${each}</button>`)}</div>
    ${form === "bytes" ? html`<${Bytes} tree=${batch} name="batch" selected=${at} select=${setPart}/>` : html`<div class="scroll parts">
      <h3>key${named(record.key, `${topic}-key`)}</h3><${Contents} content=${record.key} form=${form} save=${whole("key")}/><h3>value${named(record.value, `${topic}-value`)}</h3><${Contents} content=${record.value} form=${form} save=${whole("value")}/>
      ${record.headers.map(([name, value]) => html`<h3>header ${name}</h3><${Contents} content=${value} form=${form}/>`)}</div>`}
  </section>`;
}

function Produce({ topic, partition, done }) {
  const [said, setSaid] = useState("");
  const submitted = async (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const headers = Object.fromEntries(given.get("headers").split(",").filter(Boolean).map((each) => each.trim().split("=")).map(([name, value]) => [name, value ?? null]));
    try {
      const { offset } = await control("POST", `topics/${encodeURIComponent(topic)}/records`, { values: [given.get("value")], key: given.get("key") || null, partition, headers });
      setSaid(`offset ${offset}`);
      done();
    } catch (error) {
      setSaid(error instanceof Refused ? error.message : String(error));
    }
  };
  return html`<form class="toolbar bottom" onSubmit=${submitted}><b>produce</b><input name="key" aria-label="Key" placeholder="key" size="12"/><input name="value" aria-label="Value" placeholder="value" class="grow"/>
    <input name="headers" aria-label="Headers" placeholder="header=value, ..." size="18"/><button class="main">produce</button><span class="soft" role="status">${said}</span></form>`;
}
