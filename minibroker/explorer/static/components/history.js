// What a group and a transactional id have in common: the mark of a state, verbs of the test kit, and what changed it.

import { html, useEffect, useState } from "../core/lib.js";
import { address } from "../core/places.js";
import { control, get } from "../core/server.js";
import { clock, family, moment, span } from "../core/text.js";

const STATES = { Stable: "good", Empty: "", Dead: "bad", Ongoing: "fault", PrepareCommit: "fault", PrepareAbort: "fault", CompleteCommit: "good", CompleteAbort: "bad" };
export const State = ({ state }) => html`<i class=${`tagged ${STATES[state] ?? "fault"}`}>${state}</i>`;

export function useVerb() {
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

// The frames that changed it, and the timeouts that did, the newest first. Only new frames are asked for.
export function History({ parameters, timeouts = [] }) {
  const [moments, setMoments] = useState([]);
  useEffect(() => {
    let timer = null;
    let isGone = false;
    let known = [];
    let after = 0;
    const key = (each) => JSON.stringify([each.api, each.client_id]);
    const isRepeated = (each) => each.api === "OffsetCommit" && JSON.stringify(known.find((one) => key(one) === key(each))?.effects) === JSON.stringify(each.effects);
    const ask = async () => {
      const { moments: found, seen } = await get("history", { ...parameters, after }).catch(() => ({ moments: [], seen: after }));
      if (isGone) return;
      after = seen;
      known = [...found.filter((each) => !isRepeated(each)), ...known].slice(0, 200);
      setMoments(known);
      timer = setTimeout(ask, 1000);
    };
    ask();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, []);
  const all = [...moments, ...timeouts].sort((one, other) => other.at_ms - one.at_ms);
  if (!all.length) return null;
  return html`<h3>what changed it</h3><ol class="history">${all.map((each) => (each.timeout_ms ? html`<li key=${`at ${each.at_ms}`}><span class="mono soft" title=${moment(each.at_ms)}>${clock(each.at_ms)}</span> <span class="soft">no request</span> <span class="soft">coordinator</span> <span>aborted the transaction, as it was open for longer than its timeout of ${span(each.timeout_ms)}</span></li>` : html`<li key=${each.number}><span class="mono soft" title=${moment(each.at_ms)}>${clock(each.at_ms)}</span> <a href=${address("frames", [String(each.number)])}>#${each.number} <i class=${`api ${family(each.api)}`}>${each.api}</i></a> <span class="soft">${each.client_id ?? ""}</span>
    <span>${each.effects.join("; ")}${each.errors.map((error) => html` <i class="tagged bad">${error}</i>`)}</span></li>`))}</ol>`;
}
