// KafkaJS: writes the records of a specification, reads them back, or exercises the admin API. Its consumer needs a group.
//
//   node main.js write|read BOOTSTRAP [PREFIX SPEC]...
//   node main.js admin BOOTSTRAP PREFIX
//   node main.js secured
//
// Exits 0 and prints one line, or prints what differed and exits 1.
'use strict'

const { Kafka, logLevel } = require('kafkajs')
const { administer } = require('./admin')
const codecs = require('./codecs')
const reader = require('./reader')
const secured = require('./secured')
const { readSpec } = require('./spec')

const PARTITIONS = 3
// The last topic is written with acks=1 and without idempotence, the others with both.
const TOPICS = ['none', 'gzip', 'snappy', 'lz4', 'zstd', 'plain']
const RECORDS_A_SEND = 50

async function write(kafka, prefix, records) {
  const admin = kafka.admin()
  await admin.connect()
  const configEntries = [{ name: 'retention.ms', value: '-1' }]
  const topics = TOPICS.map(name => ({
    topic: `${prefix}-${name}`,
    numPartitions: PARTITIONS,
    replicationFactor: 1,
    configEntries,
  }))
  if (!(await admin.createTopics({ topics }))) throw new Error('createTopics says that nothing was created')
  for (const name of TOPICS) await writeTopic(kafka, `${prefix}-${name}`, name, records)
  await compareEnds(admin, prefix, records)
  await admin.disconnect()
  return `write of ${records.length} records to each of ${TOPICS.length} topics`
}

async function writeTopic(kafka, topic, name, records) {
  const idempotent = name !== 'plain'
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  const compression = codecs.types[idempotent ? name : 'none']
  for (const messages of inBatches(records)) {
    await producer.send({ topic, acks: idempotent ? -1 : 1, compression, messages })
  }
  await producer.disconnect()
}

// KafkaJS makes one batch of what is sent to a partition at once: the large records go alone.
function* inBatches(records) {
  let batch = []
  for (const record of records) {
    const large = record.value !== null && record.value.length > 90_000
    if (large || batch.length === RECORDS_A_SEND) {
      if (batch.length) yield batch
      batch = []
    }
    if (large) yield [record]
    else batch.push(record)
  }
  if (batch.length) yield batch
}

async function read(kafka, prefix, records) {
  const topics = TOPICS.map(name => `${prefix}-${name}`)
  await reader.read(kafka, `${prefix}-${process.pid}-${Date.now()}`, topics, records)
  const admin = kafka.admin()
  await admin.connect()
  await compareEnds(admin, prefix, records)
  await admin.disconnect()
  return `read of ${records.length} records from each of ${TOPICS.length} topics`
}

async function compareEnds(admin, prefix, records) {
  for (const name of TOPICS) {
    for (const { partition, low, high } of await admin.fetchTopicOffsets(`${prefix}-${name}`)) {
      const count = records.filter(record => record.partition === partition).length
      if (low !== '0' || high !== String(count)) {
        throw new Error(`${prefix}-${name}-${partition}: offsets ${low} to ${high}, expected 0 to ${count}`)
      }
    }
  }
}

async function main([action, bootstrap, ...rest]) {
  if (action === 'secured') return secured.run()
  const kafka = new Kafka({ clientId: 'conformance', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
  if (action === 'admin') return administer(kafka, `${rest[0]}-admin`)
  await codecs.plugIn()
  const summaries = []
  for (let place = 0; place < rest.length; place += 2) {
    const writeOrRead = action === 'read' ? read : write
    summaries.push(await writeOrRead(kafka, rest[place], readSpec(rest[place + 1])))
  }
  return summaries.join(', ')
}

main(process.argv.slice(2)).then(
  summary => console.log(`kafkajs: ${summary}`),
  error => {
    console.log(`kafkajs: ${error.stack}`)
    process.exit(1) // open connections would keep it running
  }
)
