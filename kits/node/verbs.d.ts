// Written by `python3 -m kits.generating` from the description of the control. Do not edit.

/** Milliseconds, or a text with a unit: `'8 days'`, `'1.5 s'`, `'200 ms'`. */
export type Duration = number | string

/** The broker's address; while it is up also the ends of partitions by topic, and the groups by id. A partition without a log has null. */
export interface BrokerState {
  bootstrapServers: string
  nodes: number
  running: boolean
  topics: { [name: string]: Array<number | null> }
  groups: { [name: string]: GroupState }
}

/** The broker's time. */
export interface ClockState {
  nowMs: number
  frozen: boolean
}

/** A dead letter: the record that it stands for, how often that was delivered, and why not any more. */
export interface DeadLetter {
  topic: string
  partition: number
  offset: number
  key: string | null
  value: string | null
  headers: Array<[string, string | null]>
  timestampMs: number
  timestampType: string
  transaction: string | null
  producerId: number
  producerEpoch: number
  sequence: number
  leaderEpoch: number
  magic: number
  sourceTopic: string
  sourcePartition: number
  sourceOffset: number
  deliveries: number
  reason: string
  keyHex: string | null
  valueHex: string | null
}

/** A delegation token. A client logs in by SCRAM with `id` and `secret`; times are in ms since 1970. */
export interface DelegationToken {
  id: string
  secret: string
  user: string
  renewers: Array<string>
  issuedMs: number
  expiresMs: number
  maxMs: number
}

/** A record, how often it was delivered to the group, and its state and member as in `Delivery`. */
export interface DeliveredRecord {
  topic: string
  partition: number
  offset: number
  key: string | null
  value: string | null
  headers: Array<[string, string | null]>
  timestampMs: number
  timestampType: string
  transaction: string | null
  producerId: number
  producerEpoch: number
  sequence: number
  leaderEpoch: number
  magic: number
  deliveries: number
  state: string
  member: string | null
  keyHex: string | null
  valueHex: string | null
}

/** Records of a partition, from the offset `first` to `last`, with the same state and number of deliveries. `state` is "acquired" (by `member`), "available" (released, or its lock has ended), "acknowledged", "archived" (rejected, or delivered as often as the group allows), or "archiving" until its dead letter is written. */
export interface Delivery {
  topic: string
  partition: number
  first: number
  last: number
  state: string
  deliveries: number
  member: string | null
}

/** A fault, and how often it matched and struck. */
export interface FaultState {
  number: number
  rule: string
  matches: number
  hits: number
}

/** A group: its type, state, the ids of its members, and its committed offsets by TOPIC-PARTITION. */
export interface GroupState {
  type: string
  state: string
  members: Array<string>
  committed: { [name: string]: number }
}

/** The addresses of the issuer of tokens. */
export interface IssuerState {
  url: string
  tokenEndpoint: string
  jwksUrl: string
}

/** Whether the journal is on, how many requests it has, and how many it dropped for newer ones. */
export interface JournalState {
  on: boolean
  kept: number
  dropped: number
}

/** A metric that a client pushed: its newest value, or the sum of its pushes for one that counts. */
export interface Metric {
  clientId: string
  clientInstanceId: string
  name: string
  attributes: { [name: string]: string }
  value: number
}

/** A record as it is stored in the log. `timestamp_ms` is -1 in message format 0, which has none; `timestamp_type` is "create" or "append". `transaction` is None outside of transactions, or else "committed", "aborted" or "open". `sequence` is -1 without a producer id. */
export interface Record {
  topic: string
  partition: number
  offset: number
  key: string | null
  value: string | null
  headers: Array<[string, string | null]>
  timestampMs: number
  timestampType: string
  transaction: string | null
  producerId: number
  producerEpoch: number
  sequence: number
  leaderEpoch: number
  magic: number
  keyHex: string | null
  valueHex: string | null
}

/** A fault, and how often it struck. */
export interface RegistryFaultState {
  number: number
  hits: number
}

/** The protocol, the users, the certificate (PEM) of the authority if there is TLS, and the issuer if there is SASL. The protocol is null for a broker without security. */
export interface SecurityState {
  protocol: string | null
  users: Array<string>
  authority: string | null
  issuer: IssuerState | null
}

/** A request to the registry, and its answer. `after` is the number of the last request in the journal before it. */
export interface SeenRegistryRequest {
  method: string
  path: string
  body: string
  status: number
  answer: string
  durationMs: number
  user: string | null
  after: number
}

/** A request of the journal, and its outcome. `raw` has request and answer, decoded and in hexadecimal digits. */
export interface SeenRequest {
  number: number
  api: string
  version: number
  clientId: string | null
  node: number
  connection: string
  user: string | null
  mechanism: string | null
  outcome: string
  durationMs: number | null
  errors: Array<string>
  refusals: Array<string>
  faults: Array<string>
  raw: { [name: string]: any } | null
}

/** A group: `topology_epoch` is None before the first member, `source_topics` are those of all subtopologies. */
export interface StreamsGroup {
  state: string
  epoch: number
  assignmentEpoch: number
  topologyEpoch: number | null
  sourceTopics: Array<string>
  members: Array<StreamsMember>
}

/** A member, and the tasks that it has been told to run, by role. */
export interface StreamsMember {
  member: string
  instance: string | null
  clientId: string
  process: string
  epoch: number
  active: { [name: string]: Array<number> }
  standby: { [name: string]: Array<number> }
  warmup: { [name: string]: Array<number> }
}

/** A fault: which requests it applies to, what it does to them, and how often. */
export interface NewFault {
  /** The API's name in Kafka, or a list of names. */
  api?: any
  /** Versions of the API: `9`, `"3-9"`, `"12+"`. */
  version?: any
  /** The broker that receives the request. */
  node?: number
  /** The client id of the sender. */
  clientId?: string
  /** Requests of the user, by its name; with `authentication`, its logins. */
  user?: string
  /** Requests of clients that log in by this SASL mechanism; with `authentication`, these logins. */
  mechanism?: string
  /** Requests that name the topic; only that part of them fails. */
  topic?: string
  /** Requests that name the partition; only that part of them fails. */
  partition?: number
  /** Requests that name the group. */
  group?: string
  /** Requests that name the transactional id. */
  transactionalId?: string
  /** Answers with this error, given by its name in Kafka. */
  error?: string
  /** Whether `error` or silence replaces the request's effect (`before`, the default) or follows it. */
  when?: 'before' | 'after'
  /** The level of the answer that has `error`; by default the deepest. */
  level?: 'top' | 'topic' | 'partition'
  /** Disconnects the client without an answer, before or after the effect. */
  close?: 'before' | 'after'
  /** Sends half the answer and disconnects, sends nothing, or sends a wrong correlation id. */
  answer?: 'half' | 'silence' | 'wrong-correlation-id'
  /** Damages the first batch of a Fetch or ShareFetch: its checksum, length, codec, end, or offsets. */
  corrupt?: 'crc' | 'length' | 'codec' | 'truncated' | 'offsets'
  /** Refuses a login with valid credentials, ends its session early, answers it late (by `delay`), or does not support its mechanism. */
  authentication?: 'refuse' | 'expire' | 'slow' | 'wrong-mechanism'
  session?: Duration
  delay?: Duration
  throttle?: Duration
  /** Strikes only on the match with this number. */
  nth?: number
  /** Strikes at most this often; by default without limit. */
  times?: number
  /** The same as `times=1`. */
  once?: boolean
  /** The probability that it strikes on a match. */
  probability?: number
  /** Makes `probability` repeatable. */
  seed?: number
  /** The fault's name in reports. */
  name?: string
}

/** A name in a schema, and the subject and the version (-1: the latest) that it stands for. */
export interface SchemaReference {
  name?: string
  subject?: string
  version?: number
}

export interface NewTopic {
  partitions?: number
  config?: { [name: string]: any }
}

export interface NewRecords {
  values?: Array<string | null>
  /** Instead of `values`. */
  valuesHex?: Array<string | null>
  key?: string
  /** Instead of `key`. */
  keyHex?: string
  partition?: number
  headers?: { [name: string]: string | null }
  /** The broker's time by default. */
  timestampMs?: number
}

export interface RecordsQuery {
  partition?: number
}

export interface Expectation {
  timeout?: Duration
  /** Do not count records of open and aborted transactions. */
  committed?: boolean
}

export interface Silence {
  during?: Duration
}

export interface RequestsQuery {
  /** Include each request and answer, decoded and in hexadecimal digits. */
  raw?: boolean
  clientId?: string
  user?: string
  /** SCRAM-SHA-512 by default. */
  mechanism?: string
  group?: string
  node?: number
  error?: string
}

export interface RequestWait {
  timeout?: Duration
  clientId?: string
  user?: string
  /** SCRAM-SHA-512 by default. */
  mechanism?: string
  group?: string
  node?: number
  error?: string
}

export interface GroupWait {
  /** How many; by default any number. */
  members?: number
  state?: string
  timeout?: Duration
}

export interface CaughtUpWait {
  timeout?: Duration
}

export interface CommitWait {
  partition?: number
  offset?: number
  timeout?: Duration
}

export interface WatermarkWait {
  partition?: number
  timeout?: Duration
}

export interface HitWait {
  timeout?: Duration
}

export interface Eviction {
  member?: string
}

export interface DeliveriesQuery {
  topic?: string
}

export interface AssignmentWait {
  members?: number
  timeout?: Duration
}

export interface SettledWait {
  partition?: number
  timeout?: Duration
}

export interface Redelivery {
  count?: number
  /** The least number of deliveries of each record. */
  deliveries?: number
  timeout?: Duration
}

export interface DeadLetterWait {
  timeout?: Duration
}

export interface DeadLetterQueue {
  topic?: string
  /** Whether dead letters have keys and values. */
  copies?: boolean
}

export interface TransactionHold {
  state?: 'ongoing' | 'prepared'
}

export interface NewSecurity {
  users?: { [name: string]: string }
}

export interface NewUser {
  password?: string
}

export interface ClientOptions {
  user?: string
  /** SCRAM-SHA-512 by default. */
  mechanism?: string
}

export interface AclRule {
  /** A name, a prefix that ends with "*", or "*" for all. */
  topic?: string
  group?: string
  transactionalId?: string
  host?: string
}

export interface Quotas {
  user?: string
  clientId?: string
  ip?: string
  producerByteRate?: number
  consumerByteRate?: number
  requestPercentage?: number
  controllerMutationRate?: number
  connectionCreationRate?: number
}

export interface QuotaEntity {
  user?: string
  clientId?: string
  ip?: string
}

export interface UserTokenOptions {
  expiresIn?: Duration
  audience?: string
  issuer?: string
  scope?: string
  /** false: signed by an unknown key. */
  trusted?: boolean
  claims?: { [name: string]: any }
}

export interface IssuedTokenOptions {
  expiresIn?: Duration
  audience?: string
  issuer?: string
  scope?: string
  /** false: signed by an unknown key. */
  trusted?: boolean
  claims?: { [name: string]: any }
}

export interface Rotation {
  keepOld?: boolean
}

export interface NewDelegationToken {
  renewers?: Array<string>
  maxLifetime?: Duration
}

export interface TokenRenewal {
  period?: Duration
}

export interface TokenClient {
  /** SCRAM-SHA-512 by default. */
  mechanism?: string
}

export interface MetricsAsked {
  names?: Array<string>
  interval?: Duration
}

export interface ClientMetricsQuery {
  clientId?: string
}

export interface NewSubjectSchema {
  kind?: 'AVRO' | 'JSON' | 'PROTOBUF'
  references?: Array<SchemaReference>
}

export interface SchemaQuery {
  version?: number
}

export interface CompatibilityLevel {
  subject?: string
}

export interface RegistryRequestsQuery {
  method?: string
  /** Of requests, with `*` for anything: /subjects/*&#47;versions. */
  path?: string
}

export interface NewRegistryFault {
  code?: number
  message?: string
  delay?: Duration
  unknownId?: number
  method?: string
  /** Of requests, with `*` for anything: /subjects/*&#47;versions. */
  path?: string
  times?: number
}

/** What a test can ask a broker for. Each rejects with a `MinibrokerError`. */
export class Verbs {
  /** Return the broker's address, and its topics and groups. */
  state(): Promise<BrokerState>
  /** Copy the current contents of the logs; return the snapshot's number. The newest 100 snapshots are kept. */
  snapshot(): Promise<number>
  /** Restore the logs of the snapshot. */
  restore(number: number): Promise<void>
  /** Remove topics, groups, transactions, configs, faults, and the journal. Connections and ports stay. */
  reset(): Promise<void>
  /** Stop cleanly, if the broker is up, and start again with the same ports and data. */
  restart(): Promise<void>
  /** Crash: connections are cut, nothing more is written, ports refuse connections until `restart`. */
  kill(): Promise<void>
  /** Return the broker's time. */
  clock(): Promise<ClockState>
  /** Advance the broker's time; return once everything that became due is done. */
  advanceClock(by: Duration): Promise<ClockState>
  /** Stop the clock; only `advance` moves it. */
  freezeClock(): Promise<ClockState>
  /** Let the clock run again. */
  unfreezeClock(): Promise<ClockState>
  /** Create a topic, with configs by Kafka's names, such as retention.ms. */
  createTopic(name: string, options?: NewTopic): Promise<string>
  /** Append records as one batch; return the first offset. A missing topic is created. */
  produceRecords(topic: string, options?: NewRecords): Promise<number>
  /** Return all records of a topic, one partition after the other, those of open and aborted transactions too. */
  records(topic: string, options?: RecordsQuery): Promise<Array<Record>>
  /** Create topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}. */
  fill(configs: { [name: string]: any }): Promise<void>
  /** Wait until a topic has this many records; return them. */
  expect(topic: string, count?: number, options?: Expectation): Promise<Array<Record>>
  /** Wait for a time; fail as soon as a record is appended to the topic. */
  expectNothing(topic: string, options?: Silence): Promise<void>
  /** Return the requests that the journal has, oldest first. */
  requests(api?: string, options?: RequestsQuery): Promise<Array<SeenRequest>>
  /** Drop all requests. */
  clearRequests(): Promise<void>
  /** Return whether the journal is on, and how many requests it has. */
  journal(): Promise<JournalState>
  /** Turn the journal on or off. */
  switchJournal(on: boolean): Promise<JournalState>
  /** Wait until the journal has this many requests; return them. */
  waitForRequests(api?: string, count?: number, options?: RequestWait): Promise<Array<SeenRequest>>
  /** Wait until the group is in this state with this many members, by default any number; return their ids. */
  waitForGroup(group: string, options?: GroupWait): Promise<Array<string>>
  /** Wait until the group has committed the ends of all partitions of the topic that have records. */
  waitUntilCaughtUp(group: string, topic: string, options?: CaughtUpWait): Promise<void>
  /** Wait until the group has committed at least `offset`, or any offset; return the committed one. */
  waitForCommit(group: string, topic: string, options?: CommitWait): Promise<number>
  /** Wait until the high watermark is at least `offset`; return it. */
  waitForHighWatermark(topic: string, offset: number, options?: WatermarkWait): Promise<number>
  /** Return the faults, in the order in which requests meet them. */
  faults(): Promise<Array<FaultState>>
  /** Remove all faults. */
  clearFaults(): Promise<void>
  /** Add a fault: {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}. */
  addFault(fault: NewFault): Promise<FaultState>
  /** Return how often the fault has struck. */
  fault(number: number): Promise<FaultState>
  /** End the fault. Clients that it keeps waiting are disconnected. */
  removeFault(number: number): Promise<void>
  /** Wait until the fault has this many hits. */
  waitForHits(number: number, hits?: number, options?: HitWait): Promise<FaultState>
  /** Stop a node: queued answers are sent, and other nodes take over its partitions. */
  stopNode(node: number): Promise<void>
  /** Kill a node: clients are disconnected, and other nodes take over its partitions. */
  killNode(node: number): Promise<void>
  /** Bring back a node that is stopped or killed, at its port. */
  startNode(node: number): Promise<void>
  /** Pause a node: it accepts requests and sends no answers. */
  pauseNode(node: number): Promise<void>
  /** Resume a paused node, which answers what arrived meanwhile. */
  resumeNode(node: number): Promise<void>
  /** Freeze the leaders in a node's metadata until `refresh`. */
  makeStale(node: number): Promise<void>
  /** Let a stale node's metadata name the current leaders again. */
  refresh(node: number): Promise<void>
  /** Return the node that leads the partition, or null. */
  leader(topic: string, partition: number): Promise<number | null>
  /** Make a node the partition's leader, or leave it without a leader if the node is null. */
  moveLeader(topic: string, partition: number, node: number | null): Promise<number | null>
  /** Begin a new leader epoch, as if the leader had been elected again; return the epoch. */
  beginLeaderEpoch(topic: string, partition: number): Promise<number>
  /** Drop the batch with `offset` and all later ones, as an unclean election does; return the new leader epoch. */
  truncatePartition(topic: string, partition: number, offset: number): Promise<number>
  /** Elect a leader for every partition that can have one. */
  electLeaders(): Promise<void>
  /** Return the node that coordinates a group or a transactional id, or null if no node does yet. */
  groupCoordinator(group: string): Promise<number | null>
  /** Make a node the coordinator of a group or a transactional id, and of all others in the same partition. */
  moveGroupCoordinator(group: string, node: number): Promise<void>
  /** Return the node that coordinates a group or a transactional id, or null if no node does yet. */
  transactionCoordinator(transactionalId: string): Promise<number | null>
  /** Make a node the coordinator of a group or a transactional id, and of all others in the same partition. */
  moveTransactionCoordinator(transactionalId: string, node: number): Promise<void>
  /** Return the offsets that a group has committed, by topic and partition: {"orders": {0: 3}}. */
  committed(group: string): Promise<{ [name: string]: { [name: string]: number } }>
  /** Return how many offsets a group is behind the end of each partition of a topic: {0: 2, 1: 0}. */
  lag(group: string, topic: string): Promise<{ [name: string]: number }>
  /** Make all members join again; in a KIP-848 group, a share group or a streams group, begin a new epoch. */
  forceRebalance(group: string): Promise<void>
  /** Remove a member from its group, or all members, as if their sessions had expired; return their ids. */
  evictMembers(group: string, options?: Eviction): Promise<Array<string>>
  /** Delay joining until the fault with the returned number is removed. */
  slowJoins(group: string, delay: Duration): Promise<number>
  /** Return a group of Kafka Streams (KIP-1071): its state and epochs, and its members with their tasks. */
  streamsGroup(group: string): Promise<StreamsGroup>
  /** Set configs of the group, by Kafka's names: {"share.auto.offset.reset": "earliest"}. */
  configureShareGroup(group: string, configs: { [name: string]: any }): Promise<void>
  /** Return what was delivered to the group, of one topic or all, in ranges of offsets, in order. */
  deliveries(group: string, options?: DeliveriesQuery): Promise<Array<Delivery>>
  /** End the acquisition locks of the group, as if their time were over; return how many records they held. */
  expireLocks(group: string): Promise<number>
  /** Wait until all partitions of the topic are assigned, to this many members, by default any number. */
  waitUntilAssigned(group: string, topic: string, options?: AssignmentWait): Promise<{ [name: string]: Array<number> }>
  /** Wait until all records below `offset` are acknowledged or archived; return the first offset that is not. */
  waitUntilSettled(group: string, topic: string, offset: number, options?: SettledWait): Promise<number>
  /** Wait until `count` records of the topic were delivered at least this often; return all such records. */
  expectRedelivered(group: string, topic: string, options?: Redelivery): Promise<Array<DeliveredRecord>>
  /** Wait until the group has this many dead letters; return all. */
  expectDeadLetters(group: string, count?: number, options?: DeadLetterWait): Promise<Array<DeadLetter>>
  /** Return the group's dead letters (KIP-1191) in its topic, one partition after the other. */
  deadLetters(group: string): Promise<Array<DeadLetter>>
  /** Write a dead letter for each record that is rejected or delivered too often (KIP-1191); return their topic. */
  collectDeadLetters(group: string, options?: DeadLetterQueue): Promise<string>
  /** Return the state of its transaction as DescribeTransactions names it: Empty, Ongoing, PrepareCommit, ... */
  transaction(transactionalId: string): Promise<string>
  /** Fence the producer that has this transactional id, and abort its ongoing transaction. */
  fenceProducer(transactionalId: string): Promise<void>
  /** Keep transactions of this id in a state until `release`. */
  holdTransactions(transactionalId: string, options?: TransactionHold): Promise<void>
  /** Release the transactions of this id. */
  releaseTransactions(transactionalId: string): Promise<void>
  /** Return how clients connect. */
  security(): Promise<SecurityState>
  /** Start the broker again with this security, and these users beside those that it had; ports and data stay. */
  secure(protocol: 'PLAINTEXT' | 'SASL_PLAINTEXT' | 'SASL_SSL' | 'SSL', options?: NewSecurity): Promise<void>
  /** Return the addresses of the issuer of tokens. */
  issuer(): Promise<IssuerState>
  /** Present another certificate to new clients. */
  useCertificate(kind: 'expired' | 'good' | 'other host' | 'unknown authority'): Promise<void>
  /** Remove a user; open connections stay. */
  removeUser(user: string): Promise<void>
  /** Add a user, or change its password. */
  addUser(name: string, options?: NewUser): Promise<void>
  /** Return what a client needs to connect, as its library takes it: addresses, certificates, name and password. */
  clientConfig(library: 'confluent' | 'franz-go' | 'java' | 'kafkajs' | 'librdkafka.properties', options?: ClientOptions): Promise<{ [name: string]: any }>
  /** Allow an operation to a user. */
  allow(user: string, operation: string, options?: AclRule): Promise<void>
  /** Deny an operation to a user, although it may be allowed, too. */
  deny(user: string, operation: string, options?: AclRule): Promise<void>
  /** Remove all ACLs. */
  clearAcls(): Promise<void>
  /** Set quotas of a user, a client id, both, or an address; "*" is the default. */
  setQuotas(options?: Quotas): Promise<void>
  /** Remove the quotas of a user, a client id, both, or an address. */
  removeQuotas(options?: QuotaEntity): Promise<void>
  /** Return a token of a user, who need not exist. */
  issueToken(user: string, options?: UserTokenOptions): Promise<string>
  /** Let clients get such tokens from now on, until a reset; without options, good ones. */
  useTokens(options?: IssuedTokenOptions): Promise<void>
  /** Sign with a new key from now on, and forget the old ones unless `keep_old`. */
  rotateIssuerKeys(options?: Rotation): Promise<void>
  /** Return an assertion that a user has signed, as the token endpoint takes it. */
  makeAssertion(user: string): Promise<string>
  /** Return the private key (PEM) with which a user signs assertions. */
  clientKey(user: string): Promise<string>
  /** Return the tokens that have not expired. */
  delegationTokens(): Promise<Array<DelegationToken>>
  /** Remove a token, or all: nobody logs in with it any more. Open sessions go on until it would have expired. */
  expireDelegationTokens(): Promise<void>
  /** Create a token of a user, which `renewers` may renew, too. */
  createDelegationToken(user: string, options?: NewDelegationToken): Promise<DelegationToken>
  /** Remove a token. Open sessions continue. */
  expireDelegationToken(token: string): Promise<void>
  /** Let a token expire later, or sooner; by default as late as possible. */
  renewDelegationToken(token: string, options?: TokenRenewal): Promise<DelegationToken>
  /** Return what a client needs to log in with a token. */
  clientConfigWithToken(token: string, library: 'franz-go' | 'java', options?: TokenClient): Promise<{ [name: string]: any }>
  /** Ask clients that connect from now on for their metrics: those with such beginnings of their names, or all. */
  collectClientMetrics(options?: MetricsAsked): Promise<void>
  /** Return the metrics that clients with this id, or all, have pushed; those of clients that have left, too. */
  clientMetrics(options?: ClientMetricsQuery): Promise<Array<Metric>>
  /** Return the address of the registry. */
  registryUrl(): Promise<string>
  /** Return the names of the subjects. */
  subjects(): Promise<Array<string>>
  /** Register a schema, unless the subject has it; return its id. An incompatible one is refused. */
  registerSchema(subject: string, schema: any, options?: NewSubjectSchema): Promise<number>
  /** Return the text of a version of a subject, by default the latest. */
  schema(subject: string, options?: SchemaQuery): Promise<string>
  /** Set the level of a subject, or of all: "NONE", "BACKWARD", "FULL_TRANSITIVE", ... */
  setCompatibility(level: string, options?: CompatibilityLevel): Promise<void>
  /** Return the requests to the registry since the last reset, the newest 1000, oldest first. */
  registryRequests(options?: RegistryRequestsQuery): Promise<Array<SeenRegistryRequest>>
  /** Return all faults of the registry, oldest first. */
  registryFaults(): Promise<Array<RegistryFaultState>>
  /** Add a fault: {"code": 503, "times": 2}, {"delay": "2 s", "path": "/subjects/*"} or {"unknown_id": 1}. */
  addRegistryFault(options?: NewRegistryFault): Promise<RegistryFaultState>
  /** Remove all faults of the registry. */
  clearRegistryFaults(): Promise<void>
  /** Return how often the fault has struck. */
  registryFault(number: number): Promise<RegistryFaultState>
  /** Remove the fault. */
  removeRegistryFault(number: number): Promise<void>
}
