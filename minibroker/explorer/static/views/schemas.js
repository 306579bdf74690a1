// Schemas: the subjects of the registry, their versions with what they refer to, and the text of each.

import { html, useEffect, useState } from "../core/lib.js";
import { useLive } from "../core/live.js";
import { address, go } from "../core/places.js";
import { bytes, counted, moment } from "../core/text.js";
import { visible } from "../components/contents.js";
import { Empty } from "../components/empty.js";
import { Rows } from "../components/rows.js";

export const id = "schemas";
export const title = "Schemas";
export const icon = "≔";

const ROW_PX = 44;
const VERSION_PX = 26;
const LIST_MS = 3000;

const command = (about) => `curl -d '{"schema": "\\"string\\""}' -H 'Content-Type: application/json' ${about.registry_url}/subjects/orders-value/versions`;

const subjectAt = (subject, version) => address("schemas", [subject, ...(version === undefined ? [] : [String(version)])]);

export function View({ names, query, about }) {
  const [listed, error] = useLive("schemas", {}, LIST_MS);
  const [wanted, setWanted] = useState("");
  const [named, unknown] = useLive(query.schema ? "schemas/named" : "", { schema: query.schema, subject: query.subject }, 0);
  useEffect(() => { if (named) go("schemas", [named.subject, String(named.version)], {}, { replace: true }); }, [named]);
  if (error && !listed) return html`<p class="notice bad">${error}</p>`;
  if (!listed) return html`<div aria-busy="true"></div>`;
  const shown = listed.subjects.filter((subject) => subject.name.toLowerCase().includes(wanted.toLowerCase()));
  const selected = shown.findIndex((subject) => subject.name === names[0]);
  return html`<div class="sides">
    <aside><div class="toolbar"><label class="filter"><span class="icon" aria-hidden="true">⌕</span><input aria-label="Find a subject" value=${wanted} onInput=${(event) => setWanted(event.target.value)} placeholder=${counted(listed.subjects.length, "subject")}/></label></div>
      <${Rows} id="subjects" label="Subjects" count=${shown.length} height=${ROW_PX} selected=${selected} select=${(at) => go("schemas", [shown[at].name], {}, { replace: true })}
        row=${(at) => html`<${Summary} subject=${shown[at]}/>`}/>
      ${!shown.length && html`<p class="empty">${listed.subjects.length ? "No subject has such a name." : "No schema is registered yet."}</p>`}
      <p class="toolbar bottom soft">${listed.more ? `${counted(listed.more, "more subject")}; ` : ""}by default ${listed.level}, ${listed.mode}</p></aside>
    ${names.length ? html`<${Subject} key=${names[0]} name=${names[0]} version=${names[1]}/>` : unknown || listed.subjects.length ? html`<p class=${`empty ${unknown ? "bad" : ""}`}>${unknown || "Choose a subject."}</p>` : html`<${Empty} text="No schema is registered yet." way="This registers one:" lab="Register one in Lab." command=${command(about)}/>`}
  </div>`;
}

const Summary = ({ subject }) => html`<div class="two"><span class="name">${visible(subject.name)}</span>${subject.latest === null ? html`<i class="tagged bad">deleted</i>` : ""}
  <br/><span class="soft">${subject.kind}, ${counted(subject.count, "version")}, ${subject.level}</span></div>`;

function Subject({ name, version }) {
  const [subject, error] = useLive("schemas/subject", { name }, LIST_MS);
  if (error && !subject) return html`<section><p class="notice bad">${error}</p></section>`;
  if (!subject) return html`<section aria-busy="true"></section>`;
  const { versions } = subject;
  const found = version === undefined ? versions.findIndex((each) => !each.deleted) : versions.findIndex((each) => String(each.version) === version);
  const selected = version === undefined ? Math.max(found, 0) : found;
  return html`<section class="stack subject"><div class="head"><h2>${visible(name)}</h2>
      <span class="tagged" title=${subject.has_own_level ? "set for this subject" : "by default"}>${subject.level}</span><span class="tagged">${subject.mode}</span>
      ${Object.entries(subject.config).map(([key, value]) => html`<span class="soft">${key} <b>${typeof value === "string" ? visible(value) : JSON.stringify(value)}</b></span>`)}
      <span class="grow"></span>${subject.topic !== null && html`<a href=${address("topics", [subject.topic, "0"])}>records of ${subject.topic}</a>`}</div>
    <div class="versions"><div class="columns" aria-hidden="true"><span>version</span><span>id</span><span>type</span><span>registered</span><span>refers to</span><span>referred by</span><span>GUID</span><span>bytes</span></div>
      <${Rows} id="versions" label="Versions" count=${versions.length} height=${VERSION_PX} selected=${selected} select=${(at) => go("schemas", [name, String(versions[at].version)], {}, { replace: true })}
        row=${(at) => html`<${Version} version=${versions[at]}/>`}/></div>
    ${selected >= 0 ? html`<${Schema} key=${versions[selected].version} subject=${name} version=${versions[selected].version}/>` : html`<p class="empty bad">There is no version ${version} of this subject.</p>`}
  </section>`;
}

const Version = ({ version }) => html`<span class="num">${version.version}</span><span class="num">${version.id}</span><span>${version.kind}${version.deleted ? html` <i class="tagged bad">deleted</i>` : ""}</span>
  <span class="mono soft">${moment(version.timestamp_ms)}</span><span class="num">${version.refers_to || ""}</span><span class="num">${version.referred_by || ""}</span><span class="mono soft">${version.guid}</span><span class="num soft">${bytes(version.size)}</span>`;

function Schema({ subject, version }) {
  const [found, error] = useLive("schemas/version", { subject, version }, 0);
  if (error) return html`<p class="empty bad">${error}</p>`;
  if (!found) return html`<div aria-busy="true"></div>`;
  const link = (to, number, text) => html`<a href=${subjectAt(to, number)}>${text ? `${visible(text)}: ` : ""}${visible(to)} version ${number}</a>`;
  const json = (value) => visible(JSON.stringify(value, null, 2));
  return html`<div class="scroll parts" tabindex="0" role="region" aria-label="Schema">
    <h3>${found.kind} schema ${found.id}, <span class="mono">${found.guid}</span>, registered ${moment(found.timestamp_ms)}</h3><pre class="contents" tabindex="0">${visible(found.text)}</pre>
    ${found.references.length > 0 && html`<h3>refers to</h3><ul class="links">${found.references.map(([name, to, number]) => html`<li>${link(to, number, name)}</li>`)}</ul>`}
    ${found.referrers.length > 0 && html`<h3>is referred to by</h3><ul class="links">${found.referrers.map(([to, number]) => html`<li>${link(to, number)}</li>`)}</ul>`}
    ${found.metadata && html`<h3>metadata</h3><pre class="contents" tabindex="0">${json(found.metadata)}</pre>`}
    ${found.rules && html`<h3>rules</h3><pre class="contents" tabindex="0">${json(found.rules)}</pre>`}</div>`;
}
