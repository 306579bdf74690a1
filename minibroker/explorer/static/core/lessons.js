// Twelve lessons. A step is done once its check sees in the broker what the reader did; nothing is taken on trust.
// A check gets the frames that the reader sent from the page, and may ask the server.

import { frames } from "./frames.js";
import { get } from "./server.js";

const own = (test) => frames.all.filter((row) => row.client_id === "explorer" && row.outcome !== "open" && test(row));
const sent = (api, test = () => true) => () => own((row) => row.api === api && test(row)).length > 0;
const fine = (api, test = () => true) => sent(api, (row) => !row.errors.length && test(row));
const last = (api) => own((row) => row.api === api).pop();
const quietly = (check) => async (given) => { try { return await check(given); } catch { return false; } };
const records = async (topic, text = "") => (await get(`topics/${topic}/0/records`, { text })).records;
const field = async (api, side, name) => {
  const row = last(api);
  if (!row) return undefined;
  const found = await get(`frames/${row.number}`);
  return found[side].rows.find((each) => each.name === name)?.value;
};

const DO = (say, check, place = "") => ({ say, check: quietly(check), place });
const ASK = (say, check) => ({ say, check: quietly(check), asks: true });

export const LESSONS = [
  { title: "Framing", text: ["Kafka's protocol is a stream of frames in both directions. A frame begins with its size, as four bytes, the most significant one first. The size does not count itself.",
    "Then follows a header: which API is meant (a number), in which version, a correlation id, which the answer repeats, and the client's name for itself."],
    steps: [DO("Send an ApiVersions request, as it is.", sent("ApiVersions"), "#/try/ApiVersions"),
      ASK("How many bytes did the frame have after its size? (Look at the field size of your request.)", (given) => last("ApiVersions").request_bytes === Number(given)),
      DO("Change the correlation id in the bytes to 00 00 00 2a, send it again, and find 42 in the answer.", async () => (await field("ApiVersions", "answer", "correlation_id")) === "42", "#/try/ApiVersions")] },
  { title: "ApiVersions", text: ["Clients and brokers of any age talk to each other, since each API has versions, and a client first asks which ones the broker has. It uses the newest that both know.",
    "From some version on, an API is flexible: lengths become varints, and each struct ends with tagged fields, which older programs skip (KIP-482)."],
    steps: [DO("Send ApiVersions in version 0.", fine("ApiVersions", (row) => row.version === 0), "#/try/ApiVersions/0"), DO("Send ApiVersions in version 3, which is flexible, and compare the two.", fine("ApiVersions", (row) => row.version === 3), "#/try/ApiVersions/3"),
      ASK("Up to which version does this broker have Fetch? (API key 1 in the answer.)", async (given) => Math.max(...(await get("try/apis")).find((each) => each.api === "Fetch").versions) === Number(given))] },
  { title: "Metadata", text: ["A client needs to know the brokers, and which of them leads each partition, as only the leader writes. Metadata tells it. Asking for a topic that does not exist creates it, if the broker and the client allow that."],
    steps: [DO("Send Metadata for the topic lesson: version 12, topics not null but with one topic, of this name and a zero id.", sent("Metadata", (row) => "lesson" in row.topics), "#/try/Metadata/12"),
      DO("See the topic lesson among the topics.", () => get("topics/lesson"), "#/topics/lesson"),
      ASK("Which node leads its partition 0?", async (given) => (await get("topics/lesson")).partitions[0].leader === Number(given))] },
  { title: "Produce by hand", text: ["A Produce request has topics, of each its partitions, and of each one record batch. The broker gives the batch its offset, and answers with it. acks says when: 0 is never, 1 and -1 are once it is written."],
    steps: [DO("Send Produce in version 9 to the topic lesson, with the record by=hand.", async () => fine("Produce")() && (await records("lesson", "hand")).length > 0, "#/try/Produce/9"),
      ASK("At which offset is it?", async (given) => (await records("lesson", "hand")).some((record) => record.offset === Number(given)))] },
  { title: "Batches and their checksum", text: ["Records travel and are stored in batches: a header of 61 bytes, then the records, with offsets and times as differences to the header's. A CRC-32C covers everything behind it, so that no bit changes on the way. The broker checks it before it writes.",
    "By hand, a Produce of version 3 is, behind its size (4 bytes): 00 00 for the API, 00 03 for the version, a correlation id (4), the client's name, the transactional id (ff ff for none), acks (2 bytes), the timeout (4), the number of topics (4), the name of each; the number of its partitions (4), the number of each (4), the size of its records (4), and a batch. A string is its length in 2 bytes, then its letters.",
    "A batch is: the first offset (8), how many bytes follow (4), the leader's epoch (4), 02 for the format, the CRC (4), attributes (2), the last offset less the first (4), the first and the newest time in ms (8 each), producer id, epoch and sequence (8, 2 and 4, all ff), and the number of records (4). A record is: its size, attributes (00), time and offset less the batch's first, the key's size, the key, the value's size, the value, and the number of headers. Small numbers in a record are doubled: 06 is 3."],
    steps: [DO("Compose a Produce, change a byte of its value in the bytes, and watch the CRC become wrong. Send it: the broker refuses it.", sent("Produce", (row) => row.errors.includes("CORRUPT_MESSAGE")), "#/try/Produce/9"),
      ASK("What is the error code of CORRUPT_MESSAGE?", (given) => Number(given) === 2),
      DO("Write one byte by byte: take all bytes away, and write a Produce of version 3 of the client hand, for partition 0 of the topic lesson. Once you leave the field of the bytes, the page names them, says how many there are, and, if you point at the CRC, which one is right.", async () => frames.all.some((row) => row.client_id === "hand" && row.api === "Produce" && "lesson" in row.topics && row.outcome === "answered" && !row.errors.length), "#/try/Produce/3")] },
  { title: "Offsets and indexes", text: ["A partition is a log: batches one after the other in files, with the offset of the first one in the name. The high watermark is where consumers may read up to. An index says of some offsets where their batch is in the file."],
    steps: [DO("Produce until the topic lesson has at least three records.", async () => (await get("topics/lesson")).offsets >= 3, "#/try/Produce/9"),
      DO("Ask for its end with ListOffsets, with the timestamp -1.", fine("ListOffsets", (row) => "lesson" in row.topics), "#/try/ListOffsets/9"),
      ASK("Open its segment among the files. At which byte does the second batch begin?", async (given) => (await get("files/segment", { path: "lesson-0/00000000000000000000.log" })).batches[1].position === Number(given))] },
  { title: "Fetch sessions", text: ["A consumer of a thousand partitions would repeat them all with each Fetch. With a session (KIP-227) the broker remembers them: the first Fetch has epoch 0 and gets a session id, later ones name only what changes."],
    steps: [DO("Send Fetch in version 11 for the topic lesson, with session_id 0 and session_epoch 0.", fine("Fetch", (row) => "lesson" in row.topics && row.version >= 7), "#/try/Fetch/11"),
      ASK("Which session id did the broker give you?", async (given) => Number(given) !== 0 && (await field("Fetch", "answer", "session_id")) === given.trim())] },
  { title: "The life of a group", text: ["Consumers of a group share partitions. In the classic protocol they join; the broker makes one the leader, which assigns partitions, and all get their part with SyncGroup. In the newer one (KIP-848) the broker assigns, and members learn it from the answers to their heartbeats."],
    steps: [DO("Ask which node coordinates the group my-group, with FindCoordinator version 4. Without that, the topic with the states of groups may not exist yet.", fine("FindCoordinator", (row) => row.groups.includes("my-group")), "#/try/FindCoordinator/4"),
      DO("Join the group my-group with JoinGroup version 3. It takes some seconds, as the broker waits for others.", fine("JoinGroup"), "#/try/JoinGroup/3"),
      DO("You are the leader, as you are alone. Assign nothing with SyncGroup version 3: take the generation_id and your member_id from the answer to JoinGroup, and no assignments.", fine("SyncGroup"), "#/try/SyncGroup/3"),
      DO("See that the group is Stable, before your session ends after five minutes.", async () => (await get("groups/my-group")).state === "Stable", "#/groups/my-group"),
      DO("Leave it with LeaveGroup version 2, and see that it is Empty.", async () => fine("LeaveGroup")() && (await get("groups/my-group")).state === "Empty", "#/try/LeaveGroup/2"),
      DO("Join another group, new-group, by ConsumerGroupHeartbeat: version 0, epoch 0, subscribed_topic_names lesson, topic_partitions empty, rebalance_timeout_ms 60000.", fine("ConsumerGroupHeartbeat"), "#/try/ConsumerGroupHeartbeat/0")] },
  { title: "Idempotence", text: ["If an answer is lost, a producer sends its batch again, and it would be stored twice. An idempotent producer (KIP-98) gets an id, and numbers its batches. The broker knows the last five of each producer, and answers a repeated one without writing it."],
    steps: [DO("Get a producer id with InitProducerId: version 4, without a transactional id.", fine("InitProducerId"), "#/try/InitProducerId/4"),
      DO("Create a topic with the name once by Metadata, as in lesson 3.", () => get("topics/once"), "#/try/Metadata/12"),
      DO("Produce to it: records with a first line @producer ID 0 0 (your id), and a second one a=b. Send the same bytes again: the answer is the same, and there is only one record.", async () => own((row) => row.api === "Produce" && "once" in row.topics && !row.errors.length).length >= 2 && (await records("once")).length === 1, "#/try/Produce/9")] },
  { title: "A transaction", text: ["A transaction writes to several partitions, and all of it is seen or nothing. The coordinator keeps its state in a topic; at the end it writes a marker into each partition. Until then the last stable offset stays before its first record, which is where careful consumers stop."],
    steps: [DO("Find the coordinator: FindCoordinator version 4 with key_type 1, and the key lesson.", fine("FindCoordinator", (row) => row.transactional_ids.includes("lesson")), "#/try/FindCoordinator/4"),
      DO("Begin: InitProducerId version 4 with the transactional id lesson.", fine("InitProducerId", (row) => row.transactional_ids.includes("lesson")), "#/try/InitProducerId/4"),
      DO("Add partition 0 of the topic lesson with AddPartitionsToTxn version 3.", fine("AddPartitionsToTxn"), "#/try/AddPartitionsToTxn/3"),
      DO("Produce with the transactional id, and the lines @producer ID EPOCH 0 and @transactional. See it marked as open among the records.", async () => (await records("lesson")).some((record) => record.transaction), "#/try/Produce/9"),
      DO("Commit it with EndTxn version 3.", async () => (await get("transactions/lesson")).state === "CompleteCommit", "#/try/EndTxn/3")] },
  { title: "Compaction", text: ["A topic with cleanup.policy=compact keeps of each key only the newest record; a null value removes the key. It works on segments that are not written to any more, so old values stay for a while."],
    steps: [DO("Create a topic compacted with CreateTopics, and the config cleanup.policy=compact.", async () => (await get("topics/compacted")).cleanup === "compact", "#/try/CreateTopics/5"),
      DO("Produce two records with the same key there.", async () => (await records("compacted")).length >= 2, "#/topics/compacted/0"),
      DO("Let 7 days pass, so that the segment ends, and produce a record with another key; then let a day pass. The older one of the two is gone.", async () => { const kept = await records("compacted"); const topic = await get("topics/compacted"); return kept.length < topic.partitions[0].end; }, "#/hands")] },
  { title: "Formats of yesterday", text: ["Batches have had three formats: 0 until Kafka 0.9, 1 with timestamps from 0.10, and 2, with varints, headers and producers, from 0.11. A broker stores what it gets, and converts it for clients that ask in an old version."],
    steps: [DO("Produce a record to the topic lesson, as the last lesson's week has deleted the older ones. Fetch it from its offset in version 4, and find magic 2.", fine("Fetch", (row) => row.version === 4 && "lesson" in row.topics), "#/try/Fetch/4"), DO("Fetch it in version 3, and find messages with magic 1.", fine("Fetch", (row) => row.version === 3 || row.version === 2), "#/try/Fetch/3"),
      DO("Fetch it in version 0, and find messages with magic 0, without timestamps.", fine("Fetch", (row) => row.version <= 1), "#/try/Fetch/0"),
      ASK("How many bytes has the header of a batch of format 2?", (given) => Number(given) === 61)] },
];
