// Groups and transactions: their state machines, members, lag, and the frames that changed them.

import { html, useEffect, useState } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address, go } from "../core/places.js";
import { control, get } from "../core/server.js";
import { clock, counted, family, moment, span } from "../core/text.js";
import { Batches } from "../components/batches.js";
import { Course, Machine } from "../components/machine.js";
import { Rows } from "../components/rows.js";

export const id = "groups";
export const title = "Groups";
export const icon = "⁂";

const ROW_PX = 44;
const STATES = { Stable: "good", Empty: "", Dead: "bad", Ongoing: "fault", PrepareCommit: "fault", PrepareAbort: "fault", CompleteCommit: "good", CompleteAbort: "bad" };
const State = ({ state }) => html`<i class=${`tagged ${STATES[state] ?? "fault"}`}>${state}</i>`;

export function View({ names }) {
  const [listed, error] = useLive("groups");
  const [machines] = useLive("machines", {}, 0);
  if (error && !listed) return html`<p class="notice bad">${error}</p>`;
  if (!listed || !machines) return html`<div aria-busy="true"></div>`;
  const isTransaction = names[0] === "transactions" && names.length > 1;
  const all = [...listed.groups.map((group) => ({ ...group, place: [group.id] })), ...listed.transactions.map((each) => ({ ...each, type: "transaction", place: ["transactions", each.id] }))];
  const selected = all.findIndex((each) => each.place.join("\n") === names.slice(0, isTransaction ? 2 : 1).join("\n"));
  return html`<div class="sides">
    <aside><div class="toolbar soft">${counted(listed.groups.length, "group")}, ${counted(listed.transactions.length, "transactional id")}</div>
      <${Rows} id="groups" label="Groups and transactions" count=${all.length} height=${ROW_PX} selected=${selected} select=${(at) => go("groups", all[at].place, {}, { replace: true })}
        row=${(at) => html`<div class="two"><span class="name">${all[at].id}</span><${State} state=${all[at].state}/><br/><span class="soft">${all[at].type}${all[at].count === undefined ? `, ${counted(all[at].partitions, "partition")}` : `, ${counted(all[at].count, "member")}`}</span></div>`}/>
      ${!all.length && html`<p class="empty">There is no group and no transaction yet.</p>`}</aside>
    ${isTransaction ? html`<${Transaction} key=${names[1]} id=${names[1]} machine=${machines.transaction}/>`
    : names.length ? html`<${Group} key=${names[0]} id=${names[0]} machines=${machines}/>` : html`<p class="empty">Choose a group or a transactional id.</p>`}
  </div>`;
}

function useVerb() {
  const [said, setSaid] = useState("");
  const run = async (path, body) => {
    try {
      await control("POST", path, body);
      setSaid("");
    } catch (error) {
      setSaid(error.message);
    }
  };
  return [said, run];
}

function Group({ id: group, machines }) {
  const path = encodeURIComponent(group);
  const [found, error] = useLive(`groups/${path}`);
  const [said, run] = useVerb();
  if (error && !found) return html`<section><p class="notice bad">${error}</p></section>`;
  if (!found) return html`<section aria-busy="true"></section>`;
  const type = found.type[0].toUpperCase() + found.type.slice(1).toLowerCase();
  const lag = found.lag.reduce((sum, each) => sum + Math.max(each.lag || 0, 0), 0);
  const facts = [["type", found.type], ["protocol", found.protocol], ["generation", found.generation], ["epoch", found.epoch], ["assignment epoch", found.assignment_epoch], ["coordinator", found.coordinator === null ? "none" : `node ${found.coordinator}`]].filter(([, value]) => value !== undefined && value !== "");
  return html`<section class="scroll page" tabindex="0" role="region" aria-label="Group">
    <div class="head flush"><h2>${found.id}</h2>${facts.map(([name, value]) => html`<span class="soft">${name} <b>${value}</b></span>`)}<span class="grow"></span>
      <a href=${address("frames", [], { filter: `group=${group}` })}>its frames</a><button onClick=${() => run(`groups/${path}/force-rebalance`)}>rebalance</button><button class="danger" onClick=${() => run(`groups/${path}/evict`, {})}>evict all</button></div>
    ${said && html`<p class="bad" role="status">${said}</p>`}
    <${Machine} arrows=${machines[type] || machines.Classic} state=${found.state} name=${type}/>
    <h3>${counted(found.members.length, "member")}</h3>${found.problem && html`<p class="bad">${found.problem}</p>`}
    ${found.members.length > 0 && html`<table><thead><tr><th>client</th><th>member</th><th>host</th><th>epoch</th><th class="wide">assigned</th><th>target</th><th></th></tr></thead><tbody>${found.members.map((each) => html`<tr><td><b>${each.client_id}</b>${each.instance ? html`<br/><span class="soft">static ${each.instance}</span>` : ""}</td><td class="mono">${each.id}</td><td class="mono">${each.host}</td><td>${each.epoch ?? ""}</td>
      <td>${each.assigned.map((one) => html`<i class="tagged">${one}</i>`)}</td><td>${each.target.filter((one) => !each.assigned.includes(one)).map((one) => html`<i class="tagged fault">${one}</i>`)}</td><td><button onClick=${() => run(`groups/${path}/evict`, { member: each.id })}>evict</button></td></tr>`)}</tbody></table>`}
    ${found.lag.length > 0 && html`<h3>committed offsets</h3><${Course} name=${group} value=${lag} label=${`${lag === 1 ? "record" : "records"} behind`}/>
      <table><thead><tr><th>partition</th><th>committed</th><th>end</th><th>lag</th></tr></thead><tbody>${found.lag.map((each) => html`<tr><td><a href=${address("topics", [each.topic, String(each.partition), String(each.offset)])}>${each.topic}-${each.partition}</a></td><td>${each.offset}</td><td>${each.end}</td><td class=${each.lag > 0 ? "bad" : ""}>${each.lag}</td></tr>`)}</tbody></table>`}
    <${History} parameters=${{ group }}/>
  </section>`;
}

function Transaction({ id: name, machine }) {
  const path = encodeURIComponent(name);
  const [found, error] = useLive(`transactions/${path}`);
  const [said, run] = useVerb();
  if (error && !found) return html`<section><p class="notice bad">${error}</p></section>`;
  if (!found) return html`<section aria-busy="true"></section>`;
  const facts = [["producer id", found.producer_id], ["epoch", found.producer_epoch], ["timeout", span(found.timeout_ms)], ["began", found.start_ms > 0 ? clock(found.start_ms) : "—"], ["coordinator", found.coordinator === null ? "none" : `node ${found.coordinator}`]];
  return html`<section class="scroll page" tabindex="0" role="region" aria-label="Transaction">
    <div class="head flush"><h2>${name}</h2>${facts.map(([each, value]) => html`<span class="soft">${each} <b>${value}</b></span>`)}<span class="grow"></span>
      <a href=${address("frames", [], { filter: `transactional_id=${name}` })}>its frames</a>${["hold", "release"].map((verb) => html`<button onClick=${() => run(`transactions/${path}/${verb}`, verb === "hold" ? {} : undefined)}>${verb}</button>`)}<button class="danger" onClick=${() => run(`transactions/${path}/fence`)}>fence</button></div>
    ${said && html`<p class="bad" role="status">${said}</p>`}
    <${Machine} arrows=${machine} state=${found.state} name="transaction"/>
    <h3>${counted(found.partitions.length, "partition")} in the transaction</h3>
    ${found.partitions.length > 0 && html`<table><thead><tr><th>partition</th><th>open since offset</th><th class="wide">its producer's last five batches: sequences and offsets</th></tr></thead><tbody>${found.partitions.map((each) => html`<tr><td><a href=${address("topics", [each.topic, String(each.partition)])}>${each.topic}-${each.partition}</a></td><td>${each.first_offset >= 0 ? each.first_offset : "marker is written"}</td>
      <td><${Batches} batches=${each.batches}/></td></tr>`)}</tbody></table>`}
    <${History} parameters=${{ transactional_id: name }}/>
  </section>`;
}

// What changed it, the newest first. Only what is new is asked for.
function History({ parameters }) {
  const [moments, setMoments] = useState([]);
  useEffect(() => {
    let timer = null;
    let isGone = false;
    let known = [];
    const ask = async () => {
      const found = await get("history", { ...parameters, after: known.length ? known[0].number : 0 }).catch(() => []);
      if (isGone) return;
      known = [...found, ...known].slice(0, 200);
      setMoments(known);
      timer = setTimeout(ask, 1000);
    };
    ask();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, []);
  if (!moments.length) return null;
  return html`<h3>what changed it</h3><ol class="history">${moments.map((each) => html`<li key=${each.number}><span class="mono soft" title=${moment(each.at_ms)}>${clock(each.at_ms)}</span> <a href=${address("frames", [String(each.number)])}>#${each.number} <i class=${`api ${family(each.api)}`}>${each.api}</i></a> <span class="soft">${each.client_id ?? ""}</span>
    <span>${each.effects.join("; ")}${each.errors.map((error) => html` <i class="tagged bad">${error}</i>`)}</span></li>`)}</ol>`;
}
