// Creates, describes, changes and deletes a topic; every step says what it expected.
'use strict'

const assert = require('assert')
const { ConfigResourceTypes } = require('kafkajs')

async function administer(kafka, topic) {
  const admin = kafka.admin()
  await admin.connect()
  const steps = [cluster, refusals, create, configs, partitions, offsets, remove]
  for (const step of steps) await step(admin, topic, kafka)
  await admin.disconnect()
  return `${steps.length} steps of administration`
}

async function cluster(admin) {
  const { brokers, controller, clusterId } = await admin.describeCluster()
  assert.strictEqual(brokers.length, 1)
  assert.strictEqual(controller, brokers[0].nodeId)
  assert.ok(clusterId)
}

async function refusals(admin, topic) {
  const wrong = [
    ['INVALID_TOPIC_EXCEPTION', { topic: 'a b' }],
    ['INVALID_PARTITIONS', { topic, numPartitions: 0 }],
    ['INVALID_REPLICATION_FACTOR', { topic, numPartitions: 1, replicationFactor: 9 }],
    ['INVALID_CONFIG', { topic, configEntries: [{ name: 'cleanup.policy', value: 'none' }] }],
  ]
  for (const [type, config] of wrong) await fails(type, admin.createTopics({ topics: [config] }))
}

// KafkaJS gathers the errors of createTopics; of the others it throws the first.
async function fails(type, promise) {
  await assert.rejects(promise, error => (error.errors ?? [error]).every(each => each.type === type))
}

async function create(admin, topic) {
  const configEntries = [{ name: 'retention.ms', value: '12345' }]
  const wanted = { topics: [{ topic, numPartitions: 2, replicationFactor: 1, configEntries }] }
  assert.strictEqual(await admin.createTopics({ ...wanted, validateOnly: true, waitForLeaders: false }), true)
  assert.ok(!(await admin.listTopics()).includes(topic))
  assert.strictEqual(await admin.createTopics(wanted), true)
  assert.strictEqual(await admin.createTopics(wanted), false) // it is there
  const described = await admin.fetchTopicMetadata({ topics: [topic] })
  const [leader] = (await admin.describeCluster()).brokers.map(each => each.nodeId)
  const expected = partitionId => ({
    partitionErrorCode: 0,
    partitionId,
    leader,
    replicas: [leader],
    isr: [leader],
    offlineReplicas: [],
  })
  const partitions = described.topics[0].partitions.sort((a, b) => a.partitionId - b.partitionId)
  assert.deepStrictEqual(partitions, [expected(0), expected(1)])
}

async function configs(admin, topic) {
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms', 'segment.bytes'] }
  const { resources } = await admin.describeConfigs({ resources: [resource], includeSynonyms: false })
  const found = resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]).sort()
  assert.deepStrictEqual(found, [
    ['retention.ms', '12345'],
    ['segment.bytes', '1073741824'],
  ])
}

async function partitions(admin, topic) {
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  await fails('INVALID_PARTITIONS', admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] }))
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  assert.strictEqual(topics[0].partitions.length, 5)
}

async function offsets(admin, topic, kafka) {
  const producer = kafka.producer()
  await producer.connect()
  const start = Date.now()
  const messages = [0, 2, 1].map(each => ({ partition: 4, value: 'value', timestamp: String(start + each) }))
  const [answer] = await producer.send({ topic, messages })
  assert.deepStrictEqual([answer.partition, answer.errorCode, answer.baseOffset], [4, 0, '0'])
  await producer.disconnect()
  const ends = (await admin.fetchTopicOffsets(topic)).sort((a, b) => a.partition - b.partition)
  assert.deepStrictEqual(ends[4], { partition: 4, offset: '3', high: '3', low: '0' })
  assert.deepStrictEqual(ends[0], { partition: 0, offset: '0', high: '0', low: '0' })
  const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, start + 1)
  assert.deepStrictEqual(byTime.find(each => each.partition === 4), { partition: 4, offset: '1' })
}

async function remove(admin, topic) {
  await admin.deleteTopics({ topics: [topic] })
  assert.ok(!(await admin.listTopics()).includes(topic))
}

module.exports = { administer }
