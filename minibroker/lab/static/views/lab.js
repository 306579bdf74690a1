// The lab: clients that the reader starts, stops and kills, and a cell of Python.

import { html, useEffect, useRef, useState } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address } from "../core/places.js";
import { post } from "../core/server.js";

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
const FIRST_CODE = `from minibroker.protocol.messages.metadata import MetadataRequest

answer = await client.request(MetadataRequest(topics=None))
for topic in answer.topics:
    print(topic.name, len(topic.partitions))`;

export function View() {
  return html`<div class="scroll page lab" tabindex="0" role="region" aria-label="Lab">
    <p class="soft">A broker of three nodes runs in this tab: its clients, its network and its files are in the tab's memory. There are no threads, no TLS and no sockets to the outside.
      Each request of these clients is one of the <a href=${address("frames")}>frames</a>; stop time, nodes and answers under <a href=${address("controls")}>the controls</a>.</p>
    <${Clients}/><${Cell}/></div>`;
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
    <table class="clients"><thead><tr><th>client</th><th>topic</th><th>group or id</th><th>records</th><th class="wide">what it says</th><th>it</th><td></td></tr></thead>
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

// The reader's own code, with what it said so far.
function Cell() {
  const [runs, setRuns] = useState([]);
  const [isBusy, setBusy] = useState(false);
  const code = useRef(null);
  const end = useRef(null);
  useEffect(() => end.current?.scrollIntoView({ block: "nearest" }), [runs]);
  const run = async () => {
    const text = code.current.value;
    setBusy(true);
    const said = await post("lab/run", { code: text }).then((answer) => answer.said, (error) => error.message);
    setRuns((before) => [...before, { text, said }].slice(-50));
    setBusy(false);
  };
  const pressed = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run();
  };
  return html`<section class="cell"><h2>Python</h2>
    <p class="soft">Your own code against minibroker's <code>client</code> and <code>broker</code>, the object of its test kit. <code>await</code> works at the top; Ctrl+Enter runs it. An endless loop stops all of the tab's broker: reload the page then.</p>
    ${runs.length > 0 && html`<div class="said mono" tabindex="0" role="log" aria-label="What the code said">${runs.map(({ text, said }) => html`<pre class="soft">${text}</pre><pre>${said}</pre>`)}<span ref=${end}></span></div>`}
    <textarea ref=${code} class="mono" rows="8" spellcheck="false" aria-label="Code" onKeyDown=${pressed}>${FIRST_CODE}</textarea>
    <p><button class="main" disabled=${isBusy} onClick=${run}>${isBusy ? "runs …" : "run"}</button></p></section>`;
}
