// Written by `python3 -m kits.generating` from the description of the control. Do not edit.

// Fields of answers whose own fields have names of a test's.
export const MAPS = new Set(['active', 'attributes', 'committed', 'groups', 'raw', 'standby', 'topics', 'warmup'])

export class Verbs {
  state() {
    return this._ask('GET', ['broker'], undefined)
  }

  snapshot() {
    return this._ask('POST', ['snapshots'], undefined, 'snapshot')
  }

  restore(number) {
    return this._ask('POST', ['snapshots', number, 'restore'], undefined)
  }

  reset() {
    return this._ask('POST', ['reset'], undefined)
  }

  restart() {
    return this._ask('POST', ['restart'], undefined)
  }

  kill() {
    return this._ask('POST', ['kill'], undefined)
  }

  clock() {
    return this._ask('GET', ['clock'], undefined)
  }

  advanceClock(by) {
    return this._ask('POST', ['clock', 'advance'], { by })
  }

  freezeClock() {
    return this._ask('POST', ['clock', 'freeze'], undefined)
  }

  unfreezeClock() {
    return this._ask('POST', ['clock', 'unfreeze'], undefined)
  }

  createTopic(name, options) {
    return this._ask('POST', ['topics'], { name, ...options }, 'topic')
  }

  produceRecords(topic, options) {
    return this._ask('POST', ['topics', topic, 'records'], { ...options }, 'offset')
  }

  records(topic, options) {
    return this._ask('GET', ['topics', topic, 'records'], { ...options })
  }

  fill(configs) {
    return this._send('POST', ['fill'], configs)
  }

  expect(topic, count, options) {
    return this._ask('POST', ['topics', topic, 'expect'], { count, ...options })
  }

  expectNothing(topic, options) {
    return this._ask('POST', ['topics', topic, 'expect-nothing'], { ...options })
  }

  requests(api, options) {
    return this._ask('GET', ['requests'], { api, ...options })
  }

  clearRequests() {
    return this._ask('DELETE', ['requests'], undefined)
  }

  journal() {
    return this._ask('GET', ['journal'], undefined)
  }

  switchJournal(on) {
    return this._ask('POST', ['journal'], { on })
  }

  waitForRequests(api, count, options) {
    return this._ask('POST', ['requests', 'wait'], { api, count, ...options })
  }

  waitForGroup(group, options) {
    return this._ask('POST', ['groups', group, 'wait'], { ...options }, 'members')
  }

  waitUntilCaughtUp(group, topic, options) {
    return this._ask('POST', ['groups', group, 'wait-until-caught-up'], { topic, ...options })
  }

  waitForCommit(group, topic, options) {
    return this._ask('POST', ['groups', group, 'wait-for-commit'], { topic, ...options }, 'offset')
  }

  waitForHighWatermark(topic, offset, options) {
    return this._ask('POST', ['topics', topic, 'wait-for-high-watermark'], { offset, ...options }, 'offset')
  }

  faults() {
    return this._ask('GET', ['faults'], undefined)
  }

  clearFaults() {
    return this._ask('DELETE', ['faults'], undefined)
  }

  async addFault(fault) {
    return (await this._ask('POST', ['faults'], fault))[0]
  }

  fault(number) {
    return this._ask('GET', ['faults', number], undefined)
  }

  removeFault(number) {
    return this._ask('DELETE', ['faults', number], undefined)
  }

  waitForHits(number, hits, options) {
    return this._ask('POST', ['faults', number, 'wait'], { hits, ...options })
  }

  stopNode(node) {
    return this._ask('POST', ['nodes', node, 'stop'], undefined)
  }

  killNode(node) {
    return this._ask('POST', ['nodes', node, 'kill'], undefined)
  }

  startNode(node) {
    return this._ask('POST', ['nodes', node, 'start'], undefined)
  }

  pauseNode(node) {
    return this._ask('POST', ['nodes', node, 'pause'], undefined)
  }

  resumeNode(node) {
    return this._ask('POST', ['nodes', node, 'resume'], undefined)
  }

  makeStale(node) {
    return this._ask('POST', ['nodes', node, 'make-stale'], undefined)
  }

  refresh(node) {
    return this._ask('POST', ['nodes', node, 'refresh'], undefined)
  }

  leader(topic, partition) {
    return this._ask('GET', ['topics', topic, 'partitions', partition, 'leader'], undefined, 'leader')
  }

  moveLeader(topic, partition, node) {
    return this._ask('POST', ['topics', topic, 'partitions', partition, 'leader'], { node }, 'leader')
  }

  beginLeaderEpoch(topic, partition) {
    return this._ask('POST', ['topics', topic, 'partitions', partition, 'begin-epoch'], undefined, 'leader_epoch')
  }

  truncatePartition(topic, partition, offset) {
    return this._ask('POST', ['topics', topic, 'partitions', partition, 'truncate'], { offset }, 'leader_epoch')
  }

  electLeaders() {
    return this._ask('POST', ['elect-leaders'], undefined)
  }

  groupCoordinator(group) {
    return this._ask('GET', ['groups', group, 'coordinator'], undefined, 'coordinator')
  }

  moveGroupCoordinator(group, node) {
    return this._ask('POST', ['groups', group, 'move-coordinator'], { node })
  }

  transactionCoordinator(transactionalId) {
    return this._ask('GET', ['transactions', transactionalId, 'coordinator'], undefined, 'coordinator')
  }

  moveTransactionCoordinator(transactionalId, node) {
    return this._ask('POST', ['transactions', transactionalId, 'move-coordinator'], { node })
  }

  committed(group) {
    return this._ask('GET', ['groups', group, 'committed'], undefined, 'committed')
  }

  lag(group, topic) {
    return this._ask('GET', ['groups', group, 'lag', topic], undefined, 'lag')
  }

  forceRebalance(group) {
    return this._ask('POST', ['groups', group, 'force-rebalance'], undefined)
  }

  evictMembers(group, options) {
    return this._ask('POST', ['groups', group, 'evict'], { ...options }, 'members')
  }

  slowJoins(group, delay) {
    return this._ask('POST', ['groups', group, 'slow-joins'], { delay }, 'fault')
  }

  streamsGroup(group) {
    return this._ask('GET', ['streams-groups', group], undefined)
  }

  configureShareGroup(group, configs) {
    return this._send('POST', ['share-groups', group, 'configure'], configs)
  }

  deliveries(group, options) {
    return this._ask('GET', ['share-groups', group, 'deliveries'], { ...options })
  }

  expireLocks(group) {
    return this._ask('POST', ['share-groups', group, 'expire-locks'], undefined, 'records')
  }

  waitUntilAssigned(group, topic, options) {
    return this._ask('POST', ['share-groups', group, 'wait-until-assigned'], { topic, ...options }, 'members')
  }

  waitUntilSettled(group, topic, offset, options) {
    return this._ask('POST', ['share-groups', group, 'wait-until-settled'], { topic, offset, ...options }, 'offset')
  }

  expectRedelivered(group, topic, options) {
    return this._ask('POST', ['share-groups', group, 'expect-redelivered'], { topic, ...options })
  }

  expectDeadLetters(group, count, options) {
    return this._ask('POST', ['share-groups', group, 'expect-dead-letters'], { count, ...options })
  }

  deadLetters(group) {
    return this._ask('GET', ['share-groups', group, 'dead-letters'], undefined)
  }

  collectDeadLetters(group, options) {
    return this._ask('POST', ['share-groups', group, 'collect-dead-letters'], { ...options }, 'topic')
  }

  transaction(transactionalId) {
    return this._ask('GET', ['transactions', transactionalId], undefined, 'state')
  }

  fenceProducer(transactionalId) {
    return this._ask('POST', ['transactions', transactionalId, 'fence'], undefined)
  }

  holdTransactions(transactionalId, options) {
    return this._ask('POST', ['transactions', transactionalId, 'hold'], { ...options })
  }

  releaseTransactions(transactionalId) {
    return this._ask('POST', ['transactions', transactionalId, 'release'], undefined)
  }

  security() {
    return this._ask('GET', ['security'], undefined)
  }

  secure(protocol, options) {
    return this._ask('POST', ['security'], { protocol, ...options })
  }

  issuer() {
    return this._ask('GET', ['issuer'], undefined)
  }

  useCertificate(kind) {
    return this._ask('POST', ['certificate'], { kind })
  }

  removeUser(user) {
    return this._ask('DELETE', ['users', user], undefined)
  }

  addUser(name, options) {
    return this._ask('POST', ['users'], { name, ...options })
  }

  clientConfig(library, options) {
    return this._ask('POST', ['client-config'], { library, ...options }, null)
  }

  allow(user, operation, options) {
    return this._ask('POST', ['acls', 'allow'], { user, operation, ...options })
  }

  deny(user, operation, options) {
    return this._ask('POST', ['acls', 'deny'], { user, operation, ...options })
  }

  clearAcls() {
    return this._ask('DELETE', ['acls'], undefined)
  }

  setQuotas(options) {
    return this._ask('POST', ['quotas'], { ...options })
  }

  removeQuotas(options) {
    return this._ask('POST', ['quotas', 'remove'], { ...options })
  }

  issueToken(user, options) {
    return this._ask('POST', ['issuer', 'token'], { user, ...options }, 'token')
  }

  useTokens(options) {
    return this._ask('POST', ['issuer', 'use-tokens'], { ...options })
  }

  rotateIssuerKeys(options) {
    return this._ask('POST', ['issuer', 'rotate-keys'], { ...options })
  }

  makeAssertion(user) {
    return this._ask('POST', ['issuer', 'assertion'], { user }, 'assertion')
  }

  clientKey(user) {
    return this._ask('POST', ['issuer', 'client-key'], { user }, 'key')
  }

  delegationTokens() {
    return this._ask('GET', ['delegation-tokens'], undefined)
  }

  expireDelegationTokens() {
    return this._ask('DELETE', ['delegation-tokens'], undefined)
  }

  createDelegationToken(user, options) {
    return this._ask('POST', ['delegation-tokens'], { user, ...options })
  }

  expireDelegationToken(token) {
    return this._ask('DELETE', ['delegation-tokens', token], undefined)
  }

  renewDelegationToken(token, options) {
    return this._ask('POST', ['delegation-tokens', token, 'renew'], { ...options })
  }

  clientConfigWithToken(token, library, options) {
    return this._ask('POST', ['delegation-tokens', token, 'client-config'], { library, ...options }, null)
  }

  collectClientMetrics(options) {
    return this._ask('POST', ['client-metrics'], { ...options })
  }

  clientMetrics(options) {
    return this._ask('GET', ['client-metrics'], { ...options })
  }

  registryUrl() {
    return this._ask('GET', ['registry'], undefined, 'url')
  }

  subjects() {
    return this._ask('GET', ['registry', 'subjects'], undefined, 'subjects')
  }

  registerSchema(subject, schema, options) {
    return this._ask('POST', ['registry', 'schemas'], { subject, schema, ...options }, 'id')
  }

  schema(subject, options) {
    return this._ask('GET', ['registry', 'schemas'], { subject, ...options }, 'schema')
  }

  setCompatibility(level, options) {
    return this._ask('POST', ['registry', 'compatibility'], { level, ...options })
  }

  registryRequests(options) {
    return this._ask('GET', ['registry', 'requests'], { ...options })
  }

  registryFaults() {
    return this._ask('GET', ['registry', 'faults'], undefined)
  }

  addRegistryFault(options) {
    return this._ask('POST', ['registry', 'faults'], { ...options })
  }

  clearRegistryFaults() {
    return this._ask('DELETE', ['registry', 'faults'], undefined)
  }

  registryFault(number) {
    return this._ask('GET', ['registry', 'faults', number], undefined)
  }

  removeRegistryFault(number) {
    return this._ask('DELETE', ['registry', 'faults', number], undefined)
  }

}
