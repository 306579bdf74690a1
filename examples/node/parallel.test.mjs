import assert from 'node:assert'
import { describe, test } from 'node:test'
import { Kafka, logLevel } from 'kafkajs'
import { start } from 'minibroker'

const kafka = await start()

describe('tests at the same time', { concurrency: true }, () => {
  for (const value of ['first', 'second', 'third']) {
    test(`the ${value} one has a topic of its own`, async () => {
      const topic = await kafka.topic()

      await send(topic, value)

      const [record] = await kafka.expect(topic)
      assert.strictEqual(record.value, value)
    })
  }
})

async function send(topic, value) {
  const producer = new Kafka({ brokers: kafka.servers, logLevel: logLevel.NOTHING }).producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value }] })
  await producer.disconnect()
}
