// One frame: what was asked and answered, byte by byte, what it changed, and copies of it.

import { html, useEffect, useState } from "../core/lib.js";
import { frameOf } from "../core/frames.js";
import { address } from "../core/places.js";
import { get } from "../core/server.js";
import { bytes, clock, family, span } from "../core/text.js";
import { Bytes } from "./bytes.js";

export function Frame({ number, views, side, part, show, close, copyLink }) {
  const [frame, setFrame] = useState(null);
  const [failed, setFailed] = useState("");
  const known = frameOf(number);
  const outcome = known && known.outcome;
  useEffect(() => {
    let isGone = false;
    get(`frames/${number}`).then((found) => { if (!isGone) setFrame(found); }, (error) => { if (!isGone) setFailed(error.message); });
    return () => { isGone = true; };
  }, [number, outcome]);
  if (failed) return html`<section class="detail"><div class="head"><span class="bad">${failed}</span><span class="grow"></span><${Close} close=${close}/></div></section>`;
  if (!frame) return html`<section class="detail" aria-busy="true"></section>`;
  const [, api, version, client, node, connection, started, took, ended, errors, faults, asked, answered, , , , software, user, mechanism] = frame.row;
  const tree = side === "answer" ? frame.answer : frame.request;
  return html`<section class="detail" aria-label=${`Frame ${number}`}>
    <div class="head"><h2><span class="soft">#${number}</span> <i class=${`api ${family(api)}`}>${api}</i> version ${version}</h2>
      <span class="soft origin">${client ?? "no client id"}${software ? ` (${software})` : ""}${user ? `, user ${user}${mechanism ? ` by ${mechanism}` : ""}` : ""}, ${connection}, to node ${node} at <span class="mono">${clock(started)}</span></span>
      ${views.includes("try") && html`<a href=${address("try", ["frame", String(number)])}>open in Try it</a>`}<${Copies} copies=${frame.copies} link=${copyLink}/><${Close} close=${close}/></div>
    ${(faults.length > 0 || errors.length > 0 || frame.effects.length > 0) && html`<div class="effects">
      ${faults.map((text) => html`<span class="tagged fault">${text}</span>`)}
      ${errors.map((text) => html`<span class="tagged bad">${text}</span>`)}
      ${frame.refusals.map((text) => html`<span class="bad">${text}</span>`)}
      ${frame.effects.map((effect) => html`<span class="effect">${views.includes(effect.place.split("/")[1]) ? html`<a href=${`#${effect.place}`}>${effect.text}</a>` : effect.text}</span>`)}</div>`}
    <div class="tabs" role="tablist" aria-label="Direction">
      <button role="tab" aria-selected=${side === "request"} onClick=${() => show("request")}>Request <span class="soft">${bytes(asked)}</span></button>
      <button role="tab" aria-selected=${side === "answer"} disabled=${!frame.answer} onClick=${() => show("answer")}>
        Answer <span class="soft">${frame.answer ? `${bytes(answered)} after ${span(took)}` : ended}</span></button>
    </div>
    ${tree ? html`<${Bytes} key=${side} tree=${tree} name=${side} selected=${part} select=${(at) => show(side, at)}/>` : html`<p class="empty">There is no answer yet: ${ended}.</p>`}
  </section>`;
}

const Close = ({ close }) => html`<button class="plain" onClick=${close} aria-label="Close the frame" title="Esc">✕</button>`;

function Copies({ copies, link }) {
  const [copied, setCopied] = useState("");
  const copy = async (name, text) => {
    await (text === null ? link() : navigator.clipboard.writeText(text));
    setCopied(name);
    setTimeout(() => setCopied(""), 1500);
  };
  return html`<span class="copies" role="group" aria-label="Copy as"><span class="soft">copy</span>
    ${[...Object.entries(copies), ["link", null]].map(([name, text]) => html`<button onClick=${() => copy(name, text)}>${copied === name ? "✓" : name}</button>`)}
    <span role="status" class="hidden">${copied && `copied as ${copied}`}</span></span>`;
}
