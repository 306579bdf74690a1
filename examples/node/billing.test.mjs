import assert from 'node:assert'
import { beforeEach, test } from 'node:test'
import { start } from 'minibroker'
import { writeInvoices } from './billing.mjs'

const kafka = await start()
beforeEach(() => kafka.reset())

test('an order gets an invoice', async () => {
  await kafka.produce('orders', '{"id": 7, "pieces": 3, "price_cents": 250}')

  await writeInvoices(kafka.servers, 1)

  const [invoice] = await kafka.expect('invoices')
  assert.deepStrictEqual(JSON.parse(invoice.value), { order: 7, cents: 750 })
})
