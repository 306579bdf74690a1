// A view with nothing in it says so, and has the command that fills it.

import { html, useState } from "../core/lib.js";

export function Empty({ text, command }) {
  const [copied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(command).then(() => setCopied(true));
  return html`<div class="empty"><p>${text}</p><p><code>${command}</code> <button onClick=${copy}>${copied ? "copied" : "copy"}</button></p></div>`;
}
