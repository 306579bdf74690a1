// Lessons on the older formats of records, which the newest brokers still speak.

import { ask, lastAnswer, send } from "./checks.js";

const fetched = (version, topic) => lastAnswer("Fetch", (row) => row.version === version && topic in row.topics);
const magicOf = ({ answer }) => answer.magic?.[0];
const wantsMagic = (magic) => (frame) => (magicOf(frame) === undefined ? "The answer has no record: fetch from an offset that has one." : magicOf(frame) === String(magic) ? "" : `The answer has magic ${magicOf(frame)}.`);
const sizeOf = async (version) => (await lastAnswer("Produce", (row) => row.version === version && "old" in row.topics))?.rows.find((each) => each.name === "message [0]");
const bytes = (row) => row && row.end - row.start;

const timestamps = { name: "timestamps", title: "What format 1 added", topics: { old: {} }, text: [
  "Until Kafka 0.9, a message (format 0) had a CRC, attributes, a key and a value, and nobody knew when it was written: a broker deleted segments by the times of their files. Format 1 (KIP-32, Kafka 0.10) added a timestamp, and a bit of the attributes that says whose: the producer's (create time) or the broker's (log append time).",
  "The version of Produce says which format its messages have: 0 and 1 format 0, 2 format 1, and 3 or newer format 2, which is a batch."],
  steps: [
    send("Produce a=b to the topic old in version 1.", "Produce", { version: 1, wants: { name: "old", key: "a", value: "b", magic: 0 }, then: () => "The message has no time. The broker stored it in format 2, with the timestamp -1, which means none." }),
    send("Produce the same in version 2.", "Produce", { version: 2, wants: { name: "old", key: "a", value: "b", magic: 1 }, then: ({ request }) => `The message has the timestamp ${request.timestamp[0]}.` }),
    ask("How many bytes longer is message [0] in format 1? Compare the two requests: the line below the bytes says a field's size.", async () => { const [one, other] = [bytes(await sizeOf(1)), bytes(await sizeOf(2))]; return one && other ? other - one : undefined; }, "It is what the field timestamp takes.", { after: [0, 1] }),
    ask("Format 2 would be longer still for one record. How many bytes does its header take, before the first record?", () => 61, "The lesson on batches says it; or point at record [0] of a Produce of version 9, and at its batch.")] };

const relative = { name: "relative-offsets", title: "Offsets inside a wrapper", topics: { old: {} }, text: [
  "In formats 0 and 1, compression made one message of many: a wrapper, whose value is the compressed messages. In format 0 each message inside had its own absolute offset. So a broker had to unpack the wrapper of a producer, write offsets into it, and compress it again.",
  "Since KIP-31 (format 1), the offsets inside are relative: 0, 1, 2. Only the wrapper has an absolute one, that of its last message, and a broker writes it without unpacking anything. A batch of format 2 has kept that: offset_delta."],
  steps: [
    send("Produce three records to old in one compressed batch: the lines @compress gzip, a=1, b=2 and c=3.", "Produce", { version: 9, wants: { name: "old", record_count: 3 }, also: ({ rows }) => (rows.some((each) => each.name === "attributes" && each.meaning?.includes("gzip")) ? "" : "The batch is not compressed: begin with the line @compress gzip.") }),
    send("Fetch it in version 3, in which a client reads format 1: from the base_offset of that answer.", "Fetch", { version: 3, after: [0], wants: async () => ({ topic: "old", fetch_offset: await baseOffset() }), also: wantsMagic(1), then: ({ answer }) => `The wrapper has offset ${answer.offset[0]}, the messages in it have ${answer.offset.slice(1).join(", ")}.` }),
    ask("Which offset does the first message inside that wrapper have?", () => 0, "It is offset of the message [0] below the value of the outer one.", { after: [1] }),
    send("Fetch it in version 1, for format 0.", "Fetch", { version: 1, after: [0], wants: async () => ({ topic: "old", fetch_offset: await baseOffset() }), also: wantsMagic(0), then: ({ answer }) => `The wrapper has offset ${answer.offset[0]}, the messages in it have ${answer.offset.slice(1).join(", ")}.` }),
    ask("Which offset does the first message inside have now?", async () => (await fetched(1, "old"))?.answer.offset?.[1], "In format 0 it is absolute.", { after: [3] })] };

const baseOffset = async () => (await lastAnswer("Produce", (row) => row.version === 9 && "old" in row.topics))?.answer.base_offset?.[0];

const newest = async () => (await lastAnswer("Produce", (row) => "convert" in row.topics))?.answer.base_offset?.[0];
const old = (version, magic, then) => send(`Fetch it in version ${version}, and find magic ${magic}.`, "Fetch", { version, after: [0], wants: async () => ({ topic: "convert", fetch_offset: await newest() }), also: wantsMagic(magic), then });
const downConversion = { name: "down-conversion", title: "An old client's Fetch", topics: { convert: {} }, text: [
  "A broker stores format 2. An older client asks in the version that it knows: Fetch 4 and newer get what is stored, without a byte being touched; Fetch 2 and 3 get format 1, and 0 and 1 format 0. For those the broker takes the batches apart, and builds messages: a down-conversion, which costs time and memory, and loses headers and producers."],
  steps: [
    send("Produce still=here to the topic convert.", "Produce", { version: 9, wants: { name: "convert", key: "still", value: "here" } }),
    old(4, 2, ({ row }) => `The answer of ${row.answer_bytes} bytes has the batch as it is stored.`),
    old(3, 1, ({ row }) => `The answer of ${row.answer_bytes} bytes has a message with a timestamp, which the broker built.`),
    old(0, 0, ({ row }) => `The answer of ${row.answer_bytes} bytes has a message without a timestamp.`),
    ask("Which field, of those that messages have, is only in format 1, and not in format 0?", () => "timestamp", "Compare the fields of the two answers.", { after: [2, 3] })] };

export const FORMATS = [timestamps, relative, downConversion];
