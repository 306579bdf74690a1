// Written by `python3 -m kits.generating` from the description of the control. Do not edit.

package minibroker

import "time"

// BrokerState is the broker's address; while it is up also the ends of partitions by topic, and the groups by
// id. A partition without a log has null.
type BrokerState struct {
	BootstrapServers string                `json:"bootstrap_servers"`
	Nodes            int                   `json:"nodes"`
	Running          bool                  `json:"running"`
	Topics           map[string][]*int     `json:"topics"`
	Groups           map[string]GroupState `json:"groups"`
}

// ClockState is the broker's time.
type ClockState struct {
	NowMs  int  `json:"now_ms"`
	Frozen bool `json:"frozen"`
}

// DeadLetter is a dead letter: the record that it stands for, how often that was delivered, and why not any
// more.
type DeadLetter struct {
	Topic           string      `json:"topic"`
	Partition       int         `json:"partition"`
	Offset          int         `json:"offset"`
	Headers         [][2]string `json:"headers"`
	TimestampMs     int         `json:"timestamp_ms"`
	TimestampType   string      `json:"timestamp_type"`
	Transaction     string      `json:"transaction"`
	ProducerID      int         `json:"producer_id"`
	ProducerEpoch   int         `json:"producer_epoch"`
	Sequence        int         `json:"sequence"`
	LeaderEpoch     int         `json:"leader_epoch"`
	Magic           int         `json:"magic"`
	SourceTopic     string      `json:"source_topic"`
	SourcePartition int         `json:"source_partition"`
	SourceOffset    int         `json:"source_offset"`
	Deliveries      int         `json:"deliveries"`
	Reason          string      `json:"reason"`
	Key             Bytes       `json:"key_hex"`
	Value           Bytes       `json:"value_hex"`
}

// DelegationToken is a delegation token. A client logs in by SCRAM with id and secret; times are in ms since
// 1970.
type DelegationToken struct {
	ID        string   `json:"id"`
	Secret    string   `json:"secret"`
	User      string   `json:"user"`
	Renewers  []string `json:"renewers"`
	IssuedMs  int      `json:"issued_ms"`
	ExpiresMs int      `json:"expires_ms"`
	MaxMs     int      `json:"max_ms"`
}

// DeliveredRecord is a record, how often it was delivered to the group, and its state and member as in
// Delivery.
type DeliveredRecord struct {
	Topic         string      `json:"topic"`
	Partition     int         `json:"partition"`
	Offset        int         `json:"offset"`
	Headers       [][2]string `json:"headers"`
	TimestampMs   int         `json:"timestamp_ms"`
	TimestampType string      `json:"timestamp_type"`
	Transaction   string      `json:"transaction"`
	ProducerID    int         `json:"producer_id"`
	ProducerEpoch int         `json:"producer_epoch"`
	Sequence      int         `json:"sequence"`
	LeaderEpoch   int         `json:"leader_epoch"`
	Magic         int         `json:"magic"`
	Deliveries    int         `json:"deliveries"`
	State         string      `json:"state"`
	Member        string      `json:"member"`
	Key           Bytes       `json:"key_hex"`
	Value         Bytes       `json:"value_hex"`
}

// Delivery is records of a partition, from the offset first to last, with the same state and number of
// deliveries. state is "acquired" (by member), "available" (released, or its lock has ended), "acknowledged",
// "archived" (rejected, or delivered as often as the group allows), or "archiving" until its dead letter is
// written.
type Delivery struct {
	Topic      string `json:"topic"`
	Partition  int    `json:"partition"`
	First      int    `json:"first"`
	Last       int    `json:"last"`
	State      string `json:"state"`
	Deliveries int    `json:"deliveries"`
	Member     string `json:"member"`
}

// FaultState is a fault, and how often it matched and struck.
type FaultState struct {
	Number  int    `json:"number"`
	Rule    string `json:"rule"`
	Matches int    `json:"matches"`
	Hits    int    `json:"hits"`
}

// GroupState is a group: its type, state, the ids of its members, and its committed offsets by TOPIC-
// PARTITION.
type GroupState struct {
	Type      string         `json:"type"`
	State     string         `json:"state"`
	Members   []string       `json:"members"`
	Committed map[string]int `json:"committed"`
}

// IssuerState is the addresses of the issuer of tokens.
type IssuerState struct {
	URL           string `json:"url"`
	TokenEndpoint string `json:"token_endpoint"`
	JWKSURL       string `json:"jwks_url"`
}

// JournalState is whether the journal is on, how many requests it has, and how many it dropped for newer
// ones.
type JournalState struct {
	On      bool `json:"on"`
	Kept    int  `json:"kept"`
	Dropped int  `json:"dropped"`
}

// Metric is a metric that a client pushed: its newest value, or the sum of its pushes for one that counts.
type Metric struct {
	ClientID         string            `json:"client_id"`
	ClientInstanceID string            `json:"client_instance_id"`
	Name             string            `json:"name"`
	Attributes       map[string]string `json:"attributes"`
	Value            float64           `json:"value"`
}

// Record is a record as it is stored in the log. timestamp_ms is -1 in message format 0, which has none;
// timestamp_type is "create" or "append". transaction is None outside of transactions, or else "committed",
// "aborted" or "open". sequence is -1 without a producer id.
type Record struct {
	Topic         string      `json:"topic"`
	Partition     int         `json:"partition"`
	Offset        int         `json:"offset"`
	Headers       [][2]string `json:"headers"`
	TimestampMs   int         `json:"timestamp_ms"`
	TimestampType string      `json:"timestamp_type"`
	Transaction   string      `json:"transaction"`
	ProducerID    int         `json:"producer_id"`
	ProducerEpoch int         `json:"producer_epoch"`
	Sequence      int         `json:"sequence"`
	LeaderEpoch   int         `json:"leader_epoch"`
	Magic         int         `json:"magic"`
	Key           Bytes       `json:"key_hex"`
	Value         Bytes       `json:"value_hex"`
}

// RegistryFaultState is a fault, and how often it struck.
type RegistryFaultState struct {
	Number int `json:"number"`
	Hits   int `json:"hits"`
}

// SecurityState is the protocol, the users, the certificate (PEM) of the authority if there is TLS, and the
// issuer if there is SASL. The protocol is null for a broker without security.
type SecurityState struct {
	Protocol  string       `json:"protocol"`
	Users     []string     `json:"users"`
	Authority string       `json:"authority"`
	Issuer    *IssuerState `json:"issuer"`
}

// SeenRegistryRequest is a request to the registry, and its answer. after is the number of the last request
// in the journal before it.
type SeenRegistryRequest struct {
	Method     string  `json:"method"`
	Path       string  `json:"path"`
	Body       string  `json:"body"`
	Status     int     `json:"status"`
	Answer     string  `json:"answer"`
	DurationMs float64 `json:"duration_ms"`
	User       string  `json:"user"`
	After      int     `json:"after"`
}

// SeenRequest is a request of the journal, and its outcome. raw has request and answer, decoded and in
// hexadecimal digits.
type SeenRequest struct {
	Number     int            `json:"number"`
	API        string         `json:"api"`
	Version    int            `json:"version"`
	ClientID   string         `json:"client_id"`
	Node       int            `json:"node"`
	Connection string         `json:"connection"`
	User       string         `json:"user"`
	Mechanism  string         `json:"mechanism"`
	Outcome    string         `json:"outcome"`
	DurationMs float64        `json:"duration_ms"`
	Errors     []string       `json:"errors"`
	Refusals   []string       `json:"refusals"`
	Faults     []string       `json:"faults"`
	Raw        map[string]any `json:"raw"`
}

// StreamsGroup is a group: topology_epoch is None before the first member, source_topics are those of all
// subtopologies.
type StreamsGroup struct {
	State           string          `json:"state"`
	Epoch           int             `json:"epoch"`
	AssignmentEpoch int             `json:"assignment_epoch"`
	TopologyEpoch   *int            `json:"topology_epoch"`
	SourceTopics    []string        `json:"source_topics"`
	Members         []StreamsMember `json:"members"`
}

// StreamsMember is a member, and the tasks that it has been told to run, by role.
type StreamsMember struct {
	Member   string           `json:"member"`
	Instance string           `json:"instance"`
	ClientID string           `json:"client_id"`
	Process  string           `json:"process"`
	Epoch    int              `json:"epoch"`
	Active   map[string][]int `json:"active"`
	Standby  map[string][]int `json:"standby"`
	Warmup   map[string][]int `json:"warmup"`
}

// NewFault is a fault: which requests it applies to, what it does to them, and how often.
type NewFault struct {
	// The API's name in Kafka, or a list of names.
	API any `json:"api"`
	// Versions of the API: 9, "3-9", "12+".
	Version any `json:"version"`
	// The broker that receives the request.
	Node *int `json:"node"`
	// The client id of the sender.
	ClientID string `json:"client_id"`
	// Requests of the user, by its name; with authentication, its logins.
	User string `json:"user"`
	// Requests of clients that log in by this SASL mechanism; with authentication, these logins.
	Mechanism string `json:"mechanism"`
	// Requests that name the topic; only that part of them fails.
	Topic string `json:"topic"`
	// Requests that name the partition; only that part of them fails.
	Partition *int `json:"partition"`
	// Requests that name the group.
	Group string `json:"group"`
	// Requests that name the transactional id.
	TransactionalID string `json:"transactional_id"`
	// Answers with this error, given by its name in Kafka.
	Error string `json:"error"`
	// Whether error or silence replaces the request's effect (before, the default) or follows it.
	When any `json:"when"`
	// The level of the answer that has error; by default the deepest.
	Level any `json:"level"`
	// Disconnects the client without an answer, before or after the effect.
	Close any `json:"close"`
	// Sends half the answer and disconnects, sends nothing, or sends a wrong correlation id.
	Answer any `json:"answer"`
	// Damages the first batch of a Fetch or ShareFetch: its checksum, length, codec, end, or offsets.
	Corrupt any `json:"corrupt"`
	// Refuses a login with valid credentials, ends its session early, answers it late (by delay), or does not
	// support its mechanism.
	Authentication any `json:"authentication"`
	// How long a session lasts with expire. The answer to the login has this time (KIP-368). Without session,
	// the session ends at once, and the answer does not say so.
	Session time.Duration `json:"session"`
	// Holds the request back, in the broker's time.
	Delay time.Duration `json:"delay"`
	// Sets the throttle time in the answer, which asks the client to pause.
	Throttle time.Duration `json:"throttle"`
	// Strikes only on the match with this number.
	Nth int `json:"nth"`
	// Strikes at most this often; by default without limit.
	Times int `json:"times"`
	// The same as times=1.
	Once *bool `json:"once"`
	// The probability that it strikes on a match.
	Probability float64 `json:"probability"`
	// Makes probability repeatable.
	Seed *int `json:"seed"`
	// The fault's name in reports.
	Name string `json:"name"`
}

// SchemaReference is a name in a schema, and the subject and the version (-1: the latest) that it stands for.
type SchemaReference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// State: return the broker's address, and its topics and groups.
func (b *Broker) State() BrokerState {
	b.t.Helper()
	var answer BrokerState
	b.ask("GET", path("broker"), nil, &answer)
	return answer
}

// Snapshot: copy the current contents of the logs; return the snapshot's number. The newest 100 snapshots are
// kept.
func (b *Broker) Snapshot() int {
	b.t.Helper()
	var answer struct {
		Only int `json:"snapshot"`
	}
	b.ask("POST", path("snapshots"), nil, &answer)
	return answer.Only
}

// Restore: restore the logs of the snapshot.
func (b *Broker) Restore(number int) {
	b.t.Helper()
	b.ask("POST", path("snapshots", number, "restore"), nil, nil)
}

// Reset: remove topics, groups, transactions, configs, faults, and the journal. Connections and ports stay.
func (b *Broker) Reset() {
	b.t.Helper()
	b.ask("POST", path("reset"), nil, nil)
}

// Restart: stop cleanly, if the broker is up, and start again with the same ports and data.
func (b *Broker) Restart() {
	b.t.Helper()
	b.ask("POST", path("restart"), nil, nil)
}

// Kill: crash: connections are cut, nothing more is written, ports refuse connections until restart.
func (b *Broker) Kill() {
	b.t.Helper()
	b.ask("POST", path("kill"), nil, nil)
}

// Clock: return the broker's time.
func (b *Broker) Clock() ClockState {
	b.t.Helper()
	var answer ClockState
	b.ask("GET", path("clock"), nil, &answer)
	return answer
}

// AdvanceClock: advance the broker's time; return once everything that became due is done.
func (b *Broker) AdvanceClock(by time.Duration) ClockState {
	b.t.Helper()
	var answer ClockState
	b.ask("POST", path("clock", "advance"), given([]struct{}{}, "by", by), &answer)
	return answer
}

// FreezeClock: stop the clock; only advance moves it.
func (b *Broker) FreezeClock() ClockState {
	b.t.Helper()
	var answer ClockState
	b.ask("POST", path("clock", "freeze"), nil, &answer)
	return answer
}

// UnfreezeClock: let the clock run again.
func (b *Broker) UnfreezeClock() ClockState {
	b.t.Helper()
	var answer ClockState
	b.ask("POST", path("clock", "unfreeze"), nil, &answer)
	return answer
}

// NewTopic is what CreateTopic takes, where it is not to be as usual.
type NewTopic struct {
	Partitions int            `json:"partitions"`
	Config     map[string]any `json:"config"`
}

// CreateTopic: create a topic, with configs by Kafka's names, such as retention.ms.
func (b *Broker) CreateTopic(name string, options ...NewTopic) string {
	b.t.Helper()
	var answer struct {
		Only string `json:"topic"`
	}
	b.ask("POST", path("topics"), given(options, "name", name), &answer)
	return answer.Only
}

// NewRecords is what ProduceRecords takes, where it is not to be as usual.
type NewRecords struct {
	Values []string `json:"values"`
	// Instead of values.
	ValuesHex []*string `json:"values_hex"`
	Key       string    `json:"key"`
	// Instead of key.
	KeyHex    string            `json:"key_hex"`
	Partition int               `json:"partition"`
	Headers   map[string]string `json:"headers"`
	// The broker's time by default.
	TimestampMs *int `json:"timestamp_ms"`
}

// ProduceRecords: append records as one batch; return the first offset. A missing topic is created.
func (b *Broker) ProduceRecords(topic string, options ...NewRecords) int {
	b.t.Helper()
	var answer struct {
		Only int `json:"offset"`
	}
	b.ask("POST", path("topics", topic, "records"), given(options), &answer)
	return answer.Only
}

// RecordsQuery is what Records takes, where it is not to be as usual.
type RecordsQuery struct {
	Partition *int `json:"partition"`
}

// Records: return all records of a topic, one partition after the other, those of open and aborted
// transactions too.
func (b *Broker) Records(topic string, options ...RecordsQuery) []Record {
	b.t.Helper()
	var answer []Record
	b.ask("GET", path("topics", topic, "records"), given(options), &answer)
	return answer
}

// Fill: create topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}.
func (b *Broker) Fill(configs map[string]any) {
	b.t.Helper()
	b.ask("POST", path("fill"), configs, nil)
}

// Expectation is what Expect takes, where it is not to be as usual.
type Expectation struct {
	Timeout time.Duration `json:"timeout"`
	// Do not count records of open and aborted transactions.
	Committed *bool `json:"committed"`
}

// Expect: wait until a topic has this many records; return them.
func (b *Broker) Expect(topic string, count int, options ...Expectation) []Record {
	b.t.Helper()
	var answer []Record
	b.ask("POST", path("topics", topic, "expect"), given(options, "count", count), &answer)
	return answer
}

// Silence is what ExpectNothing takes, where it is not to be as usual.
type Silence struct {
	During time.Duration `json:"during"`
}

// ExpectNothing: wait for a time; fail as soon as a record is appended to the topic.
func (b *Broker) ExpectNothing(topic string, options ...Silence) {
	b.t.Helper()
	b.ask("POST", path("topics", topic, "expect-nothing"), given(options), nil)
}

// RequestsQuery is what Requests takes, where it is not to be as usual.
type RequestsQuery struct {
	// Include each request and answer, decoded and in hexadecimal digits.
	Raw      bool   `json:"raw"`
	ClientID string `json:"client_id"`
	User     string `json:"user"`
	// SCRAM-SHA-512 by default.
	Mechanism string `json:"mechanism"`
	Group     string `json:"group"`
	Node      *int   `json:"node"`
	Error     string `json:"error"`
}

// Requests: return the requests that the journal has, oldest first.
func (b *Broker) Requests(api string, options ...RequestsQuery) []SeenRequest {
	b.t.Helper()
	var answer []SeenRequest
	b.ask("GET", path("requests"), given(options, "api", api), &answer)
	return answer
}

// ClearRequests: drop all requests.
func (b *Broker) ClearRequests() {
	b.t.Helper()
	b.ask("DELETE", path("requests"), nil, nil)
}

// Journal: return whether the journal is on, and how many requests it has.
func (b *Broker) Journal() JournalState {
	b.t.Helper()
	var answer JournalState
	b.ask("GET", path("journal"), nil, &answer)
	return answer
}

// SwitchJournal: turn the journal on or off.
func (b *Broker) SwitchJournal(on bool) JournalState {
	b.t.Helper()
	var answer JournalState
	b.ask("POST", path("journal"), given([]struct{}{}, "on", on), &answer)
	return answer
}

// RequestWait is what WaitForRequests takes, where it is not to be as usual.
type RequestWait struct {
	Timeout  time.Duration `json:"timeout"`
	ClientID string        `json:"client_id"`
	User     string        `json:"user"`
	// SCRAM-SHA-512 by default.
	Mechanism string `json:"mechanism"`
	Group     string `json:"group"`
	Node      *int   `json:"node"`
	Error     string `json:"error"`
}

// WaitForRequests: wait until the journal has this many requests; return them.
func (b *Broker) WaitForRequests(api string, count int, options ...RequestWait) []SeenRequest {
	b.t.Helper()
	var answer []SeenRequest
	b.ask("POST", path("requests", "wait"), given(options, "api", api, "count", count), &answer)
	return answer
}

// GroupWait is what WaitForGroup takes, where it is not to be as usual.
type GroupWait struct {
	// How many; by default any number.
	Members *int          `json:"members"`
	State   string        `json:"state"`
	Timeout time.Duration `json:"timeout"`
}

// WaitForGroup: wait until the group is in this state with this many members, by default any number; return
// their ids.
func (b *Broker) WaitForGroup(group string, options ...GroupWait) []string {
	b.t.Helper()
	var answer struct {
		Only []string `json:"members"`
	}
	b.ask("POST", path("groups", group, "wait"), given(options), &answer)
	return answer.Only
}

// CaughtUpWait is what WaitUntilCaughtUp takes, where it is not to be as usual.
type CaughtUpWait struct {
	Timeout time.Duration `json:"timeout"`
}

// WaitUntilCaughtUp: wait until the group has committed the ends of all partitions of the topic that have
// records.
func (b *Broker) WaitUntilCaughtUp(group string, topic string, options ...CaughtUpWait) {
	b.t.Helper()
	b.ask("POST", path("groups", group, "wait-until-caught-up"), given(options, "topic", topic), nil)
}

// CommitWait is what WaitForCommit takes, where it is not to be as usual.
type CommitWait struct {
	Partition int           `json:"partition"`
	Offset    *int          `json:"offset"`
	Timeout   time.Duration `json:"timeout"`
}

// WaitForCommit: wait until the group has committed at least offset, or any offset; return the committed one.
func (b *Broker) WaitForCommit(group string, topic string, options ...CommitWait) int {
	b.t.Helper()
	var answer struct {
		Only int `json:"offset"`
	}
	b.ask("POST", path("groups", group, "wait-for-commit"), given(options, "topic", topic), &answer)
	return answer.Only
}

// WatermarkWait is what WaitForHighWatermark takes, where it is not to be as usual.
type WatermarkWait struct {
	Partition int           `json:"partition"`
	Timeout   time.Duration `json:"timeout"`
}

// WaitForHighWatermark: wait until the high watermark is at least offset; return it.
func (b *Broker) WaitForHighWatermark(topic string, offset int, options ...WatermarkWait) int {
	b.t.Helper()
	var answer struct {
		Only int `json:"offset"`
	}
	b.ask("POST", path("topics", topic, "wait-for-high-watermark"), given(options, "offset", offset), &answer)
	return answer.Only
}

// Faults: return the faults, in the order in which requests meet them.
func (b *Broker) Faults() []FaultState {
	b.t.Helper()
	var answer []FaultState
	b.ask("GET", path("faults"), nil, &answer)
	return answer
}

// ClearFaults: remove all faults.
func (b *Broker) ClearFaults() {
	b.t.Helper()
	b.ask("DELETE", path("faults"), nil, nil)
}

// AddFault: add a fault: {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}.
func (b *Broker) AddFault(fault NewFault) FaultState {
	b.t.Helper()
	var answer []FaultState
	b.ask("POST", path("faults"), given([]NewFault{fault}), &answer)
	return answer[0]
}

// Fault: return how often the fault has struck.
func (b *Broker) Fault(number int) FaultState {
	b.t.Helper()
	var answer FaultState
	b.ask("GET", path("faults", number), nil, &answer)
	return answer
}

// RemoveFault: end the fault. Clients that it keeps waiting are disconnected.
func (b *Broker) RemoveFault(number int) {
	b.t.Helper()
	b.ask("DELETE", path("faults", number), nil, nil)
}

// HitWait is what WaitForHits takes, where it is not to be as usual.
type HitWait struct {
	Timeout time.Duration `json:"timeout"`
}

// WaitForHits: wait until the fault has this many hits.
func (b *Broker) WaitForHits(number int, hits int, options ...HitWait) FaultState {
	b.t.Helper()
	var answer FaultState
	b.ask("POST", path("faults", number, "wait"), given(options, "hits", hits), &answer)
	return answer
}

// StopNode: stop a node: queued answers are sent, and other nodes take over its partitions.
func (b *Broker) StopNode(node int) {
	b.t.Helper()
	b.ask("POST", path("nodes", node, "stop"), nil, nil)
}

// KillNode: kill a node: clients are disconnected, and other nodes take over its partitions.
func (b *Broker) KillNode(node int) {
	b.t.Helper()
	b.ask("POST", path("nodes", node, "kill"), nil, nil)
}

// StartNode: bring back a node that is stopped or killed, at its port.
func (b *Broker) StartNode(node int) {
	b.t.Helper()
	b.ask("POST", path("nodes", node, "start"), nil, nil)
}

// PauseNode: pause a node: it accepts requests and sends no answers.
func (b *Broker) PauseNode(node int) {
	b.t.Helper()
	b.ask("POST", path("nodes", node, "pause"), nil, nil)
}

// ResumeNode: resume a paused node, which answers what arrived meanwhile.
func (b *Broker) ResumeNode(node int) {
	b.t.Helper()
	b.ask("POST", path("nodes", node, "resume"), nil, nil)
}

// MakeStale: freeze the leaders in a node's metadata until refresh.
func (b *Broker) MakeStale(node int) {
	b.t.Helper()
	b.ask("POST", path("nodes", node, "make-stale"), nil, nil)
}

// Refresh: let a stale node's metadata name the current leaders again.
func (b *Broker) Refresh(node int) {
	b.t.Helper()
	b.ask("POST", path("nodes", node, "refresh"), nil, nil)
}

// Leader: return the node that leads the partition, or null.
func (b *Broker) Leader(topic string, partition int) *int {
	b.t.Helper()
	var answer struct {
		Only *int `json:"leader"`
	}
	b.ask("GET", path("topics", topic, "partitions", partition, "leader"), nil, &answer)
	return answer.Only
}

// MoveLeader: make a node the partition's leader, or leave it without a leader if the node is null.
func (b *Broker) MoveLeader(topic string, partition int, node *int) *int {
	b.t.Helper()
	var answer struct {
		Only *int `json:"leader"`
	}
	b.ask("POST", path("topics", topic, "partitions", partition, "leader"), given([]struct{}{}, "node", node), &answer)
	return answer.Only
}

// BeginLeaderEpoch: begin a new leader epoch, as if the leader had been elected again; return the epoch.
func (b *Broker) BeginLeaderEpoch(topic string, partition int) int {
	b.t.Helper()
	var answer struct {
		Only int `json:"leader_epoch"`
	}
	b.ask("POST", path("topics", topic, "partitions", partition, "begin-epoch"), nil, &answer)
	return answer.Only
}

// TruncatePartition: drop the batch with offset and all later ones, as an unclean election does; return the
// new leader epoch.
func (b *Broker) TruncatePartition(topic string, partition int, offset int) int {
	b.t.Helper()
	var answer struct {
		Only int `json:"leader_epoch"`
	}
	b.ask("POST", path("topics", topic, "partitions", partition, "truncate"), given([]struct{}{}, "offset", offset), &answer)
	return answer.Only
}

// ElectLeaders: elect a leader for every partition that can have one.
func (b *Broker) ElectLeaders() {
	b.t.Helper()
	b.ask("POST", path("elect-leaders"), nil, nil)
}

// GroupCoordinator: return the node that coordinates a group or a transactional id, or null if no node does
// yet.
func (b *Broker) GroupCoordinator(group string) *int {
	b.t.Helper()
	var answer struct {
		Only *int `json:"coordinator"`
	}
	b.ask("GET", path("groups", group, "coordinator"), nil, &answer)
	return answer.Only
}

// MoveGroupCoordinator: make a node the coordinator of a group or a transactional id, and of all others in
// the same partition.
func (b *Broker) MoveGroupCoordinator(group string, node int) {
	b.t.Helper()
	b.ask("POST", path("groups", group, "move-coordinator"), given([]struct{}{}, "node", node), nil)
}

// TransactionCoordinator: return the node that coordinates a group or a transactional id, or null if no node
// does yet.
func (b *Broker) TransactionCoordinator(transactionalID string) *int {
	b.t.Helper()
	var answer struct {
		Only *int `json:"coordinator"`
	}
	b.ask("GET", path("transactions", transactionalID, "coordinator"), nil, &answer)
	return answer.Only
}

// MoveTransactionCoordinator: make a node the coordinator of a group or a transactional id, and of all others
// in the same partition.
func (b *Broker) MoveTransactionCoordinator(transactionalID string, node int) {
	b.t.Helper()
	b.ask("POST", path("transactions", transactionalID, "move-coordinator"), given([]struct{}{}, "node", node), nil)
}

// Committed: return the offsets that a group has committed, by topic and partition: {"orders": {0: 3}}.
func (b *Broker) Committed(group string) map[string]map[string]int {
	b.t.Helper()
	var answer struct {
		Only map[string]map[string]int `json:"committed"`
	}
	b.ask("GET", path("groups", group, "committed"), nil, &answer)
	return answer.Only
}

// Lag: return how many offsets a group is behind the end of each partition of a topic: {0: 2, 1: 0}.
func (b *Broker) Lag(group string, topic string) map[string]int {
	b.t.Helper()
	var answer struct {
		Only map[string]int `json:"lag"`
	}
	b.ask("GET", path("groups", group, "lag", topic), nil, &answer)
	return answer.Only
}

// ForceRebalance: make all members join again; in a KIP-848 group, a share group or a streams group, begin a
// new epoch.
func (b *Broker) ForceRebalance(group string) {
	b.t.Helper()
	b.ask("POST", path("groups", group, "force-rebalance"), nil, nil)
}

// Eviction is what EvictMembers takes, where it is not to be as usual.
type Eviction struct {
	Member string `json:"member"`
}

// EvictMembers: remove a member from its group, or all members, as if their sessions had expired; return
// their ids.
func (b *Broker) EvictMembers(group string, options ...Eviction) []string {
	b.t.Helper()
	var answer struct {
		Only []string `json:"members"`
	}
	b.ask("POST", path("groups", group, "evict"), given(options), &answer)
	return answer.Only
}

// SlowJoins: delay joining until the fault with the returned number is removed.
func (b *Broker) SlowJoins(group string, delay time.Duration) int {
	b.t.Helper()
	var answer struct {
		Only int `json:"fault"`
	}
	b.ask("POST", path("groups", group, "slow-joins"), given([]struct{}{}, "delay", delay), &answer)
	return answer.Only
}

// StreamsGroup: return a group of Kafka Streams (KIP-1071): its state and epochs, and its members with their
// tasks.
func (b *Broker) StreamsGroup(group string) StreamsGroup {
	b.t.Helper()
	var answer StreamsGroup
	b.ask("GET", path("streams-groups", group), nil, &answer)
	return answer
}

// ConfigureShareGroup: set configs of the group, by Kafka's names: {"share.auto.offset.reset": "earliest"}.
func (b *Broker) ConfigureShareGroup(group string, configs map[string]any) {
	b.t.Helper()
	b.ask("POST", path("share-groups", group, "configure"), configs, nil)
}

// DeliveriesQuery is what Deliveries takes, where it is not to be as usual.
type DeliveriesQuery struct {
	Topic string `json:"topic"`
}

// Deliveries: return what was delivered to the group, of one topic or all, in ranges of offsets, in order.
func (b *Broker) Deliveries(group string, options ...DeliveriesQuery) []Delivery {
	b.t.Helper()
	var answer []Delivery
	b.ask("GET", path("share-groups", group, "deliveries"), given(options), &answer)
	return answer
}

// ExpireLocks: end the acquisition locks of the group, as if their time were over; return how many records
// they held.
func (b *Broker) ExpireLocks(group string) int {
	b.t.Helper()
	var answer struct {
		Only int `json:"records"`
	}
	b.ask("POST", path("share-groups", group, "expire-locks"), nil, &answer)
	return answer.Only
}

// AssignmentWait is what WaitUntilAssigned takes, where it is not to be as usual.
type AssignmentWait struct {
	Members int           `json:"members"`
	Timeout time.Duration `json:"timeout"`
}

// WaitUntilAssigned: wait until all partitions of the topic are assigned, to this many members, by default
// any number.
func (b *Broker) WaitUntilAssigned(group string, topic string, options ...AssignmentWait) map[string][]int {
	b.t.Helper()
	var answer struct {
		Only map[string][]int `json:"members"`
	}
	b.ask("POST", path("share-groups", group, "wait-until-assigned"), given(options, "topic", topic), &answer)
	return answer.Only
}

// SettledWait is what WaitUntilSettled takes, where it is not to be as usual.
type SettledWait struct {
	Partition int           `json:"partition"`
	Timeout   time.Duration `json:"timeout"`
}

// WaitUntilSettled: wait until all records below offset are acknowledged or archived; return the first offset
// that is not.
func (b *Broker) WaitUntilSettled(group string, topic string, offset int, options ...SettledWait) int {
	b.t.Helper()
	var answer struct {
		Only int `json:"offset"`
	}
	b.ask("POST", path("share-groups", group, "wait-until-settled"), given(options, "topic", topic, "offset", offset), &answer)
	return answer.Only
}

// Redelivery is what ExpectRedelivered takes, where it is not to be as usual.
type Redelivery struct {
	Count int `json:"count"`
	// The least number of deliveries of each record.
	Deliveries int           `json:"deliveries"`
	Timeout    time.Duration `json:"timeout"`
}

// ExpectRedelivered: wait until count records of the topic were delivered at least this often; return all
// such records.
func (b *Broker) ExpectRedelivered(group string, topic string, options ...Redelivery) []DeliveredRecord {
	b.t.Helper()
	var answer []DeliveredRecord
	b.ask("POST", path("share-groups", group, "expect-redelivered"), given(options, "topic", topic), &answer)
	return answer
}

// DeadLetterWait is what ExpectDeadLetters takes, where it is not to be as usual.
type DeadLetterWait struct {
	Timeout time.Duration `json:"timeout"`
}

// ExpectDeadLetters: wait until the group has this many dead letters; return all.
func (b *Broker) ExpectDeadLetters(group string, count int, options ...DeadLetterWait) []DeadLetter {
	b.t.Helper()
	var answer []DeadLetter
	b.ask("POST", path("share-groups", group, "expect-dead-letters"), given(options, "count", count), &answer)
	return answer
}

// DeadLetters: return the group's dead letters (KIP-1191) in its topic, one partition after the other.
func (b *Broker) DeadLetters(group string) []DeadLetter {
	b.t.Helper()
	var answer []DeadLetter
	b.ask("GET", path("share-groups", group, "dead-letters"), nil, &answer)
	return answer
}

// DeadLetterQueue is what CollectDeadLetters takes, where it is not to be as usual.
type DeadLetterQueue struct {
	Topic string `json:"topic"`
	// Whether dead letters have keys and values.
	Copies *bool `json:"copies"`
}

// CollectDeadLetters: write a dead letter for each record that is rejected or delivered too often (KIP-1191);
// return their topic.
func (b *Broker) CollectDeadLetters(group string, options ...DeadLetterQueue) string {
	b.t.Helper()
	var answer struct {
		Only string `json:"topic"`
	}
	b.ask("POST", path("share-groups", group, "collect-dead-letters"), given(options), &answer)
	return answer.Only
}

// Transaction: return the state of its transaction as DescribeTransactions names it: Empty, Ongoing,
// PrepareCommit, ...
func (b *Broker) Transaction(transactionalID string) string {
	b.t.Helper()
	var answer struct {
		Only string `json:"state"`
	}
	b.ask("GET", path("transactions", transactionalID), nil, &answer)
	return answer.Only
}

// FenceProducer: fence the producer that has this transactional id, and abort its ongoing transaction.
func (b *Broker) FenceProducer(transactionalID string) {
	b.t.Helper()
	b.ask("POST", path("transactions", transactionalID, "fence"), nil, nil)
}

// TransactionHold is what HoldTransactions takes, where it is not to be as usual.
type TransactionHold struct {
	State string `json:"state"`
}

// HoldTransactions: keep transactions of this id in a state until release.
func (b *Broker) HoldTransactions(transactionalID string, options ...TransactionHold) {
	b.t.Helper()
	b.ask("POST", path("transactions", transactionalID, "hold"), given(options), nil)
}

// ReleaseTransactions: release the transactions of this id.
func (b *Broker) ReleaseTransactions(transactionalID string) {
	b.t.Helper()
	b.ask("POST", path("transactions", transactionalID, "release"), nil, nil)
}

// Security: return how clients connect.
func (b *Broker) Security() SecurityState {
	b.t.Helper()
	var answer SecurityState
	b.ask("GET", path("security"), nil, &answer)
	return answer
}

// NewSecurity is what Secure takes, where it is not to be as usual.
type NewSecurity struct {
	Users map[string]string `json:"users"`
}

// Secure: start the broker again with this security, and these users beside those that it had; ports and data
// stay.
func (b *Broker) Secure(protocol string, options ...NewSecurity) {
	b.t.Helper()
	b.ask("POST", path("security"), given(options, "protocol", protocol), nil)
}

// Issuer: return the addresses of the issuer of tokens.
func (b *Broker) Issuer() IssuerState {
	b.t.Helper()
	var answer IssuerState
	b.ask("GET", path("issuer"), nil, &answer)
	return answer
}

// UseCertificate: present another certificate to new clients.
func (b *Broker) UseCertificate(kind string) {
	b.t.Helper()
	b.ask("POST", path("certificate"), given([]struct{}{}, "kind", kind), nil)
}

// RemoveUser: remove a user; open connections stay.
func (b *Broker) RemoveUser(user string) {
	b.t.Helper()
	b.ask("DELETE", path("users", user), nil, nil)
}

// NewUser is what AddUser takes, where it is not to be as usual.
type NewUser struct {
	Password string `json:"password"`
}

// AddUser: add a user, or change its password.
func (b *Broker) AddUser(name string, options ...NewUser) {
	b.t.Helper()
	b.ask("POST", path("users"), given(options, "name", name), nil)
}

// ClientOptions is what ClientConfig takes, where it is not to be as usual.
type ClientOptions struct {
	User string `json:"user"`
	// SCRAM-SHA-512 by default.
	Mechanism string `json:"mechanism"`
}

// ClientConfig: return what a client needs to connect, as its library takes it: addresses, certificates, name
// and password.
func (b *Broker) ClientConfig(library string, options ...ClientOptions) map[string]any {
	b.t.Helper()
	var answer map[string]any
	b.ask("POST", path("client-config"), given(options, "library", library), &answer)
	return answer
}

// AclRule is what Allow takes, where it is not to be as usual.
type AclRule struct {
	// A name, a prefix that ends with "*", or "*" for all.
	Topic           string `json:"topic"`
	Group           string `json:"group"`
	TransactionalID string `json:"transactional_id"`
	Host            string `json:"host"`
}

// Allow: allow an operation to a user.
func (b *Broker) Allow(user string, operation string, options ...AclRule) {
	b.t.Helper()
	b.ask("POST", path("acls", "allow"), given(options, "user", user, "operation", operation), nil)
}

// Deny: deny an operation to a user, although it may be allowed, too.
func (b *Broker) Deny(user string, operation string, options ...AclRule) {
	b.t.Helper()
	b.ask("POST", path("acls", "deny"), given(options, "user", user, "operation", operation), nil)
}

// ClearAcls: remove all ACLs.
func (b *Broker) ClearAcls() {
	b.t.Helper()
	b.ask("DELETE", path("acls"), nil, nil)
}

// Quotas is what SetQuotas takes, where it is not to be as usual.
type Quotas struct {
	User                   string  `json:"user"`
	ClientID               string  `json:"client_id"`
	IP                     string  `json:"ip"`
	ProducerByteRate       float64 `json:"producer_byte_rate"`
	ConsumerByteRate       float64 `json:"consumer_byte_rate"`
	RequestPercentage      float64 `json:"request_percentage"`
	ControllerMutationRate float64 `json:"controller_mutation_rate"`
	ConnectionCreationRate float64 `json:"connection_creation_rate"`
}

// SetQuotas: set quotas of a user, a client id, both, or an address; "*" is the default.
func (b *Broker) SetQuotas(options ...Quotas) {
	b.t.Helper()
	b.ask("POST", path("quotas"), given(options), nil)
}

// QuotaEntity is what RemoveQuotas takes, where it is not to be as usual.
type QuotaEntity struct {
	User     string `json:"user"`
	ClientID string `json:"client_id"`
	IP       string `json:"ip"`
}

// RemoveQuotas: remove the quotas of a user, a client id, both, or an address.
func (b *Broker) RemoveQuotas(options ...QuotaEntity) {
	b.t.Helper()
	b.ask("POST", path("quotas", "remove"), given(options), nil)
}

// UserTokenOptions is what IssueToken takes, where it is not to be as usual.
type UserTokenOptions struct {
	ExpiresIn time.Duration `json:"expires_in"`
	Audience  string        `json:"audience"`
	Issuer    string        `json:"issuer"`
	Scope     string        `json:"scope"`
	// false: signed by an unknown key.
	Trusted *bool          `json:"trusted"`
	Claims  map[string]any `json:"claims"`
}

// IssueToken: return a token of a user, who need not exist.
func (b *Broker) IssueToken(user string, options ...UserTokenOptions) string {
	b.t.Helper()
	var answer struct {
		Only string `json:"token"`
	}
	b.ask("POST", path("issuer", "token"), given(options, "user", user), &answer)
	return answer.Only
}

// IssuedTokenOptions is what UseTokens takes, where it is not to be as usual.
type IssuedTokenOptions struct {
	ExpiresIn time.Duration `json:"expires_in"`
	Audience  string        `json:"audience"`
	Issuer    string        `json:"issuer"`
	Scope     string        `json:"scope"`
	// false: signed by an unknown key.
	Trusted *bool          `json:"trusted"`
	Claims  map[string]any `json:"claims"`
}

// UseTokens: let clients get such tokens from now on, until a reset; without options, good ones.
func (b *Broker) UseTokens(options ...IssuedTokenOptions) {
	b.t.Helper()
	b.ask("POST", path("issuer", "use-tokens"), given(options), nil)
}

// Rotation is what RotateIssuerKeys takes, where it is not to be as usual.
type Rotation struct {
	KeepOld bool `json:"keep_old"`
}

// RotateIssuerKeys: sign with a new key from now on, and forget the old ones unless keep_old.
func (b *Broker) RotateIssuerKeys(options ...Rotation) {
	b.t.Helper()
	b.ask("POST", path("issuer", "rotate-keys"), given(options), nil)
}

// MakeAssertion: return an assertion that a user has signed, as the token endpoint takes it.
func (b *Broker) MakeAssertion(user string) string {
	b.t.Helper()
	var answer struct {
		Only string `json:"assertion"`
	}
	b.ask("POST", path("issuer", "assertion"), given([]struct{}{}, "user", user), &answer)
	return answer.Only
}

// ClientKey: return the private key (PEM) with which a user signs assertions.
func (b *Broker) ClientKey(user string) string {
	b.t.Helper()
	var answer struct {
		Only string `json:"key"`
	}
	b.ask("POST", path("issuer", "client-key"), given([]struct{}{}, "user", user), &answer)
	return answer.Only
}

// DelegationTokens: return the tokens that have not expired.
func (b *Broker) DelegationTokens() []DelegationToken {
	b.t.Helper()
	var answer []DelegationToken
	b.ask("GET", path("delegation-tokens"), nil, &answer)
	return answer
}

// ExpireDelegationTokens: remove a token, or all: nobody logs in with it any more. Open sessions go on until
// it would have expired.
func (b *Broker) ExpireDelegationTokens() {
	b.t.Helper()
	b.ask("DELETE", path("delegation-tokens"), nil, nil)
}

// NewDelegationToken is what CreateDelegationToken takes, where it is not to be as usual.
type NewDelegationToken struct {
	Renewers    []string      `json:"renewers"`
	MaxLifetime time.Duration `json:"max_lifetime"`
}

// CreateDelegationToken: create a token of a user, which renewers may renew, too.
func (b *Broker) CreateDelegationToken(user string, options ...NewDelegationToken) DelegationToken {
	b.t.Helper()
	var answer DelegationToken
	b.ask("POST", path("delegation-tokens"), given(options, "user", user), &answer)
	return answer
}

// ExpireDelegationToken: remove a token. Open sessions continue.
func (b *Broker) ExpireDelegationToken(token string) {
	b.t.Helper()
	b.ask("DELETE", path("delegation-tokens", token), nil, nil)
}

// TokenRenewal is what RenewDelegationToken takes, where it is not to be as usual.
type TokenRenewal struct {
	Period time.Duration `json:"period"`
}

// RenewDelegationToken: let a token expire later, or sooner; by default as late as possible.
func (b *Broker) RenewDelegationToken(token string, options ...TokenRenewal) DelegationToken {
	b.t.Helper()
	var answer DelegationToken
	b.ask("POST", path("delegation-tokens", token, "renew"), given(options), &answer)
	return answer
}

// TokenClient is what ClientConfigWithToken takes, where it is not to be as usual.
type TokenClient struct {
	// SCRAM-SHA-512 by default.
	Mechanism string `json:"mechanism"`
}

// ClientConfigWithToken: return what a client needs to log in with a token.
func (b *Broker) ClientConfigWithToken(token string, library string, options ...TokenClient) map[string]any {
	b.t.Helper()
	var answer map[string]any
	b.ask("POST", path("delegation-tokens", token, "client-config"), given(options, "library", library), &answer)
	return answer
}

// MetricsAsked is what CollectClientMetrics takes, where it is not to be as usual.
type MetricsAsked struct {
	Names    []string      `json:"names"`
	Interval time.Duration `json:"interval"`
}

// CollectClientMetrics: ask clients that connect from now on for their metrics: those with such beginnings of
// their names, or all.
func (b *Broker) CollectClientMetrics(options ...MetricsAsked) {
	b.t.Helper()
	b.ask("POST", path("client-metrics"), given(options), nil)
}

// ClientMetricsQuery is what ClientMetrics takes, where it is not to be as usual.
type ClientMetricsQuery struct {
	ClientID string `json:"client_id"`
}

// ClientMetrics: return the metrics that clients with this id, or all, have pushed; those of clients that
// have left, too.
func (b *Broker) ClientMetrics(options ...ClientMetricsQuery) []Metric {
	b.t.Helper()
	var answer []Metric
	b.ask("GET", path("client-metrics"), given(options), &answer)
	return answer
}

// RegistryURL: return the address of the registry.
func (b *Broker) RegistryURL() string {
	b.t.Helper()
	var answer struct {
		Only string `json:"url"`
	}
	b.ask("GET", path("registry"), nil, &answer)
	return answer.Only
}

// Subjects: return the names of the subjects.
func (b *Broker) Subjects() []string {
	b.t.Helper()
	var answer struct {
		Only []string `json:"subjects"`
	}
	b.ask("GET", path("registry", "subjects"), nil, &answer)
	return answer.Only
}

// NewSubjectSchema is what RegisterSchema takes, where it is not to be as usual.
type NewSubjectSchema struct {
	Kind       string            `json:"kind"`
	References []SchemaReference `json:"references"`
}

// RegisterSchema: register a schema, unless the subject has it; return its id. An incompatible one is
// refused.
func (b *Broker) RegisterSchema(subject string, schema any, options ...NewSubjectSchema) int {
	b.t.Helper()
	var answer struct {
		Only int `json:"id"`
	}
	b.ask("POST", path("registry", "schemas"), given(options, "subject", subject, "schema", schema), &answer)
	return answer.Only
}

// SchemaQuery is what Schema takes, where it is not to be as usual.
type SchemaQuery struct {
	Version int `json:"version"`
}

// Schema: return the text of a version of a subject, by default the latest.
func (b *Broker) Schema(subject string, options ...SchemaQuery) string {
	b.t.Helper()
	var answer struct {
		Only string `json:"schema"`
	}
	b.ask("GET", path("registry", "schemas"), given(options, "subject", subject), &answer)
	return answer.Only
}

// CompatibilityLevel is what SetCompatibility takes, where it is not to be as usual.
type CompatibilityLevel struct {
	Subject string `json:"subject"`
}

// SetCompatibility: set the level of a subject, or of all: "NONE", "BACKWARD", "FULL_TRANSITIVE", ...
func (b *Broker) SetCompatibility(level string, options ...CompatibilityLevel) {
	b.t.Helper()
	b.ask("POST", path("registry", "compatibility"), given(options, "level", level), nil)
}

// RegistryRequestsQuery is what RegistryRequests takes, where it is not to be as usual.
type RegistryRequestsQuery struct {
	Method string `json:"method"`
	// Of requests, with * for anything: /subjects/*/versions.
	Path string `json:"path"`
}

// RegistryRequests: return the requests to the registry since the last reset, the newest 1000, oldest first.
func (b *Broker) RegistryRequests(options ...RegistryRequestsQuery) []SeenRegistryRequest {
	b.t.Helper()
	var answer []SeenRegistryRequest
	b.ask("GET", path("registry", "requests"), given(options), &answer)
	return answer
}

// RegistryFaults: return all faults of the registry, oldest first.
func (b *Broker) RegistryFaults() []RegistryFaultState {
	b.t.Helper()
	var answer []RegistryFaultState
	b.ask("GET", path("registry", "faults"), nil, &answer)
	return answer
}

// NewRegistryFault is what AddRegistryFault takes, where it is not to be as usual.
type NewRegistryFault struct {
	Code      *int          `json:"code"`
	Message   string        `json:"message"`
	Delay     time.Duration `json:"delay"`
	UnknownID *int          `json:"unknown_id"`
	Method    string        `json:"method"`
	// Of requests, with * for anything: /subjects/*/versions.
	Path  string `json:"path"`
	Times int    `json:"times"`
}

// AddRegistryFault: add a fault: {"code": 503, "times": 2}, {"delay": "2 s", "path": "/subjects/*"} or
// {"unknown_id": 1}.
func (b *Broker) AddRegistryFault(options ...NewRegistryFault) RegistryFaultState {
	b.t.Helper()
	var answer RegistryFaultState
	b.ask("POST", path("registry", "faults"), given(options), &answer)
	return answer
}

// ClearRegistryFaults: remove all faults of the registry.
func (b *Broker) ClearRegistryFaults() {
	b.t.Helper()
	b.ask("DELETE", path("registry", "faults"), nil, nil)
}

// RegistryFault: return how often the fault has struck.
func (b *Broker) RegistryFault(number int) RegistryFaultState {
	b.t.Helper()
	var answer RegistryFaultState
	b.ask("GET", path("registry", "faults", number), nil, &answer)
	return answer
}

// RemoveRegistryFault: remove the fault.
func (b *Broker) RemoveRegistryFault(number int) {
	b.t.Helper()
	b.ask("DELETE", path("registry", "faults", number), nil, nil)
}
