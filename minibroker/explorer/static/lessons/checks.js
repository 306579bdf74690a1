// The steps of lessons. A step is done once its check sees in the broker what the reader did; nothing is taken on trust.
// A check returns { done: a sentence on what happened } or { hint: what differs from what the step wants }.

import { frames } from "../core/frames.js";
import { get } from "../core/server.js";

const CLIENTS = ["explorer", "hand"]; // those of the page's own requests
const LOOKED_AT = 60; // of the reader's newest requests
const KEPT = 200;
const read = new Map();

// The reader's answered requests behind the frame `since`, the newest first.
export function ownFrames(since) {
  const found = [];
  for (let at = frames.all.length - 1; at >= 0 && found.length < LOOKED_AT && frames.all[at].number > since; at -= 1) {
    const row = frames.all[at];
    if (CLIENTS.includes(row.client_id) && row.outcome !== "open") found.push(row);
  }
  return found;
}

const plain = (row) => (row.value === undefined ? row.meaning ?? "" : row.value.replace(/^"(.*)"$/s, "$1"));

// All values of the fields of a tree, by name; those of an array's items by the array's name.
function valuesOf(tree) {
  const found = {};
  const names = [];
  for (const row of tree?.rows ?? []) {
    names[row.depth] = /^\[\d+\]$/.test(row.name) ? names[row.depth - 1] : row.name;
    (found[names[row.depth]] ||= []).push(plain(row));
  }
  return found;
}

// A frame with the values of its fields: { row, request, answer, effects, rows }.
export async function frameOf(row) {
  if (!read.has(row.number)) {
    const found = await get(`frames/${row.number}`);
    if (read.size > KEPT) read.clear();
    read.set(row.number, { row, request: valuesOf(found.request), answer: valuesOf(found.answer), effects: found.effects.map((each) => each.text), rows: found.request.rows });
  }
  return read.get(row.number);
}

// The newest answer without an error to an API, or undefined.
export async function lastAnswer(api, test = () => true) {
  const row = ownFrames(0).find((each) => each.api === api && !each.errors.length && test(each));
  return row && frameOf(row);
}

const either = (values) => (Array.isArray(values) ? values : [values]);
const wantedVersions = (versions) => either(versions).join(" or ");

// What a field has; of an array its first item.
const shown = (given) => given.find((each) => each && !/^\d+ items?$/.test(each)) ?? "empty";

// What differs between a request and what a step wants of it, as sentences; none if nothing does.
function differences(step, frame, wants) {
  const said = [];
  const { row, request } = frame;
  if (step.version !== undefined && !either(step.version).includes(row.version)) said.push(`You sent version ${row.version}; the lesson's is ${wantedVersions(step.version)}.`);
  for (const [name, value] of Object.entries(wants)) {
    const given = request[name];
    if (!given) said.push(`Your request has no ${name}; the lesson's is ${value}.`);
    else if (!given.includes(String(value))) said.push(`${name} is ${shown(given)}; the lesson's is ${value}.`);
  }
  if (step.error && !row.errors.includes(step.error)) said.push(row.errors.length ? refusal(frame) : `The broker took it; the lesson wants ${step.error}.`);
  if (!step.error && row.errors.some((each) => !either(step.allows ?? []).includes(each))) said.push(refusal(frame));
  if (!said.length && step.also) {
    const missing = step.also(frame);
    if (missing) said.push(missing);
  }
  return said;
}

const REASONS = {
  COORDINATOR_NOT_AVAILABLE: "the topic of groups or transactions does not exist yet: FindCoordinator creates it",
  CORRUPT_MESSAGE: "the checksum is wrong: point at crc, and the page says which one is right",
  FENCED_INSTANCE_ID: "another member has this identity",
  ILLEGAL_GENERATION: "the group has another generation by now",
  INVALID_PRODUCER_EPOCH: "this producer has a newer epoch by now: begin again with InitProducerId",
  INVALID_TXN_STATE: "the transaction has not begun, or is over: begin with AddPartitionsToTxn",
  MEMBER_ID_REQUIRED: "join again with the member_id of the answer",
  NOT_COORDINATOR: "another node coordinates it: at \"to node\", choose the one that it is for",
  NOT_LEADER_OR_FOLLOWER: "another node leads the partition: at \"to node\", choose the one that it is for",
  OUT_OF_ORDER_SEQUENCE_NUMBER: "it is not the next sequence of this producer",
  PRODUCER_FENCED: "this producer has a newer epoch by now: begin again with InitProducerId",
  REBALANCE_IN_PROGRESS: "the group is about to be assigned anew: join again",
  TOPIC_ALREADY_EXISTS: "there is such a topic already",
  UNKNOWN_MEMBER_ID: "the group does not know this member: its session may be over, so join again",
  UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic",
};

const refusal = ({ row }) => row.errors.map((each) => `The broker answered ${each}${REASONS[each] ? `: ${REASONS[each]}` : ""}.`).join(" ");

// A request that the reader sends. `wants` are fields of the request with their values, or a function that finds them out.
// `error` must be in the answer, those of `allows` may be; `also` says what else is missing; `then` what has happened.
export const send = (say, api, { version, wants = {}, error, allows, also, then, after, open } = {}) => {
  const step = { say, api, version, error, allows, also, after, isSent: true, place: open ?? `#/try/${api}${version === undefined ? "" : `/${either(version)[0]}`}` };
  step.wants = async () => (typeof wants === "function" ? wants() : wants);
  step.check = async (since) => {
    const asked = await step.wants();
    let nearest = null;
    let first = null; // so that a step that wants the same once more has a later one
    for (const row of ownFrames(since).filter((each) => each.api === api)) {
      const frame = await frameOf(row);
      const said = differences(step, frame, asked);
      if (!said.length) first = frame;
      else nearest ??= { hint: said.join(" "), number: row.number, missing: said.length };
    }
    if (!first) return nearest ?? {};
    return { done: (await then?.(first)) || `${first.effects.join("; ") || "The broker answered without an error"}.`, number: first.row.number };
  };
  return step;
};

// Something that is to be seen in the broker. `check` returns what happened as { done }, or { hint }.
export const see = (say, place, check, { after } = {}) => ({ say, place, after, check });

// A question. `find` returns the right answer, or all right ones; `differs` says of a wrong one what it is instead.
export const ask = (say, find, differs, { after } = {}) => ({ say, after, asks: true, check: async (given) => {
  const found = either(await find());
  const right = found.filter((each) => each !== undefined).map(String);
  if (!right.length) return { hint: "There is nothing to answer yet: first do what comes before the question." };
  if (right.some((each) => each.toLowerCase() === given.trim().toLowerCase())) return { done: `${given.trim()} is right.` };
  return { hint: `${given.trim() || "Nothing"} is not it. ${typeof differs === "function" ? differs(given.trim(), found) : differs}` };
} });

// --- what steps look at ---

// A request for what is not there would be an error in the browser's log, so lists are asked first.
export const topicNames = async () => (await get("topics")).topics.map((each) => each.name);
export const topic = async (name) => ((await topicNames()).includes(name) ? get(`topics/${name}`) : null);
export const recordsOf = async (name, text = "") => ((await topic(name)) ? (await get(`topics/${name}/0/records`, { text })).records : []);
export const group = async (name) => ((await get("groups")).groups.some((each) => each.id === name) ? get(`groups/${name}`) : null);

// The oldest segment of a topic's only partition, and how many there are.
export async function segmentOf(name) {
  const { files } = await get("files");
  const logs = files.filter((each) => each.folder === `${name}-0` && each.name.endsWith(".log"));
  const found = logs.length ? await get("files/segment", { path: `${name}-0/${logs[0].name}` }) : { batches: [], index: [], timeindex: [] };
  return { logs: logs.length, ...found };
}
