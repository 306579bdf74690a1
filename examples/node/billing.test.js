'use strict'

const assert = require('node:assert')
const { after, before, beforeEach, test } = require('node:test')
const { writeInvoices } = require('./billing')
const { startBroker } = require('./broker')

let kafka

before(async () => {
  kafka = await startBroker()
})
after(() => kafka?.stop())
beforeEach(() => kafka.ask('reset'))

test('an order gets an invoice', async () => {
  await kafka.ask('topics/orders/records', { values: ['{"id": 7, "pieces": 3, "price_cents": 250}'] })

  await writeInvoices(kafka.brokers, 1)

  const [invoice] = await kafka.ask('topics/invoices/expect', { count: 1, timeout: '10 s' })
  assert.deepStrictEqual(JSON.parse(invoice.value), { order: 7, cents: 750 })
})

test('an invoice is written although the leader moves', async () => {
  await kafka.ask('topics/orders/records', { values: ['{"id": 8, "pieces": 1, "price_cents": 99}'] })
  await kafka.ask('faults', { api: 'Produce', error: 'NOT_LEADER_OR_FOLLOWER', times: 2 })

  await writeInvoices(kafka.brokers, 1)

  const [invoice] = await kafka.ask('topics/invoices/expect', { count: 1, timeout: '10 s' })
  assert.deepStrictEqual(JSON.parse(invoice.value), { order: 8, cents: 99 })
})
