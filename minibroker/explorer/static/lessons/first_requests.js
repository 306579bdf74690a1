// Lessons on requests: framing, versions, metadata, and a first record.

import { get } from "../core/server.js";
import { ask, lastAnswer, ownFrames, recordsOf, see, send, topic } from "./checks.js";

const NOT_COUNTED = 4; // bytes of the size itself
const FETCH = "Fetch";

const newestVersion = async (api) => Math.max(...(await get("try/apis")).find((each) => each.api === api).versions);

const framing = { name: "framing", title: "Framing", text: [
  "Kafka's protocol is a stream of frames in both directions. A frame begins with its size, as four bytes, the most significant one first. The size does not count itself.",
  "Then follows a header: which API is meant (a number), in which version, a correlation id, which the answer repeats, and the client's name for itself.",
  "A request is composed in the view Try it: its fields are on one side, its bytes and what they mean on the other. Point at a field or a byte, and what belongs to it lights up."],
  steps: [
    send("Send an ApiVersions request as it is: press send.", "ApiVersions", { then: ({ row }) => `The broker answered with ${row.answer_bytes} bytes: the versions of all APIs that it has.` }),
    ask("How many bytes did the request have behind its size? Open the tab Request: the field size says it.", () => ownFrames(0).filter((each) => each.api === "ApiVersions").map((each) => each.request_bytes),
      (given, sizes) => (sizes.includes(Number(given) - NOT_COUNTED) ? "That counts the four bytes of the size, too." : "It is the first field of the request.")),
    send("In the box with the bytes of the request, change those of correlation_id to 00 00 00 2a, and send it. Point at the field to see which bytes are its own.", "ApiVersions",
      { wants: { correlation_id: 42 }, open: "#/try/ApiVersions", then: ({ answer }) => `The answer has the correlation id ${answer.correlation_id[0]}, too: so a client knows which request it belongs to.` })] };

const versions = { name: "versions", title: "Versions of APIs", text: [
  "Clients and brokers of any age talk to each other, since each API has versions, and a client first asks which ones the broker has. It uses the newest that both know.",
  "From some version on, an API is flexible: lengths become varints, which take one byte where four did, and each struct ends with tagged fields, which older programs skip (KIP-482)."],
  steps: [
    send("Send ApiVersions in version 0.", "ApiVersions", { version: 0, then: ({ row }) => `The request has ${row.request_bytes} bytes, and no body at all; the answer has ${row.answer_bytes}.` }),
    send("Send ApiVersions in version 3, which is flexible, and compare the fields.", "ApiVersions", { version: 3, then: ({ row }) => `The request has ${row.request_bytes} bytes: it tells the client's software, too, and ends with tagged fields.` }),
    ask("What is the newest version of Fetch that this broker has? Look for the API key 1 in an answer: max_version.", () => newestVersion(FETCH), "It is max_version in the same entry as api_key 1, Fetch.")] };

const metadata = { name: "metadata", title: "Metadata", text: [
  "A client needs to know the brokers, and which of them leads each partition, as only the leader writes. Metadata tells it. Asking for a topic that does not exist creates it, if the broker and the client allow that."],
  steps: [
    send("Ask for the topic lesson: at topics, untick null, press add, and write lesson into name. Its id may stay zero.", "Metadata",
      { version: 12, wants: { name: "lesson" }, allows: "UNKNOWN_TOPIC_OR_PARTITION", then: ({ row }) => (row.errors.length ? "The answer has error 3, UNKNOWN_TOPIC_OR_PARTITION, for the topic: the broker only began to create it. A client asks again a moment later." : "There was such a topic already, so the answer has its partitions.") }),
    send("Send it once more: now the answer has the topic's partitions.", "Metadata",
      { version: 12, wants: { name: "lesson" }, after: [0], then: ({ answer }) => `Its id is ${answer.topic_id[0]}, and it has ${answer.partition_index.length} partition.` }),
    see("Look at it among the topics.", "#/topics/lesson", async () => (await topic("lesson") ? { done: "The topic lesson is there." } : { hint: "There is no topic lesson yet." })),
    ask("Which node leads its partition 0? The answer has it as leader_id.", async () => (await topic("lesson"))?.partitions[0].leader, "leader_id is in the answer's partition; the view of topics has it, too.")] };

const produce = { name: "produce", title: "Produce by hand", topics: { lesson: {} }, text: [
  "A Produce request has topics, of each its partitions, and of each one record batch. The broker gives the batch its offset, and answers with it. acks says when: 0 is never, 1 and -1 are once it is written.",
  "Records are written a line each, as key=value."],
  steps: [
    send("Send Produce to the topic lesson, with the record by=hand: replace key=hello in records.", "Produce", { version: 9, wants: { name: "lesson", key: "by", value: "hand" } }),
    ask("At which offset is it? The answer has it as base_offset.", async () => (await recordsOf("lesson", "hand")).map((each) => each.offset), "The answer to your Produce has it as base_offset.")] };

const REQUEST = { head: ["part of a Produce of version 3", "bytes"], rows: [
  ["size of all that follows", "4"], ["API 0: 00 00", "2"], ["version 3: 00 03", "2"], ["correlation id: any", "4"], ["client's name: its length, 00 04, and its letters, 68 61 6e 64", "2 + 4"],
  ["transactional id: ff ff for none", "2"], ["acks: 00 01", "2"], ["timeout in ms: 00 00 75 30", "4"], ["number of topics: 00 00 00 01", "4"], ["topic: its length, 00 06, and lesson, 6c 65 73 73 6f 6e", "2 + 6"],
  ["number of its partitions: 00 00 00 01", "4"], ["partition 0: 00 00 00 00", "4"], ["size of the batch", "4"], ["the batch", ""]] };
const BATCH = { head: ["part of a batch", "bytes"], rows: [
  ["first offset: zeros, as the broker decides", "8"], ["how many bytes follow", "4"], ["leader's epoch: zeros", "4"], ["format: 02", "1"], ["CRC: zeros at first", "4"], ["attributes: zeros", "2"],
  ["last offset less the first: zeros", "4"], ["time of the first record in ms: 00 00 01 a2 21 ec 35 e7 is one", "8"], ["newest time: the same", "8"], ["producer id, epoch, sequence: all ff", "8 + 2 + 4"], ["number of records: 00 00 00 01", "4"], ["the record", ""]] };
const RECORD = { head: ["part of a record (lengths are zigzag varints: n is written as 2n, so that 3 is 06)", "bytes"], rows: [
  ["how many bytes follow", "1"], ["attributes: 00", "1"], ["time less the batch's: 00", "1"], ["offset less the batch's: 00", "1"], ["length of the key, and the key: 06 6f 77 6e is own", "4"], ["length of the value, and the value: 08 6d 69 6e 65 is mine", "5"], ["number of headers: 00", "1"]] };

const byHand = ({ request }) => (request.client_id?.[0] === "hand" ? "" : `The client's name is ${request.client_id?.[0] || "empty"}; the lesson's is hand.`);

const checksum = { name: "checksum", title: "Batches and their checksum", topics: { lesson: {} }, text: [
  "Records travel and are stored in batches: a header of 61 bytes, then the records, with offsets and times as differences to the header's. A CRC-32C covers everything behind it, and shows whether a bit has changed on the way. The broker checks it before it writes.",
  "The last step writes a request byte by byte. These are its parts:", REQUEST, BATCH, RECORD],
  steps: [
    send("Compose a Produce to lesson, change one byte of the record's value in the box of bytes, and send it: crc becomes WRONG, and the broker refuses the batch.", "Produce",
      { error: "CORRUPT_MESSAGE", open: "#/try/Produce/9", then: () => "The broker computed another CRC than the batch has, and wrote nothing." }),
    ask("What is the error code of CORRUPT_MESSAGE? The answer has it as error_code.", () => 2, "It is error_code in the answer to the spoilt Produce."),
    send("Write one byte by byte: in Try it, empty the box of bytes, and write the request of the tables above, for partition 0 of lesson. The page names the bytes as you write, counts them where a size is wrong, and says which CRC is right once the batch is whole.", "Produce",
      { version: 3, wants: { client_id: "hand", name: "lesson" }, also: byHand, then: ({ effects }) => `Every byte of it was yours: ${effects.join("; ")}.` })] };

const attributes = { name: "attributes", title: "A record without attributes", topics: { lesson: {}, elided: { "record.attributes.elide": "true" } }, text: [
  "In format 2, what concerns all records is said once, in the batch's header: codec, kind of timestamp, transaction. A record still has a byte for attributes, but no bit of it has a meaning.",
  "Its numbers are zigzag varints: small ones take a byte, whether they are positive or negative. 0 is 00, -1 is 01, 1 is 02, -2 is 03, 3 is 06.",
  "KIP-931 wanted to leave the byte out. Kafka has not taken it up; this broker does it in topics with record.attributes.elide=true, such as elided, and writes the byte again for whoever fetches."],
  steps: [
    send("Send Produce to lesson with the record k=v.", "Produce", { version: 9, wants: { name: "lesson", key: "k", value: "v" } }),
    ask("How many bytes does the record take, with its length? Point at record [0] in the request: the line below the bytes says it.", async () => recordSize(await lastProduced()), (given, [size]) => (Number(given) === size - 1 ? "That leaves out the byte of the length itself." : "Point at record [0] in the tab Request."), { after: [0] }),
    ask("The length of that record is 8. Which byte says it, in hex?", () => "10", (given) => (given === "8" || given === "08" ? "That is a plain 8; a zigzag varint is doubled." : "Point at length, and look at the byte that lights up."), { after: [0] }),
    send("Set the record's byte of attributes to 01 in the box of bytes, write the CRC that the page then says is right into crc, and send it. The broker takes it, as nothing reads that byte.", "Produce",
      { version: 9, open: "#/try/Produce/9", also: ({ rows }) => (hasAttributes(rows) ? "" : "The attributes of the record are still 0: point at attributes below record [0] to find the byte."), then: ({ effects }) => `The broker ${effects.join("; ")}: bits without a meaning do not matter.` }),
    send("Send the record k=v to the topic elided.", "Produce", { version: 9, wants: { name: "elided", key: "k", value: "v" } }),
    ask("Open the .log of elided-0 among the files. How many bytes does record [0] take there?", () => 8, (given) => (given === "9" ? "That is with the byte, as you sent it." : "Choose record [0] in the tree: the line below says it."), { after: [4] })] };

const lastProduced = () => lastAnswer("Produce", (row) => "lesson" in row.topics);
const recordRow = (rows) => rows?.findIndex((each) => each.name === "record [0]") ?? -1;
const recordSize = (frame) => { const row = frame?.rows[recordRow(frame.rows)]; return row && row.end - row.start; };
const hasAttributes = (rows) => { const at = recordRow(rows); return at >= 0 && rows.slice(at).find((each) => each.name === "attributes")?.value === "1"; };

export const FIRST_REQUESTS = [framing, versions, metadata, produce, checksum, attributes];
