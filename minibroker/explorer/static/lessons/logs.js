// Lessons on logs: offsets, the indexes on disk, fetch sessions, compaction.

import { ask, frameOf, lastAnswer, ownFrames, recordsOf, see, segmentOf, send, topic } from "./checks.js";

const offsets = { name: "offsets", title: "Offsets and segments", topics: { lesson: {} }, text: [
  "A partition is a log: batches one after the other in files, its segments. The name of a file is the offset of its first record. The high watermark is where consumers may read up to.",
  "A client asks for offsets with ListOffsets: the timestamp -1 stands for the end, -2 for the beginning."],
  steps: [
    see("Produce until the topic lesson has at least three records.", "#/try/Produce/9", async () => { const found = await topic("lesson"); return found?.offsets >= 3 ? { done: `It ends at offset ${found.partitions[0].end}.` } : { hint: `It has ${found?.offsets ?? 0} of 3 records.` }; }),
    send("Ask for the end of lesson with ListOffsets and the timestamp -1.", "ListOffsets", { version: 9, wants: { name: "lesson", timestamp: -1 }, then: ({ answer }) => `The end is offset ${answer.offset[0]}: the next record gets it.` }),
    ask("Open the first .log file of lesson-0 among the files. At which byte does its second batch begin? Point at batch [1].", async () => (await segmentOf("lesson")).batches[1]?.position, "Choose batch [1] in the tree: the line below says at which byte it is.", { after: [0] })] };

const INDEXED = { "index.interval.bytes": "0", "segment.ms": "60000" };
const produced = (count) => async () => { const { batches } = await segmentOf("indexed"); return batches.length >= count ? { done: `The topic indexed has ${batches.length} batches.` } : { hint: `It has ${batches.length} of ${count} batches: each request makes one.` }; };
const ended = async () => { const { logs, index } = await segmentOf("indexed"); return logs > 1 && index.length ? { done: `The first segment has ended, and its indexes are on disk, with ${index.length} entries each.` } : { hint: "The first segment has not ended yet. It does once an hour has passed and a record comes." }; };

const index = { name: "index", title: "The index on disk", topics: { indexed: INDEXED }, text: [
  "To find an offset, a broker does not read a log from its beginning. Beside each .log is an .index: for some batches, an offset less the segment's first (4 bytes) and a position in the log (4 bytes). A search finds the last entry that is not behind the offset, and reads on from there.",
  "Kafka adds an entry each 4 KiB. The topic indexed has index.interval.bytes=0, which makes one for each batch but the first, and segment.ms=60000, so that a segment ends after a minute. This broker keeps the index of the segment that grows in memory, and writes it once that segment ends."],
  steps: [
    see("Produce four records to the topic indexed, each with a request of its own.", "#/try/Produce/9", produced(4)),
    see("Let an hour pass in Controls, and produce one more record: it begins a new segment.", "#/controls", ended, { after: [0] }),
    ask("Open …0.index of indexed-0 among the files. Which position does entry [1] have?", async () => (await segmentOf("indexed")).index[1]?.[1], "It is the position below entry [1].", { after: [1] }),
    ask("How many bytes does an entry take?", () => 8, "Point at an entry: the line below says its size.", { after: [1] })] };

const secondTime = async () => (await segmentOf("indexed")).timeindex[1]?.[0];
async function offsetBehind() {
  const found = await lastAnswer("ListOffsets", (row) => "indexed" in row.topics);
  return found?.request.timestamp?.[0] === String(await secondTime() + 1) ? found.answer.offset[0] : undefined;
}
const timeindex = { name: "timeindex", title: "The time index", topics: { indexed: INDEXED }, text: [
  "Since KIP-33, a segment has a .timeindex: for some batches, the largest timestamp so far (8 bytes), and the offset less the segment's first that has it (4 bytes). Before, a search by time could only compare the times at which files were changed.",
  "ListOffsets with a timestamp returns the first record that is not older. The same index says when a segment is old enough to be deleted."],
  steps: [
    see("Unless the lesson on the index has done it: produce four records to indexed, each with a request of its own, let an hour pass in Controls, and produce one more.", "#/try/Produce/9", ended),
    ask("Open …0.timeindex of indexed-0 among the files. How many bytes does an entry take?", () => 12, (given) => (given === "8" ? "That is an entry of the .index; a timestamp alone takes 8." : "Point at an entry: the line below says its size."), { after: [0] }),
    send("Ask with ListOffsets for the time of entry [1].", "ListOffsets", { version: 9, after: [0], wants: async () => ({ name: "indexed", timestamp: await secondTime() }), then: ({ answer }) => `Offset ${answer.offset[0]} is the first record that is not older.` }),
    ask("Now add 1 to that timestamp, and ask again. Which offset comes?", offsetBehind, "It is offset in the newest answer.", { after: [2] })] };

const sessionOf = async () => { const found = await lastAnswer("Fetch", (row) => row.version >= 7 && "lesson" in row.topics); return found?.answer.session_id?.[0]; };
const sessions = { name: "sessions", title: "Fetch sessions", topics: { lesson: {} }, text: [
  "A consumer of a thousand partitions would repeat them all with each Fetch. With a session (KIP-227) the broker remembers them: the first Fetch has epoch 0 and gets a session id, later ones count the epoch up and name only what changes. The epoch -1 asks for no session."],
  steps: [
    send("Send Fetch for lesson, with session_id 0 and session_epoch 0.", "Fetch", { version: 11, wants: { topic: "lesson", session_id: 0, session_epoch: 0 }, then: ({ answer }) => `The broker began session ${answer.session_id[0]}, and remembers your partition.` }),
    ask("Which session id did the broker give you? The answer has it.", sessionsGiven, "It is session_id in the answer to a Fetch with session_epoch 0.", { after: [0] }),
    send("Fetch in the session, with epoch 1, and without naming anything: remove the topic with ✕.", "Fetch", { version: 11, after: [0], wants: async () => ({ session_id: await sessionOf(), session_epoch: 1 }), also: ({ request }) => (request.topic ? `You named the topic ${request.topic[0]}; remove it with ✕.` : ""), then: ({ answer }) => (answer.topic ? `You named nothing, and yet got ${answer.topic[0]}: the broker knows what you want.` : "You named nothing, and the broker knows that nothing is new in your partitions.") })] };

async function sessionsGiven() {
  const frames = await Promise.all(ownFrames(0).filter((row) => row.api === "Fetch" && row.version >= 7).map(frameOf));
  return frames.map((each) => each.answer.session_id?.[0]).filter((each) => each && each !== "0");
}

const values = async (key) => (await recordsOf("compacted")).filter((each) => each.key?.text === key);
const hasBoth = async () => { const found = (await values("k")).map((each) => each.value?.text); const at = found.indexOf("old"); return at >= 0 && found.indexOf("new", at) > at ? { done: "The log has both." } : { hint: at < 0 ? "There is no record k=old yet." : "No record k=new comes after k=old yet." }; };
const ROLL = "A segment ends with the first record after 7 days, and is compacted at the next occasion.";
const CONFIGS = ["cleanup.policy", "min.cleanable.dirty.ratio"];
const compaction = { name: "compaction", title: "Compaction and tombstones", text: [
  "A topic with cleanup.policy=compact keeps of each key only the newest record. It works on segments that are not written to any more, so old values stay for a while.",
  "A record without a value is a tombstone: it removes its key. The tombstone itself stays for delete.retention.ms, a day by default, so that every consumer sees it, and goes with a later compaction."],
  steps: [
    send("Create the topic compacted: write its name, and at configs press add for cleanup.policy with the value compact, and once more for min.cleanable.dirty.ratio with the value 0, so that it is compacted at each occasion.", "CreateTopics", { version: 5, wants: { name: "compacted", value: "compact" }, allows: "TOPIC_ALREADY_EXISTS", also: ({ request }) => CONFIGS.filter((each) => !request.name.includes(each)).map((each) => `There is no config ${each}.`).join(" "),
      then: ({ effects }) => `The broker ${effects[0] ?? "has the topic already"}.` }),
    see("Produce two records with the key k there, first k=old, then k=new.", "#/try/Produce/9", hasBoth, { after: [0] }),
    see("Let 7 days pass in Controls, so that the segment ends, and produce x=1; then let a day pass. The older record of k is gone.", "#/controls", async () => { const found = await values("k"); const isOld = found.some((each) => each.value?.text === "old"); return !isOld && (await topic("compacted"))?.partitions[0].end >= 3 ? { done: "The older record of k is gone." } : { hint: `There are ${found.length} records of k. ${ROLL}` }; }, { after: [1] }),
    send("Produce a tombstone of k: the line @tombstone k.", "Produce", { version: 9, after: [2], wants: { name: "compacted", key: "k" }, also: ({ request }) => (request.value.includes("null") ? "" : "The record has a value: write @tombstone k, and nothing else.") }),
    see("Let 7 days pass, produce x=2, and let a day pass: the value of k is gone, the tombstone is still there.", "#/controls", async () => { const found = await values("k"); const left = found.filter((each) => each.value !== null).length; return left ? { hint: `${left === 1 ? "A record of k has" : `${left} records of k have`} a value. ${ROLL}` } : { done: found.length ? "Of k, only the tombstone is left." : "The value of k is gone, and the tombstone by now, too." }; }, { after: [3] }),
    see("Let 7 days pass once more, produce x=3, and let a day pass: the tombstone is gone, too.", "#/controls", async () => { const found = await values("k"); return found.length ? { hint: `The tombstone is still there. ${ROLL}` } : { done: "Nothing tells any more that there was a key k." }; }, { after: [4] })] };

export const LOGS = [offsets, index, timeindex, sessions];
export const COMPACTION = compaction;
