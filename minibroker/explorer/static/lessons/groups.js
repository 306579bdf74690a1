// Lessons on groups, producers and transactions.

import { get } from "../core/server.js";
import { ask, group, lastAnswer, ownFrames, recordsOf, see, segmentOf, send, topic } from "./checks.js";

const GROUP = "my-group";
const stateOf = async (name) => (await group(name))?.state;
const joined = () => lastAnswer("JoinGroup", (row) => row.groups.includes(GROUP));
const member = async () => { const found = await joined(); return found ? { generation_id: found.answer.generation_id[0], member_id: found.answer.member_id[0] } : {}; };

const classic = { name: "classic-group", title: "The life of a group", topics: { lesson: {} }, text: [
  "Consumers of a group share partitions. In the classic protocol they join; the broker makes one the leader, which assigns partitions, and all get their part with SyncGroup. Each round of this is a generation. Members commit the offsets up to which they have read.",
  "A broker may wait for more members before it answers the first JoinGroup: by default Kafka does for 3 s, this one does not."],
  steps: [
    send("Ask which node coordinates the group my-group. This also creates the topic with the states of groups.", "FindCoordinator", { version: 4, wants: { key_type: 0, coordinator_keys: GROUP }, then: ({ answer }) => `Node ${answer.node_id[0]} does.` }),
    send("Join it.", "JoinGroup", { version: 3, wants: { group_id: GROUP }, after: [0] }),
    send("You are alone, so you are the leader, and assign: send SyncGroup with the values that the answer gave you, and no assignments.", "SyncGroup", { version: 3, wants: async () => ({ group_id: GROUP, ...(await member()) }), after: [1], then: ({ request }) => `${GROUP} is stable in generation ${request.generation_id[0]}, and you have nothing assigned.` }),
    see("See among the groups that it is Stable. Your session ends after five minutes.", "#/groups/my-group", async () => { const state = await stateOf(GROUP); return state === "Stable" ? { done: "It is Stable." } : { hint: state ? `It is ${state}. If your session is over, join again.` : "There is no such group yet." }; }, { after: [2] }),
    send("Commit the offset 1 of partition 0 of lesson.", "OffsetCommit", { version: 8, after: [1], wants: async () => { const { generation_id: generation, member_id: id } = await member(); return { group_id: GROUP, generation_id_or_member_epoch: generation, member_id: id, name: "lesson", committed_offset: 1 }; } }),
    send("Leave the group, and see that it is Empty. It keeps its offset.", "LeaveGroup", { version: 2, after: [2, 3], wants: async () => ({ group_id: GROUP, member_id: (await member()).member_id }) })] };

const heartbeat = () => lastAnswer("ConsumerGroupHeartbeat");
const newer = { name: "new-group", title: "Groups since KIP-848", topics: { lesson: {} }, text: [
  "In the newer protocol the broker assigns. There is one request: a heartbeat. The first one, with epoch 0, joins, and says what the member wants; the answer has its id, its epoch and its partitions. Later ones only say that it is still there; -1 as the epoch leaves."],
  steps: [
    send("Join new-group with epoch 0: at subscribed_topic_names, untick null, press add, and write lesson; at topic_partitions, untick null, and add nothing: you own no partition yet.", "ConsumerGroupHeartbeat",
      { version: 0, wants: { group_id: "new-group", member_epoch: 0, rebalance_timeout_ms: 60000, subscribed_topic_names: "lesson" }, then: ({ answer, effects }) => `${effects.join("; ")}. A heartbeat is due every ${answer.heartbeat_interval_ms[0]} ms.`.replace("..", ".") }),
    see("See its member and its partitions among the groups.", "#/groups/new-group", async () => { const found = await group("new-group"); return found?.members.length ? { done: `It is ${found.state} with ${found.members[0].assigned.join(", ") || "nothing assigned"}.` } : { hint: "It has no member now. Its session may be over: join again." }; }, { after: [0] }),
    send("Leave it: your member_id, and the epoch -1.", "ConsumerGroupHeartbeat", { version: 0, after: [0], wants: async () => ({ group_id: "new-group", member_id: (await heartbeat())?.answer.member_id?.[0], member_epoch: -1 }) })] };

const idOf = async (test = () => true) => (await lastAnswer("InitProducerId", test))?.answer ?? {};
const plainId = () => idOf((row) => !row.transactional_ids.length);
const repeats = () => ownFrames(0).filter((row) => row.api === "Produce" && "once" in row.topics && !row.errors.length).length;

const idempotence = { name: "idempotence", title: "Idempotence", topics: { once: {} }, text: [
  "If an answer is lost, a producer sends its batch again, and it would be stored twice. An idempotent producer (KIP-98) gets an id, and numbers its records. The broker knows the last five batches of each producer, and answers a repeated one without writing it.",
  "In records, a first line @producer ID EPOCH SEQUENCE says who writes; the first sequence is 0."],
  steps: [
    send("Get a producer id, without a transactional id.", "InitProducerId", { version: 4, then: ({ answer }) => `Your producer id is ${answer.producer_id[0]}, and its epoch ${answer.producer_epoch[0]}.`, also: ({ row }) => (row.transactional_ids.length ? "You gave a transactional id; set it to null." : "") }),
    send("Produce to the topic once: a first line @producer ID 0 0 with your id, and a second one a=b.", "Produce", { version: 9, after: [0], wants: async () => ({ name: "once", producer_id: (await plainId()).producer_id?.[0], producer_epoch: 0, base_sequence: 0 }) }),
    see("Send the same batch again: press send once more.", "#/try/Produce/9", async () => { const times = repeats(); const found = await recordsOf("once"); return times >= 2 && found.length === 1 ? { done: `It was sent ${times} times, and there is one record.` } : { hint: times < 2 ? "It was sent once so far." : `There are ${found.length} records.` }; }, { after: [1] }),
    send("Skip a number: send the sequence 5.", "Produce", { version: 9, after: [1], error: "OUT_OF_ORDER_SEQUENCE_NUMBER", wants: { name: "once", base_sequence: 5 }, then: () => "The broker expected 1, and refused 5: the numbers between are missing." })] };

const onceABatch = { name: "once-a-batch", title: "Once a batch", topics: { numbered: {} }, text: [
  "Each record of an idempotent producer has a sequence of its own. And yet format 2 stores producer id, epoch and sequence once, in the header of the batch (KIP-98): a record's sequence is the batch's first one and the record's offset_delta. A broker need not look into the records, which may be compressed, to know whether a batch is the next one, or a repeated one."],
  steps: [
    send("Get a producer id, without a transactional id.", "InitProducerId", { version: 4, then: ({ answer }) => `Your producer id is ${answer.producer_id[0]}.` }),
    send("Produce three records to the topic numbered in one batch: the lines @producer ID 0 0, a=1, b=2 and c=3.", "Produce", { version: 9, after: [0], wants: async () => ({ name: "numbered", producer_id: (await plainId()).producer_id?.[0], base_sequence: 0, record_count: 3 }) }),
    ask("Which sequence does the third record have?", () => 2, (given) => (given === "3" ? "The first one has 0." : "It is base_sequence and the record's offset_delta."), { after: [1] }),
    ask("How many bytes do producer_id, producer_epoch and base_sequence take in the header?", () => 14, "Point at each of them: the line below says its size.", { after: [1] }),
    ask("How many would they take if each of the three records held them?", () => 42, "It is three times as much.", { after: [1] }),
    see("See in Topics what the broker remembers of your producer: open numbered, and press the number of its producers.", "#/topics/numbered", async () => { const found = ((await topic("numbered")) ? await get("topics/numbered/0/producers") : []); const batch = found.flatMap((each) => each.batches).find((each) => each.last_sequence === 2); return batch ? { done: `The sequences ${batch.first_sequence} to ${batch.last_sequence} are one batch.` } : { hint: "It remembers no batch of three yet." }; }, { after: [1] })] };

const IN_TRANSACTION = "lesson";
const ofTransaction = (id) => async () => { const found = await idOf((row) => row.transactional_ids.includes(id)); return { producer_id: found.producer_id?.[0], producer_epoch: found.producer_epoch?.[0] }; };
const added = (id, name) => async () => { const found = await ofTransaction(id)(); return { v3_and_below_transactional_id: id, v3_and_below_producer_id: found.producer_id, v3_and_below_producer_epoch: found.producer_epoch, name }; };
const inTransaction = (id, name) => async () => ({ transactional_id: id, name, ...(await ofTransaction(id)()), base_sequence: 0 });
const isMarked = ({ rows }) => (rows.some((each) => each.name === "attributes" && each.meaning?.includes("transactional")) ? "" : "The batch is not marked: add the line @transactional.");

const transaction = { name: "transaction", title: "A transaction", topics: { lesson: {} }, text: [
  "A transaction writes to several partitions, and all of it is seen or nothing. The coordinator keeps its state in a topic; at the end it writes a marker into each partition. Until then the last stable offset stays before its first record, which is where careful consumers stop."],
  steps: [
    send("Find the coordinator of the transactional id lesson.", "FindCoordinator", { version: 4, wants: { key_type: 1, coordinator_keys: IN_TRANSACTION }, then: ({ answer }) => `Node ${answer.node_id[0]} keeps its state.` }),
    send("Get a producer id for it.", "InitProducerId", { version: 4, wants: { transactional_id: IN_TRANSACTION }, after: [0] }),
    send("Add partition 0 of lesson to the transaction.", "AddPartitionsToTxn", { version: 3, wants: added(IN_TRANSACTION, "lesson"), after: [1] }),
    send("Produce in the transaction: set the transactional_id, and write the lines @producer ID EPOCH 0, @transactional, and in=it.", "Produce", { version: 9, wants: inTransaction(IN_TRANSACTION, "lesson"), also: isMarked, after: [2] }),
    see("See the record among those of lesson: it is open, or committed once you have ended the transaction.", "#/topics/lesson/0", async () => { const found = (await recordsOf("lesson")).filter((each) => each.transaction); return found.length ? { done: `It is ${found[found.length - 1].transaction}.` } : { hint: "No record of a transaction is there." }; }, { after: [3] }),
    send("Commit: tick committed.", "EndTxn", { version: 3, wants: async () => ({ transactional_id: IN_TRANSACTION, ...(await ofTransaction(IN_TRANSACTION)()), committed: "True" }), after: [3] })] };

const UNDECIDED = "undecided";
const marker = async () => (await segmentOf(UNDECIDED)).batches.find((each) => each.kind === "control");
const ends = (isolation) => ({ name: UNDECIDED, isolation_level: isolation, timestamp: -1 });
const control = { name: "control-batches", title: "Control batches", topics: { undecided: {} }, text: [
  "The marker at the end of a transaction is a batch with one record, a control batch: it has an offset like any other, but no consumer's program sees it. So offsets have gaps where transactions end.",
  "The last stable offset is the first one of the oldest transaction that is still open, or the high watermark if there is none. A consumer with isolation_level 1 (read_committed) reads up to it, and Fetch tells it which producers' records were aborted from which offset on: it drops them itself."],
  steps: [
    send("Find the coordinator of the transactional id undecided.", "FindCoordinator", { version: 4, wants: { key_type: 1, coordinator_keys: UNDECIDED } }),
    send("Get a producer id for it.", "InitProducerId", { version: 4, wants: { transactional_id: UNDECIDED }, after: [0] }),
    send("Add partition 0 of the topic undecided.", "AddPartitionsToTxn", { version: 3, wants: added(UNDECIDED, UNDECIDED), after: [1] }),
    send("Produce in it: the lines @producer ID EPOCH 0, @transactional, and x=y.", "Produce", { version: 9, wants: inTransaction(UNDECIDED, UNDECIDED), also: isMarked, after: [2] }),
    send("Ask for the end with the isolation_level 0: that is the high watermark.", "ListOffsets", { version: 9, wants: ends(0), after: [3], then: ({ answer }) => `The high watermark is ${answer.offset[0]}.` }),
    send("Ask with the isolation_level 1, before you end the transaction: that is the last stable offset.", "ListOffsets", { version: 9, wants: ends(1), after: [3], then: ({ answer }) => `The last stable offset is ${answer.offset[0]}.` }),
    send("Abort: leave committed unticked.", "EndTxn", { version: 3, after: [5], wants: async () => ({ transactional_id: UNDECIDED, ...(await ofTransaction(UNDECIDED)()), committed: "False" }) }),
    ask("Open the .log of undecided-0 among the files. Which type does the control record in its last batch have?", () => [0, "ABORT", "0 ABORT"], "It is the field type below the key of the last record.", { after: [6] }),
    ask("Which offset does the marker have?", async () => (await marker())?.first, "It is base_offset of the control batch.", { after: [6] }),
    send("Fetch undecided from offset 0 with the isolation_level 1.", "Fetch", { version: 11, after: [6], wants: { topic: UNDECIDED, isolation_level: 1, fetch_offset: 0 }, then: ({ answer }) => `The answer has the record, and names it among the ${answer.first_offset?.length ?? 0} aborted_transactions, from offset ${answer.first_offset?.[0]} on.` })] };

export const GROUPS = [classic, newer, idempotence, onceABatch, transaction, control];
