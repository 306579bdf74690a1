// Written by `python3 -m kits.generating` from the description of the control. Do not edit.
package minibroker;

import com.fasterxml.jackson.core.type.TypeReference;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** What a test can ask a broker for. Each method throws a {@link MinibrokerError} if it fails. */
public abstract class Verbs {
    abstract <T> T ask(String method, List<?> path, Map<String, ?> fields, TypeReference<T> type, String only);

    /** Return the broker's address, and its topics and groups. */
    public BrokerState state() {
        return ask("GET", List.of("broker"), null, new TypeReference<BrokerState>() {}, null);
    }

    /** Copy the current contents of the logs; return the snapshot's number. The newest 100 snapshots are kept. */
    public long snapshot() {
        return ask("POST", List.of("snapshots"), null, new TypeReference<Long>() {}, "snapshot");
    }

    /** Restore the logs of the snapshot. */
    public void restore(long number) {
        ask("POST", List.of("snapshots", number, "restore"), null, new TypeReference<Void>() {}, null);
    }

    /** Remove topics, groups, transactions, configs, faults, and the journal. Connections and ports stay. */
    public void reset() {
        ask("POST", List.of("reset"), null, new TypeReference<Void>() {}, null);
    }

    /** Stop cleanly, if the broker is up, and start again with the same ports and data. */
    public void restart() {
        ask("POST", List.of("restart"), null, new TypeReference<Void>() {}, null);
    }

    /** Crash: connections are cut, nothing more is written, ports refuse connections until `restart`. */
    public void kill() {
        ask("POST", List.of("kill"), null, new TypeReference<Void>() {}, null);
    }

    /** Return the broker's time. */
    public ClockState clock() {
        return ask("GET", List.of("clock"), null, new TypeReference<ClockState>() {}, null);
    }

    /** Advance the broker's time; return once everything that became due is done. */
    public ClockState advanceClock(Duration by) {
        Given<?> fields = new Given<>();
        fields.with("by", by);
        return ask("POST", List.of("clock", "advance"), fields.map(), new TypeReference<ClockState>() {}, null);
    }

    /** Stop the clock; only `advance` moves it. */
    public ClockState freezeClock() {
        return ask("POST", List.of("clock", "freeze"), null, new TypeReference<ClockState>() {}, null);
    }

    /** Let the clock run again. */
    public ClockState unfreezeClock() {
        return ask("POST", List.of("clock", "unfreeze"), null, new TypeReference<ClockState>() {}, null);
    }

    /** Create a topic, with configs by Kafka's names, such as retention.ms. */
    public String createTopic(String name) {
        Given<?> fields = new Given<>();
        fields.with("name", name);
        return ask("POST", List.of("topics"), fields.map(), new TypeReference<String>() {}, "topic");
    }

    /** Create a topic, with configs by Kafka's names, such as retention.ms. */
    public String createTopic(String name, Consumer<NewTopic> options) {
        NewTopic fields = new NewTopic();
        options.accept(fields);
        fields.with("name", name);
        return ask("POST", List.of("topics"), fields.map(), new TypeReference<String>() {}, "topic");
    }

    /** Append records as one batch; return the first offset. A missing topic is created. */
    public long produceRecords(String topic) {
        return ask("POST", List.of("topics", topic, "records"), null, new TypeReference<Long>() {}, "offset");
    }

    /** Append records as one batch; return the first offset. A missing topic is created. */
    public long produceRecords(String topic, Consumer<NewRecords> options) {
        NewRecords fields = new NewRecords();
        options.accept(fields);
        return ask("POST", List.of("topics", topic, "records"), fields.map(), new TypeReference<Long>() {}, "offset");
    }

    /** Return all records of a topic, one partition after the other, those of open and aborted transactions too. */
    public List<SeenRecord> records(String topic) {
        return ask("GET", List.of("topics", topic, "records"), null, new TypeReference<List<SeenRecord>>() {}, null);
    }

    /** Return all records of a topic, one partition after the other, those of open and aborted transactions too. */
    public List<SeenRecord> records(String topic, Consumer<RecordsQuery> options) {
        RecordsQuery fields = new RecordsQuery();
        options.accept(fields);
        return ask("GET", List.of("topics", topic, "records"), fields.map(), new TypeReference<List<SeenRecord>>() {}, null);
    }

    /** Create topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}. */
    public void fill(Map<String, Object> configs) {
        ask("POST", List.of("fill"), configs, new TypeReference<Void>() {}, null);
    }

    /** Wait until a topic has this many records; return them. */
    public List<SeenRecord> expect(String topic) {
        return ask("POST", List.of("topics", topic, "expect"), null, new TypeReference<List<SeenRecord>>() {}, null);
    }

    /** Wait until a topic has this many records; return them. */
    public List<SeenRecord> expect(String topic, long count) {
        Given<?> fields = new Given<>();
        fields.with("count", count);
        return ask("POST", List.of("topics", topic, "expect"), fields.map(), new TypeReference<List<SeenRecord>>() {}, null);
    }

    /** Wait until a topic has this many records; return them. */
    public List<SeenRecord> expect(String topic, long count, Consumer<Expectation> options) {
        Expectation fields = new Expectation();
        options.accept(fields);
        fields.with("count", count);
        return ask("POST", List.of("topics", topic, "expect"), fields.map(), new TypeReference<List<SeenRecord>>() {}, null);
    }

    /** Wait for a time; fail as soon as a record is appended to the topic. */
    public void expectNothing(String topic) {
        ask("POST", List.of("topics", topic, "expect-nothing"), null, new TypeReference<Void>() {}, null);
    }

    /** Wait for a time; fail as soon as a record is appended to the topic. */
    public void expectNothing(String topic, Consumer<Silence> options) {
        Silence fields = new Silence();
        options.accept(fields);
        ask("POST", List.of("topics", topic, "expect-nothing"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Return the requests that the journal has, oldest first. */
    public List<SeenRequest> requests() {
        return ask("GET", List.of("requests"), null, new TypeReference<List<SeenRequest>>() {}, null);
    }

    /** Return the requests that the journal has, oldest first. */
    public List<SeenRequest> requests(String api) {
        Given<?> fields = new Given<>();
        fields.with("api", api);
        return ask("GET", List.of("requests"), fields.map(), new TypeReference<List<SeenRequest>>() {}, null);
    }

    /** Return the requests that the journal has, oldest first. */
    public List<SeenRequest> requests(String api, Consumer<RequestsQuery> options) {
        RequestsQuery fields = new RequestsQuery();
        options.accept(fields);
        fields.with("api", api);
        return ask("GET", List.of("requests"), fields.map(), new TypeReference<List<SeenRequest>>() {}, null);
    }

    /** Drop all requests. */
    public void clearRequests() {
        ask("DELETE", List.of("requests"), null, new TypeReference<Void>() {}, null);
    }

    /** Return whether the journal is on, and how many requests it has. */
    public JournalState journal() {
        return ask("GET", List.of("journal"), null, new TypeReference<JournalState>() {}, null);
    }

    /** Turn the journal on or off. */
    public JournalState switchJournal(boolean on) {
        Given<?> fields = new Given<>();
        fields.with("on", on);
        return ask("POST", List.of("journal"), fields.map(), new TypeReference<JournalState>() {}, null);
    }

    /** Wait until the journal has this many requests; return them. */
    public List<SeenRequest> waitForRequests() {
        return ask("POST", List.of("requests", "wait"), null, new TypeReference<List<SeenRequest>>() {}, null);
    }

    /** Wait until the journal has this many requests; return them. */
    public List<SeenRequest> waitForRequests(String api) {
        Given<?> fields = new Given<>();
        fields.with("api", api);
        return ask("POST", List.of("requests", "wait"), fields.map(), new TypeReference<List<SeenRequest>>() {}, null);
    }

    /** Wait until the journal has this many requests; return them. */
    public List<SeenRequest> waitForRequests(String api, long count) {
        Given<?> fields = new Given<>();
        fields.with("api", api);
        fields.with("count", count);
        return ask("POST", List.of("requests", "wait"), fields.map(), new TypeReference<List<SeenRequest>>() {}, null);
    }

    /** Wait until the journal has this many requests; return them. */
    public List<SeenRequest> waitForRequests(String api, long count, Consumer<RequestWait> options) {
        RequestWait fields = new RequestWait();
        options.accept(fields);
        fields.with("api", api);
        fields.with("count", count);
        return ask("POST", List.of("requests", "wait"), fields.map(), new TypeReference<List<SeenRequest>>() {}, null);
    }

    /** Wait until the group is in this state with this many members, by default any number; return their ids. */
    public List<String> waitForGroup(String group) {
        return ask("POST", List.of("groups", group, "wait"), null, new TypeReference<List<String>>() {}, "members");
    }

    /** Wait until the group is in this state with this many members, by default any number; return their ids. */
    public List<String> waitForGroup(String group, Consumer<GroupWait> options) {
        GroupWait fields = new GroupWait();
        options.accept(fields);
        return ask("POST", List.of("groups", group, "wait"), fields.map(), new TypeReference<List<String>>() {}, "members");
    }

    /** Wait until the group has committed the ends of all partitions of the topic that have records. */
    public void waitUntilCaughtUp(String group, String topic) {
        Given<?> fields = new Given<>();
        fields.with("topic", topic);
        ask("POST", List.of("groups", group, "wait-until-caught-up"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Wait until the group has committed the ends of all partitions of the topic that have records. */
    public void waitUntilCaughtUp(String group, String topic, Consumer<CaughtUpWait> options) {
        CaughtUpWait fields = new CaughtUpWait();
        options.accept(fields);
        fields.with("topic", topic);
        ask("POST", List.of("groups", group, "wait-until-caught-up"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Wait until the group has committed at least `offset`, or any offset; return the committed one. */
    public long waitForCommit(String group, String topic) {
        Given<?> fields = new Given<>();
        fields.with("topic", topic);
        return ask("POST", List.of("groups", group, "wait-for-commit"), fields.map(), new TypeReference<Long>() {}, "offset");
    }

    /** Wait until the group has committed at least `offset`, or any offset; return the committed one. */
    public long waitForCommit(String group, String topic, Consumer<CommitWait> options) {
        CommitWait fields = new CommitWait();
        options.accept(fields);
        fields.with("topic", topic);
        return ask("POST", List.of("groups", group, "wait-for-commit"), fields.map(), new TypeReference<Long>() {}, "offset");
    }

    /** Wait until the high watermark is at least `offset`; return it. */
    public long waitForHighWatermark(String topic, long offset) {
        Given<?> fields = new Given<>();
        fields.with("offset", offset);
        return ask("POST", List.of("topics", topic, "wait-for-high-watermark"), fields.map(), new TypeReference<Long>() {}, "offset");
    }

    /** Wait until the high watermark is at least `offset`; return it. */
    public long waitForHighWatermark(String topic, long offset, Consumer<WatermarkWait> options) {
        WatermarkWait fields = new WatermarkWait();
        options.accept(fields);
        fields.with("offset", offset);
        return ask("POST", List.of("topics", topic, "wait-for-high-watermark"), fields.map(), new TypeReference<Long>() {}, "offset");
    }

    /** Return the faults, in the order in which requests meet them. */
    public List<FaultState> faults() {
        return ask("GET", List.of("faults"), null, new TypeReference<List<FaultState>>() {}, null);
    }

    /** Remove all faults. */
    public void clearFaults() {
        ask("DELETE", List.of("faults"), null, new TypeReference<Void>() {}, null);
    }

    /** Add a fault: {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}. */
    public FaultState addFault(Consumer<NewFault> options) {
        NewFault fields = new NewFault();
        options.accept(fields);
        return ask("POST", List.of("faults"), fields.map(), new TypeReference<List<FaultState>>() {}, null).get(0);
    }

    /** Return how often the fault has struck. */
    public FaultState fault(long number) {
        return ask("GET", List.of("faults", number), null, new TypeReference<FaultState>() {}, null);
    }

    /** End the fault. Clients that it keeps waiting are disconnected. */
    public void removeFault(long number) {
        ask("DELETE", List.of("faults", number), null, new TypeReference<Void>() {}, null);
    }

    /** Wait until the fault has this many hits. */
    public FaultState waitForHits(long number) {
        return ask("POST", List.of("faults", number, "wait"), null, new TypeReference<FaultState>() {}, null);
    }

    /** Wait until the fault has this many hits. */
    public FaultState waitForHits(long number, long hits) {
        Given<?> fields = new Given<>();
        fields.with("hits", hits);
        return ask("POST", List.of("faults", number, "wait"), fields.map(), new TypeReference<FaultState>() {}, null);
    }

    /** Wait until the fault has this many hits. */
    public FaultState waitForHits(long number, long hits, Consumer<HitWait> options) {
        HitWait fields = new HitWait();
        options.accept(fields);
        fields.with("hits", hits);
        return ask("POST", List.of("faults", number, "wait"), fields.map(), new TypeReference<FaultState>() {}, null);
    }

    /** Stop a node: queued answers are sent, and other nodes take over its partitions. */
    public void stopNode(long node) {
        ask("POST", List.of("nodes", node, "stop"), null, new TypeReference<Void>() {}, null);
    }

    /** Kill a node: clients are disconnected, and other nodes take over its partitions. */
    public void killNode(long node) {
        ask("POST", List.of("nodes", node, "kill"), null, new TypeReference<Void>() {}, null);
    }

    /** Bring back a node that is stopped or killed, at its port. */
    public void startNode(long node) {
        ask("POST", List.of("nodes", node, "start"), null, new TypeReference<Void>() {}, null);
    }

    /** Pause a node: it accepts requests and sends no answers. */
    public void pauseNode(long node) {
        ask("POST", List.of("nodes", node, "pause"), null, new TypeReference<Void>() {}, null);
    }

    /** Resume a paused node, which answers what arrived meanwhile. */
    public void resumeNode(long node) {
        ask("POST", List.of("nodes", node, "resume"), null, new TypeReference<Void>() {}, null);
    }

    /** Freeze the leaders in a node's metadata until `refresh`. */
    public void makeStale(long node) {
        ask("POST", List.of("nodes", node, "make-stale"), null, new TypeReference<Void>() {}, null);
    }

    /** Let a stale node's metadata name the current leaders again. */
    public void refresh(long node) {
        ask("POST", List.of("nodes", node, "refresh"), null, new TypeReference<Void>() {}, null);
    }

    /** Return the node that leads the partition, or null. */
    public Long leader(String topic, long partition) {
        return ask("GET", List.of("topics", topic, "partitions", partition, "leader"), null, new TypeReference<Long>() {}, "leader");
    }

    /** Make a node the partition's leader, or leave it without a leader if the node is null. */
    public Long moveLeader(String topic, long partition, Long node) {
        Given<?> fields = new Given<>();
        fields.with("node", node);
        return ask("POST", List.of("topics", topic, "partitions", partition, "leader"), fields.map(), new TypeReference<Long>() {}, "leader");
    }

    /** Begin a new leader epoch, as if the leader had been elected again; return the epoch. */
    public long beginLeaderEpoch(String topic, long partition) {
        return ask("POST", List.of("topics", topic, "partitions", partition, "begin-epoch"), null, new TypeReference<Long>() {}, "leader_epoch");
    }

    /** Drop the batch with `offset` and all later ones, as an unclean election does; return the new leader epoch. */
    public long truncatePartition(String topic, long partition, long offset) {
        Given<?> fields = new Given<>();
        fields.with("offset", offset);
        return ask("POST", List.of("topics", topic, "partitions", partition, "truncate"), fields.map(), new TypeReference<Long>() {}, "leader_epoch");
    }

    /** Elect a leader for every partition that can have one. */
    public void electLeaders() {
        ask("POST", List.of("elect-leaders"), null, new TypeReference<Void>() {}, null);
    }

    /** Return the node that coordinates a group or a transactional id, or null if no node does yet. */
    public Long groupCoordinator(String group) {
        return ask("GET", List.of("groups", group, "coordinator"), null, new TypeReference<Long>() {}, "coordinator");
    }

    /** Make a node the coordinator of a group or a transactional id, and of all others in the same partition. */
    public void moveGroupCoordinator(String group, long node) {
        Given<?> fields = new Given<>();
        fields.with("node", node);
        ask("POST", List.of("groups", group, "move-coordinator"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Return the node that coordinates a group or a transactional id, or null if no node does yet. */
    public Long transactionCoordinator(String transactionalId) {
        return ask("GET", List.of("transactions", transactionalId, "coordinator"), null, new TypeReference<Long>() {}, "coordinator");
    }

    /** Make a node the coordinator of a group or a transactional id, and of all others in the same partition. */
    public void moveTransactionCoordinator(String transactionalId, long node) {
        Given<?> fields = new Given<>();
        fields.with("node", node);
        ask("POST", List.of("transactions", transactionalId, "move-coordinator"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Return the offsets that a group has committed, by topic and partition: {"orders": {0: 3}}. */
    public Map<String, Map<String, Long>> committed(String group) {
        return ask("GET", List.of("groups", group, "committed"), null, new TypeReference<Map<String, Map<String, Long>>>() {}, "committed");
    }

    /** Return how many offsets a group is behind the end of each partition of a topic: {0: 2, 1: 0}. */
    public Map<String, Long> lag(String group, String topic) {
        return ask("GET", List.of("groups", group, "lag", topic), null, new TypeReference<Map<String, Long>>() {}, "lag");
    }

    /** Make all members join again; in a KIP-848 group, a share group or a streams group, begin a new epoch. */
    public void forceRebalance(String group) {
        ask("POST", List.of("groups", group, "force-rebalance"), null, new TypeReference<Void>() {}, null);
    }

    /** Remove a member from its group, or all members, as if their sessions had expired; return their ids. */
    public List<String> evictMembers(String group) {
        return ask("POST", List.of("groups", group, "evict"), null, new TypeReference<List<String>>() {}, "members");
    }

    /** Remove a member from its group, or all members, as if their sessions had expired; return their ids. */
    public List<String> evictMembers(String group, Consumer<Eviction> options) {
        Eviction fields = new Eviction();
        options.accept(fields);
        return ask("POST", List.of("groups", group, "evict"), fields.map(), new TypeReference<List<String>>() {}, "members");
    }

    /** Delay joining until the fault with the returned number is removed. */
    public long slowJoins(String group, Duration delay) {
        Given<?> fields = new Given<>();
        fields.with("delay", delay);
        return ask("POST", List.of("groups", group, "slow-joins"), fields.map(), new TypeReference<Long>() {}, "fault");
    }

    /** Return a group of Kafka Streams (KIP-1071): its state and epochs, and its members with their tasks. */
    public StreamsGroup streamsGroup(String group) {
        return ask("GET", List.of("streams-groups", group), null, new TypeReference<StreamsGroup>() {}, null);
    }

    /** Set configs of the group, by Kafka's names: {"share.auto.offset.reset": "earliest"}. */
    public void configureShareGroup(String group, Map<String, Object> configs) {
        ask("POST", List.of("share-groups", group, "configure"), configs, new TypeReference<Void>() {}, null);
    }

    /** Return what was delivered to the group, of one topic or all, in ranges of offsets, in order. */
    public List<Delivery> deliveries(String group) {
        return ask("GET", List.of("share-groups", group, "deliveries"), null, new TypeReference<List<Delivery>>() {}, null);
    }

    /** Return what was delivered to the group, of one topic or all, in ranges of offsets, in order. */
    public List<Delivery> deliveries(String group, Consumer<DeliveriesQuery> options) {
        DeliveriesQuery fields = new DeliveriesQuery();
        options.accept(fields);
        return ask("GET", List.of("share-groups", group, "deliveries"), fields.map(), new TypeReference<List<Delivery>>() {}, null);
    }

    /** End the acquisition locks of the group, as if their time were over; return how many records they held. */
    public long expireLocks(String group) {
        return ask("POST", List.of("share-groups", group, "expire-locks"), null, new TypeReference<Long>() {}, "records");
    }

    /** Wait until all partitions of the topic are assigned, to this many members, by default any number. */
    public Map<String, List<Long>> waitUntilAssigned(String group, String topic) {
        Given<?> fields = new Given<>();
        fields.with("topic", topic);
        return ask("POST", List.of("share-groups", group, "wait-until-assigned"), fields.map(), new TypeReference<Map<String, List<Long>>>() {}, "members");
    }

    /** Wait until all partitions of the topic are assigned, to this many members, by default any number. */
    public Map<String, List<Long>> waitUntilAssigned(String group, String topic, Consumer<AssignmentWait> options) {
        AssignmentWait fields = new AssignmentWait();
        options.accept(fields);
        fields.with("topic", topic);
        return ask("POST", List.of("share-groups", group, "wait-until-assigned"), fields.map(), new TypeReference<Map<String, List<Long>>>() {}, "members");
    }

    /** Wait until all records below `offset` are acknowledged or archived; return the first offset that is not. */
    public long waitUntilSettled(String group, String topic, long offset) {
        Given<?> fields = new Given<>();
        fields.with("topic", topic);
        fields.with("offset", offset);
        return ask("POST", List.of("share-groups", group, "wait-until-settled"), fields.map(), new TypeReference<Long>() {}, "offset");
    }

    /** Wait until all records below `offset` are acknowledged or archived; return the first offset that is not. */
    public long waitUntilSettled(String group, String topic, long offset, Consumer<SettledWait> options) {
        SettledWait fields = new SettledWait();
        options.accept(fields);
        fields.with("topic", topic);
        fields.with("offset", offset);
        return ask("POST", List.of("share-groups", group, "wait-until-settled"), fields.map(), new TypeReference<Long>() {}, "offset");
    }

    /** Wait until `count` records of the topic were delivered at least this often; return all such records. */
    public List<DeliveredRecord> expectRedelivered(String group, String topic) {
        Given<?> fields = new Given<>();
        fields.with("topic", topic);
        return ask("POST", List.of("share-groups", group, "expect-redelivered"), fields.map(), new TypeReference<List<DeliveredRecord>>() {}, null);
    }

    /** Wait until `count` records of the topic were delivered at least this often; return all such records. */
    public List<DeliveredRecord> expectRedelivered(String group, String topic, Consumer<Redelivery> options) {
        Redelivery fields = new Redelivery();
        options.accept(fields);
        fields.with("topic", topic);
        return ask("POST", List.of("share-groups", group, "expect-redelivered"), fields.map(), new TypeReference<List<DeliveredRecord>>() {}, null);
    }

    /** Wait until the group has this many dead letters; return all. */
    public List<DeadLetter> expectDeadLetters(String group) {
        return ask("POST", List.of("share-groups", group, "expect-dead-letters"), null, new TypeReference<List<DeadLetter>>() {}, null);
    }

    /** Wait until the group has this many dead letters; return all. */
    public List<DeadLetter> expectDeadLetters(String group, long count) {
        Given<?> fields = new Given<>();
        fields.with("count", count);
        return ask("POST", List.of("share-groups", group, "expect-dead-letters"), fields.map(), new TypeReference<List<DeadLetter>>() {}, null);
    }

    /** Wait until the group has this many dead letters; return all. */
    public List<DeadLetter> expectDeadLetters(String group, long count, Consumer<DeadLetterWait> options) {
        DeadLetterWait fields = new DeadLetterWait();
        options.accept(fields);
        fields.with("count", count);
        return ask("POST", List.of("share-groups", group, "expect-dead-letters"), fields.map(), new TypeReference<List<DeadLetter>>() {}, null);
    }

    /** Return the group's dead letters (KIP-1191) in its topic, one partition after the other. */
    public List<DeadLetter> deadLetters(String group) {
        return ask("GET", List.of("share-groups", group, "dead-letters"), null, new TypeReference<List<DeadLetter>>() {}, null);
    }

    /** Write a dead letter for each record that is rejected or delivered too often (KIP-1191); return their topic. */
    public String collectDeadLetters(String group) {
        return ask("POST", List.of("share-groups", group, "collect-dead-letters"), null, new TypeReference<String>() {}, "topic");
    }

    /** Write a dead letter for each record that is rejected or delivered too often (KIP-1191); return their topic. */
    public String collectDeadLetters(String group, Consumer<DeadLetterQueue> options) {
        DeadLetterQueue fields = new DeadLetterQueue();
        options.accept(fields);
        return ask("POST", List.of("share-groups", group, "collect-dead-letters"), fields.map(), new TypeReference<String>() {}, "topic");
    }

    /** Return the state of its transaction as DescribeTransactions names it: Empty, Ongoing, PrepareCommit, ... */
    public String transaction(String transactionalId) {
        return ask("GET", List.of("transactions", transactionalId), null, new TypeReference<String>() {}, "state");
    }

    /** Fence the producer that has this transactional id, and abort its ongoing transaction. */
    public void fenceProducer(String transactionalId) {
        ask("POST", List.of("transactions", transactionalId, "fence"), null, new TypeReference<Void>() {}, null);
    }

    /** Keep transactions of this id in a state until `release`. */
    public void holdTransactions(String transactionalId) {
        ask("POST", List.of("transactions", transactionalId, "hold"), null, new TypeReference<Void>() {}, null);
    }

    /** Keep transactions of this id in a state until `release`. */
    public void holdTransactions(String transactionalId, Consumer<TransactionHold> options) {
        TransactionHold fields = new TransactionHold();
        options.accept(fields);
        ask("POST", List.of("transactions", transactionalId, "hold"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Release the transactions of this id. */
    public void releaseTransactions(String transactionalId) {
        ask("POST", List.of("transactions", transactionalId, "release"), null, new TypeReference<Void>() {}, null);
    }

    /** Return how clients connect. */
    public SecurityState security() {
        return ask("GET", List.of("security"), null, new TypeReference<SecurityState>() {}, null);
    }

    /** Start the broker again with this security, and these users beside those that it had; ports and data stay. */
    public void secure(String protocol) {
        Given<?> fields = new Given<>();
        fields.with("protocol", protocol);
        ask("POST", List.of("security"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Start the broker again with this security, and these users beside those that it had; ports and data stay. */
    public void secure(String protocol, Consumer<NewSecurity> options) {
        NewSecurity fields = new NewSecurity();
        options.accept(fields);
        fields.with("protocol", protocol);
        ask("POST", List.of("security"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Return the addresses of the issuer of tokens. */
    public IssuerState issuer() {
        return ask("GET", List.of("issuer"), null, new TypeReference<IssuerState>() {}, null);
    }

    /** Present another certificate to new clients. */
    public void useCertificate(String kind) {
        Given<?> fields = new Given<>();
        fields.with("kind", kind);
        ask("POST", List.of("certificate"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Remove a user; open connections stay. */
    public void removeUser(String user) {
        ask("DELETE", List.of("users", user), null, new TypeReference<Void>() {}, null);
    }

    /** Add a user, or change its password. */
    public void addUser(String name) {
        Given<?> fields = new Given<>();
        fields.with("name", name);
        ask("POST", List.of("users"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Add a user, or change its password. */
    public void addUser(String name, Consumer<NewUser> options) {
        NewUser fields = new NewUser();
        options.accept(fields);
        fields.with("name", name);
        ask("POST", List.of("users"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Return what a client needs to connect, as its library takes it: addresses, certificates, name and password. */
    public Map<String, Object> clientConfig(String library) {
        Given<?> fields = new Given<>();
        fields.with("library", library);
        return ask("POST", List.of("client-config"), fields.map(), new TypeReference<Map<String, Object>>() {}, null);
    }

    /** Return what a client needs to connect, as its library takes it: addresses, certificates, name and password. */
    public Map<String, Object> clientConfig(String library, Consumer<ClientOptions> options) {
        ClientOptions fields = new ClientOptions();
        options.accept(fields);
        fields.with("library", library);
        return ask("POST", List.of("client-config"), fields.map(), new TypeReference<Map<String, Object>>() {}, null);
    }

    /** Allow an operation to a user. */
    public void allow(String user, String operation) {
        Given<?> fields = new Given<>();
        fields.with("user", user);
        fields.with("operation", operation);
        ask("POST", List.of("acls", "allow"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Allow an operation to a user. */
    public void allow(String user, String operation, Consumer<AclRule> options) {
        AclRule fields = new AclRule();
        options.accept(fields);
        fields.with("user", user);
        fields.with("operation", operation);
        ask("POST", List.of("acls", "allow"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Deny an operation to a user, although it may be allowed, too. */
    public void deny(String user, String operation) {
        Given<?> fields = new Given<>();
        fields.with("user", user);
        fields.with("operation", operation);
        ask("POST", List.of("acls", "deny"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Deny an operation to a user, although it may be allowed, too. */
    public void deny(String user, String operation, Consumer<AclRule> options) {
        AclRule fields = new AclRule();
        options.accept(fields);
        fields.with("user", user);
        fields.with("operation", operation);
        ask("POST", List.of("acls", "deny"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Remove all ACLs. */
    public void clearAcls() {
        ask("DELETE", List.of("acls"), null, new TypeReference<Void>() {}, null);
    }

    /** Set quotas of a user, a client id, both, or an address; "*" is the default. */
    public void setQuotas() {
        ask("POST", List.of("quotas"), null, new TypeReference<Void>() {}, null);
    }

    /** Set quotas of a user, a client id, both, or an address; "*" is the default. */
    public void setQuotas(Consumer<Quotas> options) {
        Quotas fields = new Quotas();
        options.accept(fields);
        ask("POST", List.of("quotas"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Remove the quotas of a user, a client id, both, or an address. */
    public void removeQuotas() {
        ask("POST", List.of("quotas", "remove"), null, new TypeReference<Void>() {}, null);
    }

    /** Remove the quotas of a user, a client id, both, or an address. */
    public void removeQuotas(Consumer<QuotaEntity> options) {
        QuotaEntity fields = new QuotaEntity();
        options.accept(fields);
        ask("POST", List.of("quotas", "remove"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Return a token of a user, who need not exist. */
    public String issueToken(String user) {
        Given<?> fields = new Given<>();
        fields.with("user", user);
        return ask("POST", List.of("issuer", "token"), fields.map(), new TypeReference<String>() {}, "token");
    }

    /** Return a token of a user, who need not exist. */
    public String issueToken(String user, Consumer<UserTokenOptions> options) {
        UserTokenOptions fields = new UserTokenOptions();
        options.accept(fields);
        fields.with("user", user);
        return ask("POST", List.of("issuer", "token"), fields.map(), new TypeReference<String>() {}, "token");
    }

    /** Let clients get such tokens from now on, until a reset; without options, good ones. */
    public void useTokens() {
        ask("POST", List.of("issuer", "use-tokens"), null, new TypeReference<Void>() {}, null);
    }

    /** Let clients get such tokens from now on, until a reset; without options, good ones. */
    public void useTokens(Consumer<IssuedTokenOptions> options) {
        IssuedTokenOptions fields = new IssuedTokenOptions();
        options.accept(fields);
        ask("POST", List.of("issuer", "use-tokens"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Sign with a new key from now on, and forget the old ones unless `keep_old`. */
    public void rotateIssuerKeys() {
        ask("POST", List.of("issuer", "rotate-keys"), null, new TypeReference<Void>() {}, null);
    }

    /** Sign with a new key from now on, and forget the old ones unless `keep_old`. */
    public void rotateIssuerKeys(Consumer<Rotation> options) {
        Rotation fields = new Rotation();
        options.accept(fields);
        ask("POST", List.of("issuer", "rotate-keys"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Return an assertion that a user has signed, as the token endpoint takes it. */
    public String makeAssertion(String user) {
        Given<?> fields = new Given<>();
        fields.with("user", user);
        return ask("POST", List.of("issuer", "assertion"), fields.map(), new TypeReference<String>() {}, "assertion");
    }

    /** Return the private key (PEM) with which a user signs assertions. */
    public String clientKey(String user) {
        Given<?> fields = new Given<>();
        fields.with("user", user);
        return ask("POST", List.of("issuer", "client-key"), fields.map(), new TypeReference<String>() {}, "key");
    }

    /** Return the tokens that have not expired. */
    public List<DelegationToken> delegationTokens() {
        return ask("GET", List.of("delegation-tokens"), null, new TypeReference<List<DelegationToken>>() {}, null);
    }

    /** Remove a token, or all: nobody logs in with it any more. Open sessions go on until it would have expired. */
    public void expireDelegationTokens() {
        ask("DELETE", List.of("delegation-tokens"), null, new TypeReference<Void>() {}, null);
    }

    /** Create a token of a user, which `renewers` may renew, too. */
    public DelegationToken createDelegationToken(String user) {
        Given<?> fields = new Given<>();
        fields.with("user", user);
        return ask("POST", List.of("delegation-tokens"), fields.map(), new TypeReference<DelegationToken>() {}, null);
    }

    /** Create a token of a user, which `renewers` may renew, too. */
    public DelegationToken createDelegationToken(String user, Consumer<NewDelegationToken> options) {
        NewDelegationToken fields = new NewDelegationToken();
        options.accept(fields);
        fields.with("user", user);
        return ask("POST", List.of("delegation-tokens"), fields.map(), new TypeReference<DelegationToken>() {}, null);
    }

    /** Remove a token. Open sessions continue. */
    public void expireDelegationToken(String token) {
        ask("DELETE", List.of("delegation-tokens", token), null, new TypeReference<Void>() {}, null);
    }

    /** Let a token expire later, or sooner; by default as late as possible. */
    public DelegationToken renewDelegationToken(String token) {
        return ask("POST", List.of("delegation-tokens", token, "renew"), null, new TypeReference<DelegationToken>() {}, null);
    }

    /** Let a token expire later, or sooner; by default as late as possible. */
    public DelegationToken renewDelegationToken(String token, Consumer<TokenRenewal> options) {
        TokenRenewal fields = new TokenRenewal();
        options.accept(fields);
        return ask("POST", List.of("delegation-tokens", token, "renew"), fields.map(), new TypeReference<DelegationToken>() {}, null);
    }

    /** Return what a client needs to log in with a token. */
    public Map<String, Object> clientConfigWithToken(String token, String library) {
        Given<?> fields = new Given<>();
        fields.with("library", library);
        return ask("POST", List.of("delegation-tokens", token, "client-config"), fields.map(), new TypeReference<Map<String, Object>>() {}, null);
    }

    /** Return what a client needs to log in with a token. */
    public Map<String, Object> clientConfigWithToken(String token, String library, Consumer<TokenClient> options) {
        TokenClient fields = new TokenClient();
        options.accept(fields);
        fields.with("library", library);
        return ask("POST", List.of("delegation-tokens", token, "client-config"), fields.map(), new TypeReference<Map<String, Object>>() {}, null);
    }

    /** Ask clients that connect from now on for their metrics: those with such beginnings of their names, or all. */
    public void collectClientMetrics() {
        ask("POST", List.of("client-metrics"), null, new TypeReference<Void>() {}, null);
    }

    /** Ask clients that connect from now on for their metrics: those with such beginnings of their names, or all. */
    public void collectClientMetrics(Consumer<MetricsAsked> options) {
        MetricsAsked fields = new MetricsAsked();
        options.accept(fields);
        ask("POST", List.of("client-metrics"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Return the metrics that clients with this id, or all, have pushed; those of clients that have left, too. */
    public List<Metric> clientMetrics() {
        return ask("GET", List.of("client-metrics"), null, new TypeReference<List<Metric>>() {}, null);
    }

    /** Return the metrics that clients with this id, or all, have pushed; those of clients that have left, too. */
    public List<Metric> clientMetrics(Consumer<ClientMetricsQuery> options) {
        ClientMetricsQuery fields = new ClientMetricsQuery();
        options.accept(fields);
        return ask("GET", List.of("client-metrics"), fields.map(), new TypeReference<List<Metric>>() {}, null);
    }

    /** Return the address of the registry. */
    public String registryUrl() {
        return ask("GET", List.of("registry"), null, new TypeReference<String>() {}, "url");
    }

    /** Return the names of the subjects. */
    public List<String> subjects() {
        return ask("GET", List.of("registry", "subjects"), null, new TypeReference<List<String>>() {}, "subjects");
    }

    /** Register a schema, unless the subject has it; return its id. An incompatible one is refused. */
    public long registerSchema(String subject, Object schema) {
        Given<?> fields = new Given<>();
        fields.with("subject", subject);
        fields.with("schema", schema);
        return ask("POST", List.of("registry", "schemas"), fields.map(), new TypeReference<Long>() {}, "id");
    }

    /** Register a schema, unless the subject has it; return its id. An incompatible one is refused. */
    public long registerSchema(String subject, Object schema, Consumer<NewSubjectSchema> options) {
        NewSubjectSchema fields = new NewSubjectSchema();
        options.accept(fields);
        fields.with("subject", subject);
        fields.with("schema", schema);
        return ask("POST", List.of("registry", "schemas"), fields.map(), new TypeReference<Long>() {}, "id");
    }

    /** Return the text of a version of a subject, by default the latest. */
    public String schema(String subject) {
        Given<?> fields = new Given<>();
        fields.with("subject", subject);
        return ask("GET", List.of("registry", "schemas"), fields.map(), new TypeReference<String>() {}, "schema");
    }

    /** Return the text of a version of a subject, by default the latest. */
    public String schema(String subject, Consumer<SchemaQuery> options) {
        SchemaQuery fields = new SchemaQuery();
        options.accept(fields);
        fields.with("subject", subject);
        return ask("GET", List.of("registry", "schemas"), fields.map(), new TypeReference<String>() {}, "schema");
    }

    /** Set the level of a subject, or of all: "NONE", "BACKWARD", "FULL_TRANSITIVE", ... */
    public void setCompatibility(String level) {
        Given<?> fields = new Given<>();
        fields.with("level", level);
        ask("POST", List.of("registry", "compatibility"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Set the level of a subject, or of all: "NONE", "BACKWARD", "FULL_TRANSITIVE", ... */
    public void setCompatibility(String level, Consumer<CompatibilityLevel> options) {
        CompatibilityLevel fields = new CompatibilityLevel();
        options.accept(fields);
        fields.with("level", level);
        ask("POST", List.of("registry", "compatibility"), fields.map(), new TypeReference<Void>() {}, null);
    }

    /** Return the requests to the registry since the last reset, the newest 1000, oldest first. */
    public List<SeenRegistryRequest> registryRequests() {
        return ask("GET", List.of("registry", "requests"), null, new TypeReference<List<SeenRegistryRequest>>() {}, null);
    }

    /** Return the requests to the registry since the last reset, the newest 1000, oldest first. */
    public List<SeenRegistryRequest> registryRequests(Consumer<RegistryRequestsQuery> options) {
        RegistryRequestsQuery fields = new RegistryRequestsQuery();
        options.accept(fields);
        return ask("GET", List.of("registry", "requests"), fields.map(), new TypeReference<List<SeenRegistryRequest>>() {}, null);
    }

    /** Return all faults of the registry, oldest first. */
    public List<RegistryFaultState> registryFaults() {
        return ask("GET", List.of("registry", "faults"), null, new TypeReference<List<RegistryFaultState>>() {}, null);
    }

    /** Add a fault: {"code": 503, "times": 2}, {"delay": "2 s", "path": "/subjects/*"} or {"unknown_id": 1}. */
    public RegistryFaultState addRegistryFault() {
        return ask("POST", List.of("registry", "faults"), null, new TypeReference<RegistryFaultState>() {}, null);
    }

    /** Add a fault: {"code": 503, "times": 2}, {"delay": "2 s", "path": "/subjects/*"} or {"unknown_id": 1}. */
    public RegistryFaultState addRegistryFault(Consumer<NewRegistryFault> options) {
        NewRegistryFault fields = new NewRegistryFault();
        options.accept(fields);
        return ask("POST", List.of("registry", "faults"), fields.map(), new TypeReference<RegistryFaultState>() {}, null);
    }

    /** Remove all faults of the registry. */
    public void clearRegistryFaults() {
        ask("DELETE", List.of("registry", "faults"), null, new TypeReference<Void>() {}, null);
    }

    /** Return how often the fault has struck. */
    public RegistryFaultState registryFault(long number) {
        return ask("GET", List.of("registry", "faults", number), null, new TypeReference<RegistryFaultState>() {}, null);
    }

    /** Remove the fault. */
    public void removeRegistryFault(long number) {
        ask("DELETE", List.of("registry", "faults", number), null, new TypeReference<Void>() {}, null);
    }

    /** The broker's address; while it is up also the ends of partitions by topic, and the groups by id. A partition without a log has null. */
    public record BrokerState(
        String bootstrapServers,
        long nodes,
        boolean running,
        Map<String, List<Long>> topics,
        Map<String, GroupState> groups) {}

    /** The broker's time. */
    public record ClockState(
        long nowMs,
        boolean frozen) {}

    /** A dead letter: the record that it stands for, how often that was delivered, and why not any more. */
    public record DeadLetter(
        String topic,
        long partition,
        long offset,
        String key,
        String value,
        List<List<String>> headers,
        long timestampMs,
        String timestampType,
        String transaction,
        long producerId,
        long producerEpoch,
        long sequence,
        long leaderEpoch,
        long magic,
        String sourceTopic,
        long sourcePartition,
        long sourceOffset,
        long deliveries,
        String reason,
        String keyHex,
        String valueHex) {}

    /** A delegation token. A client logs in by SCRAM with `id` and `secret`; times are in ms since 1970. */
    public record DelegationToken(
        String id,
        String secret,
        String user,
        List<String> renewers,
        long issuedMs,
        long expiresMs,
        long maxMs) {}

    /** A record, how often it was delivered to the group, and its state and member as in `Delivery`. */
    public record DeliveredRecord(
        String topic,
        long partition,
        long offset,
        String key,
        String value,
        List<List<String>> headers,
        long timestampMs,
        String timestampType,
        String transaction,
        long producerId,
        long producerEpoch,
        long sequence,
        long leaderEpoch,
        long magic,
        long deliveries,
        String state,
        String member,
        String keyHex,
        String valueHex) {}

    /** Records of a partition, from the offset `first` to `last`, with the same state and number of deliveries. `state` is "acquired" (by `member`), "available" (released, or its lock has ended), "acknowledged", "archived" (rejected, or delivered as often as the group allows), or "archiving" until its dead letter is written. */
    public record Delivery(
        String topic,
        long partition,
        long first,
        long last,
        String state,
        long deliveries,
        String member) {}

    /** A fault, and how often it matched and struck. */
    public record FaultState(
        long number,
        String rule,
        long matches,
        long hits) {}

    /** A group: its type, state, the ids of its members, and its committed offsets by TOPIC-PARTITION. */
    public record GroupState(
        String type,
        String state,
        List<String> members,
        Map<String, Long> committed) {}

    /** The addresses of the issuer of tokens. */
    public record IssuerState(
        String url,
        String tokenEndpoint,
        String jwksUrl) {}

    /** Whether the journal is on, how many requests it has, and how many it dropped for newer ones. */
    public record JournalState(
        boolean on,
        long kept,
        long dropped) {}

    /** A metric that a client pushed: its newest value, or the sum of its pushes for one that counts. */
    public record Metric(
        String clientId,
        String clientInstanceId,
        String name,
        Map<String, String> attributes,
        double value) {}

    /** A record as it is stored in the log. `timestamp_ms` is -1 in message format 0, which has none; `timestamp_type` is "create" or "append". `transaction` is None outside of transactions, or else "committed", "aborted" or "open". `sequence` is -1 without a producer id. */
    public record SeenRecord(
        String topic,
        long partition,
        long offset,
        String key,
        String value,
        List<List<String>> headers,
        long timestampMs,
        String timestampType,
        String transaction,
        long producerId,
        long producerEpoch,
        long sequence,
        long leaderEpoch,
        long magic,
        String keyHex,
        String valueHex) {}

    /** A fault, and how often it struck. */
    public record RegistryFaultState(
        long number,
        long hits) {}

    /** The protocol, the users, the certificate (PEM) of the authority if there is TLS, and the issuer if there is SASL. The protocol is null for a broker without security. */
    public record SecurityState(
        String protocol,
        List<String> users,
        String authority,
        IssuerState issuer) {}

    /** A request to the registry, and its answer. `after` is the number of the last request in the journal before it. */
    public record SeenRegistryRequest(
        String method,
        String path,
        String body,
        long status,
        String answer,
        double durationMs,
        String user,
        long after) {}

    /** A request of the journal, and its outcome. `raw` has request and answer, decoded and in hexadecimal digits. */
    public record SeenRequest(
        long number,
        String api,
        long version,
        String clientId,
        long node,
        String connection,
        String user,
        String mechanism,
        String outcome,
        Double durationMs,
        List<String> errors,
        List<String> refusals,
        List<String> faults,
        Map<String, Object> raw) {}

    /** A group: `topology_epoch` is None before the first member, `source_topics` are those of all subtopologies. */
    public record StreamsGroup(
        String state,
        long epoch,
        long assignmentEpoch,
        Long topologyEpoch,
        List<String> sourceTopics,
        List<StreamsMember> members) {}

    /** A member, and the tasks that it has been told to run, by role. */
    public record StreamsMember(
        String member,
        String instance,
        String clientId,
        String process,
        long epoch,
        Map<String, List<Long>> active,
        Map<String, List<Long>> standby,
        Map<String, List<Long>> warmup) {}

    /** A fault: which requests it applies to, what it does to them, and how often. */
    public static final class NewFault extends Given<NewFault> {
        /** The API's name in Kafka, or a list of names. */
        public NewFault api(Object value) {
            return with("api", value);
        }
        /** Versions of the API: `9`, `"3-9"`, `"12+"`. */
        public NewFault version(Object value) {
            return with("version", value);
        }
        /** The broker that receives the request. */
        public NewFault node(long value) {
            return with("node", value);
        }
        /** The client id of the sender. */
        public NewFault clientId(String value) {
            return with("client_id", value);
        }
        /** Requests of the user, by its name; with `authentication`, its logins. */
        public NewFault user(String value) {
            return with("user", value);
        }
        /** Requests of clients that log in by this SASL mechanism; with `authentication`, these logins. */
        public NewFault mechanism(String value) {
            return with("mechanism", value);
        }
        /** Requests that name the topic; only that part of them fails. */
        public NewFault topic(String value) {
            return with("topic", value);
        }
        /** Requests that name the partition; only that part of them fails. */
        public NewFault partition(long value) {
            return with("partition", value);
        }
        /** Requests that name the group. */
        public NewFault group(String value) {
            return with("group", value);
        }
        /** Requests that name the transactional id. */
        public NewFault transactionalId(String value) {
            return with("transactional_id", value);
        }
        /** Answers with this error, given by its name in Kafka. */
        public NewFault error(String value) {
            return with("error", value);
        }
        /** Whether `error` or silence replaces the request's effect (`before`, the default) or follows it. */
        public NewFault when(Object value) {
            return with("when", value);
        }
        /** The level of the answer that has `error`; by default the deepest. */
        public NewFault level(Object value) {
            return with("level", value);
        }
        /** Disconnects the client without an answer, before or after the effect. */
        public NewFault close(Object value) {
            return with("close", value);
        }
        /** Sends half the answer and disconnects, sends nothing, or sends a wrong correlation id. */
        public NewFault answer(Object value) {
            return with("answer", value);
        }
        /** Damages the first batch of a Fetch or ShareFetch: its checksum, length, codec, end, or offsets. */
        public NewFault corrupt(Object value) {
            return with("corrupt", value);
        }
        /** Refuses a login with valid credentials, ends its session early, answers it late (by `delay`), or does not support its mechanism. */
        public NewFault authentication(Object value) {
            return with("authentication", value);
        }
        /** How long a session lasts with `expire`. The answer to the login has this time (KIP-368). Without `session`, the session ends at once, and the answer does not say so. */
        public NewFault session(Duration value) {
            return with("session", value);
        }
        /** Holds the request back, in the broker's time. */
        public NewFault delay(Duration value) {
            return with("delay", value);
        }
        /** Sets the throttle time in the answer, which asks the client to pause. */
        public NewFault throttle(Duration value) {
            return with("throttle", value);
        }
        /** Strikes only on the match with this number. */
        public NewFault nth(long value) {
            return with("nth", value);
        }
        /** Strikes at most this often; by default without limit. */
        public NewFault times(long value) {
            return with("times", value);
        }
        /** The same as `times=1`. */
        public NewFault once(boolean value) {
            return with("once", value);
        }
        /** The probability that it strikes on a match. */
        public NewFault probability(double value) {
            return with("probability", value);
        }
        /** Makes `probability` repeatable. */
        public NewFault seed(long value) {
            return with("seed", value);
        }
        /** The fault's name in reports. */
        public NewFault name(String value) {
            return with("name", value);
        }
    }

    /** A name in a schema, and the subject and the version (-1: the latest) that it stands for. */
    public static final class SchemaReference extends Given<SchemaReference> {
        public SchemaReference name(String value) {
            return with("name", value);
        }
        public SchemaReference subject(String value) {
            return with("subject", value);
        }
        public SchemaReference version(long value) {
            return with("version", value);
        }
    }

    /** What {@code createTopic} takes. */
    public static final class NewTopic extends Given<NewTopic> {
        public NewTopic partitions(long value) {
            return with("partitions", value);
        }
        public NewTopic config(Map<String, Object> value) {
            return with("config", value);
        }
    }

    /** What {@code produceRecords} takes. */
    public static final class NewRecords extends Given<NewRecords> {
        public NewRecords values(List<String> value) {
            return with("values", value);
        }
        /** Instead of `values`. */
        public NewRecords valuesHex(List<String> value) {
            return with("values_hex", value);
        }
        public NewRecords key(String value) {
            return with("key", value);
        }
        /** Instead of `key`. */
        public NewRecords keyHex(String value) {
            return with("key_hex", value);
        }
        public NewRecords partition(long value) {
            return with("partition", value);
        }
        public NewRecords headers(Map<String, String> value) {
            return with("headers", value);
        }
        /** The broker's time by default. */
        public NewRecords timestampMs(long value) {
            return with("timestamp_ms", value);
        }
    }

    /** What {@code records} takes. */
    public static final class RecordsQuery extends Given<RecordsQuery> {
        public RecordsQuery partition(long value) {
            return with("partition", value);
        }
    }

    /** What {@code expect} takes. */
    public static final class Expectation extends Given<Expectation> {
        public Expectation timeout(Duration value) {
            return with("timeout", value);
        }
        /** Do not count records of open and aborted transactions. */
        public Expectation committed(boolean value) {
            return with("committed", value);
        }
    }

    /** What {@code expectNothing} takes. */
    public static final class Silence extends Given<Silence> {
        public Silence during(Duration value) {
            return with("during", value);
        }
    }

    /** What {@code requests} takes. */
    public static final class RequestsQuery extends Given<RequestsQuery> {
        /** Include each request and answer, decoded and in hexadecimal digits. */
        public RequestsQuery raw(boolean value) {
            return with("raw", value);
        }
        public RequestsQuery clientId(String value) {
            return with("client_id", value);
        }
        public RequestsQuery user(String value) {
            return with("user", value);
        }
        /** SCRAM-SHA-512 by default. */
        public RequestsQuery mechanism(String value) {
            return with("mechanism", value);
        }
        public RequestsQuery group(String value) {
            return with("group", value);
        }
        public RequestsQuery node(long value) {
            return with("node", value);
        }
        public RequestsQuery error(String value) {
            return with("error", value);
        }
    }

    /** What {@code waitForRequests} takes. */
    public static final class RequestWait extends Given<RequestWait> {
        public RequestWait timeout(Duration value) {
            return with("timeout", value);
        }
        public RequestWait clientId(String value) {
            return with("client_id", value);
        }
        public RequestWait user(String value) {
            return with("user", value);
        }
        /** SCRAM-SHA-512 by default. */
        public RequestWait mechanism(String value) {
            return with("mechanism", value);
        }
        public RequestWait group(String value) {
            return with("group", value);
        }
        public RequestWait node(long value) {
            return with("node", value);
        }
        public RequestWait error(String value) {
            return with("error", value);
        }
    }

    /** What {@code waitForGroup} takes. */
    public static final class GroupWait extends Given<GroupWait> {
        /** How many; by default any number. */
        public GroupWait members(long value) {
            return with("members", value);
        }
        public GroupWait state(String value) {
            return with("state", value);
        }
        public GroupWait timeout(Duration value) {
            return with("timeout", value);
        }
    }

    /** What {@code waitUntilCaughtUp} takes. */
    public static final class CaughtUpWait extends Given<CaughtUpWait> {
        public CaughtUpWait timeout(Duration value) {
            return with("timeout", value);
        }
    }

    /** What {@code waitForCommit} takes. */
    public static final class CommitWait extends Given<CommitWait> {
        public CommitWait partition(long value) {
            return with("partition", value);
        }
        public CommitWait offset(long value) {
            return with("offset", value);
        }
        public CommitWait timeout(Duration value) {
            return with("timeout", value);
        }
    }

    /** What {@code waitForHighWatermark} takes. */
    public static final class WatermarkWait extends Given<WatermarkWait> {
        public WatermarkWait partition(long value) {
            return with("partition", value);
        }
        public WatermarkWait timeout(Duration value) {
            return with("timeout", value);
        }
    }

    /** What {@code waitForHits} takes. */
    public static final class HitWait extends Given<HitWait> {
        public HitWait timeout(Duration value) {
            return with("timeout", value);
        }
    }

    /** What {@code evictMembers} takes. */
    public static final class Eviction extends Given<Eviction> {
        public Eviction member(String value) {
            return with("member", value);
        }
    }

    /** What {@code deliveries} takes. */
    public static final class DeliveriesQuery extends Given<DeliveriesQuery> {
        public DeliveriesQuery topic(String value) {
            return with("topic", value);
        }
    }

    /** What {@code waitUntilAssigned} takes. */
    public static final class AssignmentWait extends Given<AssignmentWait> {
        public AssignmentWait members(long value) {
            return with("members", value);
        }
        public AssignmentWait timeout(Duration value) {
            return with("timeout", value);
        }
    }

    /** What {@code waitUntilSettled} takes. */
    public static final class SettledWait extends Given<SettledWait> {
        public SettledWait partition(long value) {
            return with("partition", value);
        }
        public SettledWait timeout(Duration value) {
            return with("timeout", value);
        }
    }

    /** What {@code expectRedelivered} takes. */
    public static final class Redelivery extends Given<Redelivery> {
        public Redelivery count(long value) {
            return with("count", value);
        }
        /** The least number of deliveries of each record. */
        public Redelivery deliveries(long value) {
            return with("deliveries", value);
        }
        public Redelivery timeout(Duration value) {
            return with("timeout", value);
        }
    }

    /** What {@code expectDeadLetters} takes. */
    public static final class DeadLetterWait extends Given<DeadLetterWait> {
        public DeadLetterWait timeout(Duration value) {
            return with("timeout", value);
        }
    }

    /** What {@code collectDeadLetters} takes. */
    public static final class DeadLetterQueue extends Given<DeadLetterQueue> {
        public DeadLetterQueue topic(String value) {
            return with("topic", value);
        }
        /** Whether dead letters have keys and values. */
        public DeadLetterQueue copies(boolean value) {
            return with("copies", value);
        }
    }

    /** What {@code holdTransactions} takes. */
    public static final class TransactionHold extends Given<TransactionHold> {
        public TransactionHold state(String value) {
            return with("state", value);
        }
    }

    /** What {@code secure} takes. */
    public static final class NewSecurity extends Given<NewSecurity> {
        public NewSecurity users(Map<String, String> value) {
            return with("users", value);
        }
    }

    /** What {@code addUser} takes. */
    public static final class NewUser extends Given<NewUser> {
        public NewUser password(String value) {
            return with("password", value);
        }
    }

    /** What {@code clientConfig} takes. */
    public static final class ClientOptions extends Given<ClientOptions> {
        public ClientOptions user(String value) {
            return with("user", value);
        }
        /** SCRAM-SHA-512 by default. */
        public ClientOptions mechanism(String value) {
            return with("mechanism", value);
        }
    }

    /** What {@code allow} takes. */
    public static final class AclRule extends Given<AclRule> {
        /** A name, a prefix that ends with "*", or "*" for all. */
        public AclRule topic(String value) {
            return with("topic", value);
        }
        public AclRule group(String value) {
            return with("group", value);
        }
        public AclRule transactionalId(String value) {
            return with("transactional_id", value);
        }
        public AclRule host(String value) {
            return with("host", value);
        }
    }

    /** What {@code setQuotas} takes. */
    public static final class Quotas extends Given<Quotas> {
        public Quotas user(String value) {
            return with("user", value);
        }
        public Quotas clientId(String value) {
            return with("client_id", value);
        }
        public Quotas ip(String value) {
            return with("ip", value);
        }
        public Quotas producerByteRate(double value) {
            return with("producer_byte_rate", value);
        }
        public Quotas consumerByteRate(double value) {
            return with("consumer_byte_rate", value);
        }
        public Quotas requestPercentage(double value) {
            return with("request_percentage", value);
        }
        public Quotas controllerMutationRate(double value) {
            return with("controller_mutation_rate", value);
        }
        public Quotas connectionCreationRate(double value) {
            return with("connection_creation_rate", value);
        }
    }

    /** What {@code removeQuotas} takes. */
    public static final class QuotaEntity extends Given<QuotaEntity> {
        public QuotaEntity user(String value) {
            return with("user", value);
        }
        public QuotaEntity clientId(String value) {
            return with("client_id", value);
        }
        public QuotaEntity ip(String value) {
            return with("ip", value);
        }
    }

    /** What {@code issueToken} takes. */
    public static final class UserTokenOptions extends Given<UserTokenOptions> {
        public UserTokenOptions expiresIn(Duration value) {
            return with("expires_in", value);
        }
        public UserTokenOptions audience(String value) {
            return with("audience", value);
        }
        public UserTokenOptions issuer(String value) {
            return with("issuer", value);
        }
        public UserTokenOptions scope(String value) {
            return with("scope", value);
        }
        /** false: signed by an unknown key. */
        public UserTokenOptions trusted(boolean value) {
            return with("trusted", value);
        }
        public UserTokenOptions claims(Map<String, Object> value) {
            return with("claims", value);
        }
    }

    /** What {@code useTokens} takes. */
    public static final class IssuedTokenOptions extends Given<IssuedTokenOptions> {
        public IssuedTokenOptions expiresIn(Duration value) {
            return with("expires_in", value);
        }
        public IssuedTokenOptions audience(String value) {
            return with("audience", value);
        }
        public IssuedTokenOptions issuer(String value) {
            return with("issuer", value);
        }
        public IssuedTokenOptions scope(String value) {
            return with("scope", value);
        }
        /** false: signed by an unknown key. */
        public IssuedTokenOptions trusted(boolean value) {
            return with("trusted", value);
        }
        public IssuedTokenOptions claims(Map<String, Object> value) {
            return with("claims", value);
        }
    }

    /** What {@code rotateIssuerKeys} takes. */
    public static final class Rotation extends Given<Rotation> {
        public Rotation keepOld(boolean value) {
            return with("keep_old", value);
        }
    }

    /** What {@code createDelegationToken} takes. */
    public static final class NewDelegationToken extends Given<NewDelegationToken> {
        public NewDelegationToken renewers(List<String> value) {
            return with("renewers", value);
        }
        public NewDelegationToken maxLifetime(Duration value) {
            return with("max_lifetime", value);
        }
    }

    /** What {@code renewDelegationToken} takes. */
    public static final class TokenRenewal extends Given<TokenRenewal> {
        public TokenRenewal period(Duration value) {
            return with("period", value);
        }
    }

    /** What {@code clientConfigWithToken} takes. */
    public static final class TokenClient extends Given<TokenClient> {
        /** SCRAM-SHA-512 by default. */
        public TokenClient mechanism(String value) {
            return with("mechanism", value);
        }
    }

    /** What {@code collectClientMetrics} takes. */
    public static final class MetricsAsked extends Given<MetricsAsked> {
        public MetricsAsked names(List<String> value) {
            return with("names", value);
        }
        public MetricsAsked interval(Duration value) {
            return with("interval", value);
        }
    }

    /** What {@code clientMetrics} takes. */
    public static final class ClientMetricsQuery extends Given<ClientMetricsQuery> {
        public ClientMetricsQuery clientId(String value) {
            return with("client_id", value);
        }
    }

    /** What {@code registerSchema} takes. */
    public static final class NewSubjectSchema extends Given<NewSubjectSchema> {
        public NewSubjectSchema kind(String value) {
            return with("kind", value);
        }
        public NewSubjectSchema references(List<SchemaReference> value) {
            return with("references", value);
        }
    }

    /** What {@code schema} takes. */
    public static final class SchemaQuery extends Given<SchemaQuery> {
        public SchemaQuery version(long value) {
            return with("version", value);
        }
    }

    /** What {@code setCompatibility} takes. */
    public static final class CompatibilityLevel extends Given<CompatibilityLevel> {
        public CompatibilityLevel subject(String value) {
            return with("subject", value);
        }
    }

    /** What {@code registryRequests} takes. */
    public static final class RegistryRequestsQuery extends Given<RegistryRequestsQuery> {
        public RegistryRequestsQuery method(String value) {
            return with("method", value);
        }
        /** Of requests, with `*` for anything: /subjects/*&#47;versions. */
        public RegistryRequestsQuery path(String value) {
            return with("path", value);
        }
    }

    /** What {@code addRegistryFault} takes. */
    public static final class NewRegistryFault extends Given<NewRegistryFault> {
        public NewRegistryFault code(long value) {
            return with("code", value);
        }
        public NewRegistryFault message(String value) {
            return with("message", value);
        }
        public NewRegistryFault delay(Duration value) {
            return with("delay", value);
        }
        public NewRegistryFault unknownId(long value) {
            return with("unknown_id", value);
        }
        public NewRegistryFault method(String value) {
            return with("method", value);
        }
        /** Of requests, with `*` for anything: /subjects/*&#47;versions. */
        public NewRegistryFault path(String value) {
            return with("path", value);
        }
        public NewRegistryFault times(long value) {
            return with("times", value);
        }
    }

}
