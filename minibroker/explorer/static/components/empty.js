// A view with nothing in it says so, and has the command that fills it; in the lab, where no commands are, another way.

import { html, useState } from "../core/lib.js";

export function Empty({ text, way, command, lab }) {
  const [copied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(command).then(() => setCopied(true));
  if (globalThis.lab) return html`<div class="empty"><p>${text} ${lab}</p></div>`;
  return html`<div class="empty"><p>${text} ${way}</p><p><code>${command}</code> <button onClick=${copy}>${copied ? "copied" : "copy"}</button></p></div>`;
}
