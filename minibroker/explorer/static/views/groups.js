// Groups: their state machines, members, lag, and the frames that changed them.

import { html } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address, go } from "../core/places.js";
import { counted } from "../core/text.js";
import { Empty } from "../components/empty.js";
import { History, State, useVerb } from "../components/history.js";
import { Course, Machine } from "../components/machine.js";
import { Rows } from "../components/rows.js";

export const id = "groups";
export const title = "Groups";
export const icon = "⁂";

const ROW_PX = 44;

export function View({ names, about }) {
  const [listed, error] = useLive("groups");
  const [machines] = useLive("machines", {}, 0);
  if (error && !listed) return html`<p class="notice bad">${error}</p>`;
  if (!listed || !machines) return html`<div aria-busy="true"></div>`;
  const all = listed.groups;
  return html`<div class="sides">
    <aside><div class="toolbar soft">${counted(all.length, "group")}</div>
      <${Rows} id="groups" label="Groups" count=${all.length} height=${ROW_PX} selected=${all.findIndex((each) => each.id === names[0])} select=${(at) => go("groups", [all[at].id], {}, { replace: true })}
        row=${(at) => html`<div class="two"><span class="name">${all[at].id}</span><${State} state=${all[at].state}/><br/><span class="soft">${all[at].type}, ${counted(all[at].count, "member")}</span></div>`}/></aside>
    ${names.length ? html`<${Group} key=${names[0]} id=${names[0]} machines=${machines}/>`
    : all.length ? html`<p class="empty">Choose a group.</p>` : html`<${Empty} text="There is no group yet." way="This begins one:" lab="Start a consumer in Lab." command=${`kcat -b ${about.bootstrap_servers} -G my-group orders`}/>`}
  </div>`;
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
      <table><thead><tr><th>partition</th><th>committed</th><th>end</th><th>lag</th></tr></thead><tbody>${found.lag.map((each) => html`<tr><td><a href=${address("topics", [each.topic, String(each.partition), ...(each.offset === null ? [] : [String(each.offset)])])}>${each.topic}-${each.partition}</a></td><td>${each.offset ?? "none"}</td><td>${each.end}</td><td class=${each.lag > 0 ? "bad" : ""}>${each.lag ?? "not known"}</td></tr>`)}</tbody></table>`}
    <${History} parameters=${{ group }}/>
  </section>`;
}
