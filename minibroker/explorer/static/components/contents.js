// Keys and values of records: as text, JSON or hex. They may be anything, and are only ever shown as text.

import { html } from "../core/lib.js";
import { bytes } from "../core/text.js";

const UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const PREVIEW = 300;
const SHOWN = 100_000; // characters: what is larger takes the browser long to lay out

// Unprintable characters, and those that turn the direction of writing, become visible.
export const visible = (text) => text.replace(UNPRINTABLE, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function preview(content) {
  if (content === null) return html`<span class="null">null</span>`;
  if (content.size === 0) return html`<span class="null">empty</span>`;
  if (content.decoded !== undefined) return html`<span class="mono">${visible(content.decoded).slice(0, PREVIEW * 2).replace(/\s+/g, " ").slice(0, PREVIEW)}</span>`;
  const text = content.text === undefined ? `0x${content.hex}` : visible(content.text);
  return html`<span class=${content.text === undefined ? "mono soft" : "mono"}>${text.slice(0, PREVIEW).replace(/[\n\t]/g, " ")}</span>`;
}

const HEX_DIGITS = 65_536;

function hexLines(digits) {
  const lines = [];
  for (let at = 0; at < Math.min(digits.length, HEX_DIGITS); at += 32) {
    const line = digits.slice(at, at + 32);
    const text = line.match(/../g).map((byte) => parseInt(byte, 16)).map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${line.match(/../g).join(" ").padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

export const FORMS = ["decoded", "JSON", "text", "hex", "bytes"]; // the most telling first; those of a record's batch are last

export function formsOf(content) {
  if (content === null) return [];
  return [...(content.decoded !== undefined ? ["decoded"] : []), ...(content.json ? ["JSON"] : []), ...(content.text !== undefined ? ["text"] : []), "hex"];
}

// With `save`, what is not shown whole can be saved.
export function Contents({ content, form, save }) {
  if (content === null) return html`<p class="null">null</p>`;
  const forms = formsOf(content);
  const shown = forms.includes(form) ? form : forms[0];
  const whole = { decoded: content.decoded, JSON: content.json, text: content.text }[shown];
  const text = whole === undefined ? hexLines(content.hex) : visible(whole.slice(0, SHOWN));
  const isCut = (whole ?? content.hex).length > (whole === undefined ? HEX_DIGITS : SHOWN) || content.hex.length < 2 * content.size;
  return html`${content.undecoded && html`<p class="soft">not decoded: ${content.undecoded}</p>`}
    ${isCut && html`<p class="soft cut">only the beginning of ${bytes(content.size)} ${save && html`<button onClick=${save}>save the whole</button>`}</p>`}<pre class="contents" tabindex="0">${text || " "}</pre>`;
}
