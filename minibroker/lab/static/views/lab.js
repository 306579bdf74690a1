// The lab: clients that the reader starts, stops and kills, and a cell of Python.

import { html, useEffect, useRef, useState } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address } from "../core/places.js";
import { post, save } from "../core/server.js";

export const id = "lab";
export const title = "Lab";
export const icon = "⚗";
export const needs = "frames";

const KINDS = {
  producer: { text: "producer", about: "writes a record each second", named: null },
  consumer: { text: "consumer", about: "reads, and commits, as a member of a group", named: "group" },
  "transactional-producer": { text: "transactional producer", about: "commits transactions, and aborts every fourth", named: "transactional id" },
};
const TONES = { runs: "good", killed: "bad", failed: "bad", stopped: "" };
const CODE = "minibroker-lab-code";
const SLOW_MS = 3000; // the worker has no way to be interrupted: that needs memory which a plain server of files cannot allow
const FIRST_CODE = `from minibroker.protocol.messages.metadata import MetadataRequest

answer = await client.request(MetadataRequest(topics=None))
for topic in answer.topics:
    print(topic.name, len(topic.partitions))`;

export function View({ about }) {
  if (!about.bootstrap_servers) return html`<div class="scroll page lab" tabindex="0" role="region" aria-label="Lab"><p>This lab shows what <b>${about.path}</b> holds, without a broker.</p><${Files} mayShare=${false}/></div>`;
  return html`<div class="scroll page lab" tabindex="0" role="region" aria-label="Lab">
    <p class="soft">A broker of three nodes runs in this tab: its clients, its network and its files are in the tab's memory. There are no threads, no TLS and no sockets to the outside.
      Each request of these clients is one of the <a href=${address("frames")}>frames</a>; stop time, nodes and answers under <a href=${address("controls")}>the controls</a>.</p>
    <${Clients}/><${Break}/><${Register}/><${Cell}/><${Files} mayShare=${true}/></div>`;
}

// What the controls do not have: a disk that fails silently.
function Break() {
  const [said, setSaid] = useState("");
  const submitted = (event) => {
    event.preventDefault();
    const { topic, partition, offset } = Object.fromEntries(new FormData(event.target));
    post("lab/flip", { topic, partition: Number(partition), offset: Number(offset) }).then(({ place }) => setSaid(`flipped: ${place}`), (error) => setSaid(error.message));
  };
  return html`<section><h2>Break it</h2>
    <form class="verbs" onSubmit=${submitted}><button>flip a bit</button><label class="soft">of topic <input name="topic" size="12" required value="orders"/></label>
      <label class="soft">partition <input name="partition" type="number" min="0" size="3" required value="0"/></label><label class="soft">offset <input name="offset" type="number" min="0" size="6" required value="0"/></label><span role="status" class="mono">${said}</span></form>
    <p class="soft">The file changes, as on a disk that fails silently: a consumer that reads the batch finds a wrong checksum, and the files' view marks it. Answers with errors, time that stands still, and nodes that die are under <a href=${address("controls")}>the controls</a>.</p></section>`;
}

const FIRST_SCHEMA = JSON.stringify({ type: "record", name: "Order", fields: [{ name: "drink", type: "string" }] });

// The registry's own request, which no HTTP carries here.
function Register() {
  const [said, setSaid] = useState("");
  const submitted = async (event) => {
    event.preventDefault();
    const { subject, schemaType, schema } = Object.fromEntries(new FormData(event.target));
    const path = `/subjects/${encodeURIComponent(subject)}/versions`;
    const answered = await post("lab/registry", { method: "POST", path, body: JSON.stringify({ schemaType, schema }) }).catch((error) => ({ status: 0, body: error.message }));
    const { message, version, id: number } = answered.status ? JSON.parse(answered.body) : { message: answered.body };
    setSaid(message || html`version ${version} of <a href=${address("schemas", [subject, String(version)])}>${subject}</a> has the id ${number}`);
  };
  return html`<section><h2>Schemas</h2>
    <form onSubmit=${submitted}><div class="verbs"><label class="soft">subject <input name="subject" size="16" required value="orders-value"/></label>
      <label class="soft">type <select name="schemaType"><option>AVRO</option><option>JSON</option></select></label><button>register</button><span role="status">${said}</span></div>
      <textarea name="schema" class="mono" rows="3" spellcheck="false" aria-label="Schema" required>${FIRST_SCHEMA}</textarea></form>
    <p class="soft">The <a href=${address("schemas")}>registry</a> checks that a new version is compatible. The lab lacks the library for Protobuf's schemas, and there is no HTTP: Python has <code>broker.registry</code>.</p></section>`;
}

const LONGEST_LINK = 64 << 10;

// The state as a file or a link, and files of others.
function Files({ mayShare }) {
  const [said, setSaid] = useState("");
  const told = (work) => work().catch((error) => setSaid(error.message));
  const link = async () => {
    const bytes = new Uint8Array(await (await globalThis.lab.fetch("api/lab/file")).arrayBuffer());
    const text = btoa(Array.from(bytes, (each) => String.fromCharCode(each)).join("")).replaceAll("+", "-").replaceAll("/", "_");
    if (text.length > LONGEST_LINK) throw new Error(`The state has ${Math.ceil(text.length / 1024)} kB as a link, and browsers take ${LONGEST_LINK >> 10} kB: share the file.`);
    await navigator.clipboard.writeText(`${location.origin}${location.pathname}#state=shared&${text}`);
    setSaid("The link is in the clipboard.");
  };
  return html`<section><h2>Share it</h2><div class="verbs">
      ${mayShare && html`<button onClick=${() => told(() => save("lab/file", "minibroker-lab.zip"))}>save to a file</button><button onClick=${() => told(link)}>copy a link</button>`}
      <label class="soft">open <input type="file" onChange=${(event) => told(() => globalThis.lab.open(event.target.files[0]))}/></label>
      <button onClick=${() => location.reload()}>begin anew</button></div><p role="status">${said}</p>
    <p class="soft">A file has all logs and frames; its reader needs no broker. Open such a file, frames that <code>minibroker proxy --save</code> or a test's journal has saved, or a zip archive of any Kafka's log directory: here, or by dropping it on the page.${" "}
      <code>minibroker explore FILE</code> opens it, too.</p></section>`;
}

function Clients() {
  const [rows, error, again] = useLive("lab/clients");
  const [said, setSaid] = useState("");
  const run = async (path, body) => {
    try {
      await post(`lab/clients${path}`, body);
      setSaid("");
      again();
    } catch (problem) {
      setSaid(problem.message);
    }
  };
  return html`<section><h2>Clients</h2>
    <table class="clients"><thead><tr><th>client</th><th>topic</th><th>group or id</th><th>records</th><th class="wide">what it says</th><th>state</th><td></td></tr></thead>
      <tbody>${(rows || []).map((row) => html`<tr key=${row.number} data-client=${row.client_id}>
        <td><a class="mono" href=${address("frames", [], { filter: `client_id=${row.client_id}` })}>${row.client_id}</a></td><td>${row.topic}</td><td>${row.name}</td>
        <td class="num">${row.count}</td><td class="wide">${row.said}</td><td><i class=${`tagged ${TONES[row.state]}`}>${row.state}</i></td>
        <td class="verbs">${(row.state === "runs" ? ["stop", "kill"] : ["start", "remove"]).map((verb) => html`<button key=${verb} onClick=${() => run(`/${row.number}/${verb}`)}>${verb}</button>`)}</td></tr>`)}</tbody></table>
    <p class="bad" role="status">${said || error}</p>
    <${NewClient} add=${(body) => run("", body)}/>
    <p class="soft">A stopped client leaves its group, or aborts its transaction. A killed one says nothing: the broker finds out when its session of 10 s, or its transaction of 30 s, times out.
      Start a second consumer in a group and watch the rebalance; start a second producer with a transactional id and watch the first one fail, as it is fenced.</p></section>`;
}

function NewClient({ add }) {
  const [kind, setKind] = useState("consumer");
  const { about, named } = KINDS[kind];
  const submitted = (event) => {
    event.preventDefault();
    add(Object.fromEntries(new FormData(event.target)));
  };
  return html`<form class="verbs" onSubmit=${submitted}>
    <label class="soft">a <select name="kind" value=${kind} onChange=${(event) => setKind(event.target.value)}>${Object.entries(KINDS).map(([name, { text }]) => html`<option value=${name}>${text}</option>`)}</select></label>
    <label class="soft">topic <input name="topic" size="12" required value="orders"/></label>
    ${named && html`<label class="soft" key=${named}>${named} <input name="name" size="12" required value=${named === "group" ? "readers" : "payments"}/></label>`}
    <button class="main">start</button><span class="soft">${about}</span></form>`;
}

// The code with which the cell begins: that which the reader had to end, once.
function firstCode() {
  const kept = sessionStorage.getItem(CODE);
  sessionStorage.removeItem(CODE);
  return kept ?? FIRST_CODE;
}

// The reader's own code, with what it said so far.
function Cell() {
  const [runs, setRuns] = useState([]);
  const [isBusy, setBusy] = useState(false);
  const [isSlow, setSlow] = useState(false);
  const [begun] = useState(firstCode);
  const code = useRef(null);
  const end = useRef(null);
  useEffect(() => end.current?.scrollIntoView({ block: "nearest" }), [runs]);
  const run = async () => {
    const text = code.current.value;
    setBusy(true);
    const timer = setTimeout(() => setSlow(true), SLOW_MS);
    const said = await post("lab/run", { code: text }).then((answer) => answer.said, (error) => error.message);
    setRuns((before) => [...before, { text, said }].slice(-50));
    clearTimeout(timer);
    setBusy(false);
    setSlow(false);
  };
  const anew = () => { sessionStorage.setItem(CODE, code.current.value); location.reload(); };
  const pressed = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run();
  };
  return html`<section class="cell"><h2>Python</h2>
    <p class="soft">Your own code against minibroker's <code>client</code> and <code>broker</code>, the object of its test kit. <code>await</code> works at the top; Ctrl+Enter runs it. An endless loop stops all of the tab's broker: a button then begins anew, and keeps the code.</p>
    ${runs.length > 0 && html`<div class="said mono" tabindex="0" role="log" aria-label="What the code said">${runs.map(({ text, said }) => html`<pre class="soft">${text}</pre><pre>${said}</pre>`)}<span ref=${end}></span></div>`}
    <textarea ref=${code} class="mono" rows="8" spellcheck="false" aria-label="Code" onKeyDown=${pressed}>${begun}</textarea>
    <p><button class="main" disabled=${isBusy} onClick=${run}>${isBusy ? "runs …" : "run"}</button>${isSlow && html` <button class="danger" onClick=${anew}>end it and begin anew</button> <span class="soft">The tab's broker and its logs go with it.</span>`}</p></section>`;
}
