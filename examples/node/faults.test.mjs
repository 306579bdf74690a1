import assert from 'node:assert'
import { beforeEach, test } from 'node:test'
import { start } from 'minibroker'
import { writeInvoices } from './billing.mjs'

const kafka = await start()
beforeEach(() => kafka.reset())

test('an invoice is written although the leader moves', async () => {
  await kafka.produce('orders', '{"id": 8, "pieces": 1, "price_cents": 99}')
  await kafka.addFault({ api: 'Produce', error: 'NOT_LEADER_OR_FOLLOWER', times: 2 })

  await writeInvoices(kafka.servers, 1)

  await kafka.expect('invoices')
  await kafka.waitForRequests('Produce', 3)
})

test('an invoice is written once although an answer is lost', async () => {
  await kafka.produce('orders', '{"id": 9, "pieces": 2, "price_cents": 10}')
  await kafka.addFault({ api: 'Produce', close: 'after', times: 1 })

  await writeInvoices(kafka.servers, 1)

  assert.strictEqual((await kafka.records('invoices')).length, 1)
})

test('offsets of a group that is away too long are gone', async () => {
  for (const topic of ['orders', 'invoices']) {
    await kafka.createTopic(topic, { config: { 'retention.ms': -1 } }) // keeps records forever
  }
  await kafka.produce('orders', '{"id": 10, "pieces": 1, "price_cents": 20}')
  await writeInvoices(kafka.servers, 1)

  await kafka.advanceClock('8 days') // offsets.retention.minutes is 7 days

  await writeInvoices(kafka.servers, 1)
  await kafka.expect('invoices', 2)
})
