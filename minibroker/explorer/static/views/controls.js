// Controls: the verbs of the test kit: time, faults, nodes, snapshots.

import { html, useEffect, useState } from "../core/lib.js";
import { state } from "../core/frames.js";
import { address } from "../core/places.js";
import { control, get } from "../core/server.js";
import { moment } from "../core/text.js";

export const id = "controls";
export const title = "Controls";
export const icon = "⚙";

const SPANS = ["1 s", "1 minute", "1 hour", "1 day", "7 days"];
const VERBS = ["stop", "kill", "start", "pause", "resume", "make-stale", "refresh"];
const ACTS = { error: "answers with an error", close: "disconnects", answer: "spoils the answer", delay: "delays", throttle: "throttles", corrupt: "damages batches" };

export function View({ about }) {
  const [said, setSaid] = useState("");
  const [faults, setFaults] = useState([]);
  const [snapshots, setSnapshots] = useState([]);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let isGone = false;
    const ask = () => control("GET", "faults").then((found) => { if (!isGone) setFaults(found); }, () => null);
    ask();
    const timer = setInterval(ask, 1000);
    return () => { isGone = true; clearInterval(timer); };
  }, [turn]);
  const run = async (method, path, body, then) => {
    try {
      const answer = await control(method, path, body);
      setSaid(`done: ${path}`);
      if (then) then(answer);
      setTurn(turn + 1);
    } catch (error) {
      setSaid(error.message);
    }
  };
  const now = state.value;
  return html`<div class="scroll page controls" tabindex="0" role="region" aria-label="Controls"><p class="soft" role="status">${said || "What tests do to a broker, by hand. Each is drawn into the timeline of the frames."}</p>
    <section><h2>Time</h2><p class="mono">${now && moment(now.now_ms)} ${now?.frozen ? html`<b class="chip">frozen</b>` : ""}</p>
      <div class="verbs">${SPANS.map((by) => html`<button onClick=${() => run("POST", "clock/advance", { by })}>+ ${by}</button>`)}
        <button onClick=${() => run("POST", now?.frozen ? "clock/unfreeze" : "clock/freeze")}>${now?.frozen ? "unfreeze" : "freeze"}</button></div></section>
    <section><h2>Faults</h2><${NewFault} add=${(fault) => run("POST", "faults", fault)}/>
      ${faults.length > 0 && html`<table><thead><tr><th>fault</th><th class="wide">what it does</th><th>matches</th><th>hits</th><td></td></tr></thead><tbody>${faults.map((each) => html`<tr key=${each.number}><td>${each.number}</td><td>${each.rule}</td><td>${each.matches}</td><td>${each.hits}</td><td><button onClick=${() => run("DELETE", `faults/${each.number}`)}>remove</button></td></tr>`)}</tbody></table>
        <p><button onClick=${() => run("DELETE", "faults")}>remove all</button></p>`}</section>
    <section><h2>Nodes</h2><table><tbody>${about.nodes.map((node) => html`<tr key=${node}><th>node ${node}</th><td class="verbs">${VERBS.map((verb) => html`<button onClick=${() => run("POST", `nodes/${node}/${verb}`)}>${verb}</button>`)}</td></tr>`)}</tbody></table>
      <p><button onClick=${() => run("POST", "elect-leaders")}>elect leaders</button></p></section>
    <section><h2>Groups and transactions</h2><p><a href=${address("groups")}>Groups</a> are rebalanced and evicted, <a href=${address("transactions")}>transactions</a> held, released and fenced, beside their states.</p></section>
    <section><h2>The whole broker</h2><div class="verbs"><button onClick=${() => run("POST", "snapshots", undefined, (made) => setSnapshots([...snapshots, made.snapshot]))}>take a snapshot</button>
      ${snapshots.map((each) => html`<button onClick=${() => run("POST", `snapshots/${each}/restore`)}>restore snapshot ${each}</button>`)}
      <button onClick=${() => run("POST", "restart")}>restart</button><button class="danger" onClick=${() => run("POST", "kill")}>kill</button><button class="danger" onClick=${() => { if (confirm("Remove all topics, groups and faults?")) run("POST", "reset"); }}>reset</button></div></section>
  </div>`;
}

// A fault as in the test kit: what it matches, and what it does.
function NewFault({ add }) {
  const [words, setWords] = useState({});
  const [act, setAct] = useState("error");
  useEffect(() => { get("frames/grammar").then((found) => setWords(found.words)); }, []);
  const submitted = (event) => {
    event.preventDefault();
    const given = [...new FormData(event.target)].filter(([, value]) => value !== "");
    const numbers = new Set(["node", "partition", "times", "nth"]);
    add(Object.fromEntries(given.map(([name, value]) => [name, numbers.has(name) ? Number(value) : value])));
  };
  const field = (name, size, placeholder) => html`<label class="soft" title=${words[name]}>${name} <input name=${name} size=${size} placeholder=${placeholder}/></label>`;
  const choices = { close: ["before", "after"], answer: ["half", "silence", "wrong-correlation-id"], corrupt: ["crc", "length", "codec", "truncated", "offsets"] }[act];
  return html`<form class="verbs" onSubmit=${submitted}>${field("api", 12, "Produce")}${field("topic", 10, "any")}${field("group", 10, "any")}${field("client_id", 10, "any")}${field("node", 3, "any")}
    <label class="soft">it <select value=${act} onChange=${(event) => setAct(event.target.value)}>${Object.entries(ACTS).map(([name, text]) => html`<option value=${name}>${text}</option>`)}</select></label>
    ${choices ? html`<select name=${act} aria-label=${act}>${choices.map((each) => html`<option>${each}</option>`)}</select>` : html`<input name=${act} key=${act} aria-label=${act} required size="26" placeholder=${act === "error" ? "NOT_LEADER_OR_FOLLOWER" : "500 ms"}/>`}
    ${field("times", 3, "always")}<button class="main">add</button></form>`;
}
