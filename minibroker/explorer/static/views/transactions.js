// Transactions: their state machine, partitions, producers, and what changed them.

import { html } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address, go } from "../core/places.js";
import { clock, counted, span } from "../core/text.js";
import { Batches } from "../components/batches.js";
import { Empty } from "../components/empty.js";
import { History, State, useVerb } from "../components/history.js";
import { Machine } from "../components/machine.js";
import { Rows } from "../components/rows.js";

export const id = "transactions";
export const title = "Transactions";
export const icon = "⇄";

const ROW_PX = 44;

export function View({ names, about }) {
  const [all, error] = useLive("transactions");
  const [machines] = useLive("machines", {}, 0);
  if (error && !all) return html`<p class="notice bad">${error}</p>`;
  if (!all || !machines) return html`<div aria-busy="true"></div>`;
  return html`<div class="sides">
    <aside><div class="toolbar soft">${counted(all.length, "transactional id")}</div>
      <${Rows} id="transactions" label="Transactional ids" count=${all.length} height=${ROW_PX} selected=${all.findIndex((each) => each.id === names[0])} select=${(at) => go("transactions", [all[at].id], {}, { replace: true })}
        row=${(at) => html`<div class="two"><span class="name">${all[at].id}</span><${State} state=${all[at].state}/><br/><span class="soft">${counted(all[at].partitions, "partition")}</span></div>`}/></aside>
    ${names.length ? html`<${Transaction} key=${names[0]} id=${names[0]} machine=${machines.transaction}/>`
    : all.length ? html`<p class="empty">Choose a transactional id.</p>` : html`<${Empty} text="There is no transaction yet." way="This makes one:" lab="Start a transactional producer in Lab." command=${`echo paid | kcat -b ${about.bootstrap_servers} -P -t orders -X transactional.id=billing`}/>`}
  </div>`;
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
    <${History} parameters=${{ transactional_id: name }} timeouts=${found.timeouts}/>
  </section>`;
}
