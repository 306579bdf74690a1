// Reads orders, and writes an invoice for each.
import { Kafka, logLevel } from 'kafkajs'

// Writes an invoice for each of the next `count` orders.
export async function writeInvoices(brokers, count) {
  const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } })
  const consumer = kafka.consumer({ groupId: 'billing' })
  const producer = kafka.producer({ idempotent: true })
  await Promise.all([consumer.connect(), producer.connect()])
  await consumer.subscribe({ topics: ['orders'], fromBeginning: true })
  try {
    await new Promise((resolve, reject) => {
      let done = 0
      const eachMessage = async ({ message }) => {
        const { id, pieces, price_cents } = JSON.parse(message.value)
        const value = JSON.stringify({ order: id, cents: pieces * price_cents })
        await producer.send({ topic: 'invoices', messages: [{ key: String(id), value }] })
        done += 1
        if (done === count) resolve()
      }
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({ eachMessage }).catch(reject)
    })
  } finally {
    await Promise.all([consumer.disconnect(), producer.disconnect()])
  }
}
