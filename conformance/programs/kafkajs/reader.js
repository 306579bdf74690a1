// Reads topics from the first record to the last as the only member of a new group, and compares record by record.
'use strict'

const { isDeepStrictEqual } = require('util')

const PATIENCE_MS = 90_000

class Reader {
  constructor(topics, records) {
    this.seen = new Map()
    this.missing = topics.length * records.length
    this.expected = new Map()
    for (const topic of topics) {
      for (const record of records) {
        const where = `${topic}-${record.partition}`
        if (!this.expected.has(where)) this.expected.set(where, [])
        this.expected.get(where).push(record)
      }
    }
  }

  // Throws at the first difference.
  compare(topic, partition, message) {
    const where = `${topic}-${partition}`
    const offset = this.seen.get(where) ?? 0
    const expected = (this.expected.get(where) ?? [])[offset]
    this.seen.set(where, offset + 1)
    this.missing -= 1
    if (message.offset !== String(offset) || expected === undefined) {
      throw new Error(`${where}: offset ${message.offset}, ${offset} was expected`)
    }
    for (const field of ['key', 'value', 'headers', 'timestamp']) {
      const anything = field === 'timestamp' && expected.timestamp === null
      if (!anything && !isDeepStrictEqual(message[field] ?? null, expected[field])) {
        throw new Error(`${where} offset ${offset}: the ${field} differs`)
      }
    }
  }
}

async function read(kafka, groupId, topics, records) {
  const reader = new Reader(topics, records)
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100, retry: { retries: 20 } })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`${reader.missing} records did not come`)), PATIENCE_MS)
    const eachMessage = async ({ topic, partition, message }) => {
      try {
        reader.compare(topic, partition, message)
      } catch (error) {
        reject(error)
      }
      if (reader.missing === 0) {
        clearTimeout(late)
        resolve()
      }
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  await consumer.disconnect()
  await compareCommitted(kafka, groupId, topics, reader)
}

// What it has read, it has committed when it left.
async function compareCommitted(kafka, groupId, topics, reader) {
  const admin = kafka.admin()
  await admin.connect()
  for (const { topic, partitions } of await admin.fetchOffsets({ groupId, topics })) {
    for (const { partition, offset } of partitions) {
      const count = (reader.expected.get(`${topic}-${partition}`) ?? []).length
      if (offset !== String(count)) throw new Error(`${topic}-${partition}: ${offset} is committed, not ${count}`)
    }
  }
  await admin.deleteGroups([groupId])
  await admin.disconnect()
}

module.exports = { read }
