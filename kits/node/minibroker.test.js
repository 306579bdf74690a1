import assert from 'node:assert'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, beforeEach, describe, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'

import { MinibrokerError, start } from './index.js'
import { commandFor } from './process.js'

const kafka = await start()
const folder = mkdtempSync(join(tmpdir(), 'kit-test-'))
after(() => rmSync(folder, { recursive: true }))

describe('one after the other', () => {
  beforeEach(() => kafka.reset())

  test('records are written and read', async () => {
    assert.strictEqual(await kafka.produce('orders', 'first', 'second'), 0)
    const options = { valuesHex: ['ff00', null], key: 'ann', timestampMs: 7, headers: { client_id: 'x' } }
    assert.strictEqual(await kafka.produceRecords('orders', options), 2)
    const [first, , third, last] = await kafka.expect('orders', 4)
    assert.deepStrictEqual([first.value, first.key, third.valueHex], ['first', null, 'ff00'])
    assert.deepStrictEqual([last.value, last.key, last.timestampMs, last.headers], [null, 'ann', 7, [['client_id', 'x']]])
    assert.strictEqual((await kafka.records('orders', { partition: 0 })).length, 4)
  })

  test('a wait says what is there instead', async () => {
    await kafka.produceRecords('orders', { values: ['first'], key: 'ann' })
    const message =
      "after 0.05 s: 2 records were expected in orders, and there is 1\n  orders-0 offset 0: key 'ann', value 'first'"
    await assert.rejects(kafka.expect('orders', 2, { timeout: 50 }), { name: 'MinibrokerError', code: 'EXPIRED', message })
    await assert.rejects(kafka.waitForGroup('billing', { timeout: 1 }), /billing/)
    const fetches = kafka.waitForRequests('Fetch', 1, { timeout: '1 ms', clientId: 'x' })
    await assert.rejects(fetches, /1 request was expected \(api Fetch, client_id x\), and there are 0/)
  })

  test('faults and time', async () => {
    const fault = await kafka.addFault({ api: 'Produce', error: 'NOT_LEADER_OR_FOLLOWER', times: 2, clientId: 'shop' })
    assert.match(fault.rule, /client_id shop/)
    assert.deepStrictEqual(await kafka.faults(), [fault])
    await kafka.removeFault(fault.number)
    const { nowMs } = await kafka.freezeClock()
    const later = await kafka.advanceClock('8 days')
    assert.deepStrictEqual([later.nowMs - nowMs, later.frozen], [691_200_000, true])
    assert.deepStrictEqual(await kafka.requests('Fetch'), [])
  })

  test('snapshots and crashes', async () => {
    await kafka.produce('client_ids', 'first')
    const snapshot = await kafka.snapshot()
    await kafka.produce('others', 'first')
    await kafka.restore(snapshot)
    await kafka.kill()
    await kafka.restart()
    assert.deepStrictEqual((await kafka.state()).topics, { client_ids: [1] })
  })

  test('an error of Kafka has its name', async () => {
    await kafka.createTopic('orders', { partitions: 2, config: { 'retention.ms': -1 } })
    await assert.rejects(kafka.createTopic('orders'), error => {
      return error instanceof MinibrokerError && error.code === 'TOPIC_ALREADY_EXISTS'
    })
  })
})

describe('at the same time', { concurrency: true }, () => {
  for (const value of ['first', 'second', 'third']) {
    test(`the ${value} test has a topic of its own`, async () => {
      const topic = await kafka.topic({ partitions: 2 })
      await kafka.produce(topic, value)
      assert.deepStrictEqual((await kafka.expect(topic)).map(record => record.value), [value])
    })
  }
})

test('nodes, security and a registry', async () => {
  const settings = { 'default.replication.factor': 3 }
  const cluster = await start({ nodes: 3, security: 'SASL_SSL', users: { alice: 'wonderland' }, registry: true, settings })
  assert.strictEqual(cluster.servers.length, 3)
  const config = await cluster.clientConfig('kafkajs', { user: 'alice' })
  assert.deepStrictEqual([config.brokers, config.sasl.password], [cluster.servers, 'wonderland'])
  assert.ok((await cluster.clientConfig('franz-go')).seed_brokers)
  await cluster.deny('alice', 'write', { topic: 'orders' })
  const { users, issuer } = await cluster.security()
  assert.ok(users.includes('alice') && issuer.tokenEndpoint.startsWith('https://'))
  assert.match(await cluster.registryUrl(), /^https:\/\/localhost:/)
  assert.strictEqual(await cluster.registerSchema('orders-value', { type: 'string' }), 1)
  await cluster.createTopic('orders')
  const leader = await cluster.leader('orders', 0)
  await cluster.killNode(leader)
  assert.notStrictEqual(await cluster.leader('orders', 0), leader)
  await cluster.startNode(leader)
  assert.strictEqual(await cluster.moveLeader('orders', 0, null), null)
  await cluster.configureShareGroup('workers', { 'share.auto.offset.reset': 'earliest' })
  assert.deepStrictEqual(await cluster.deliveries('workers', { topic: 'orders' }), [])
  await cluster.stop()
  await assert.rejects(cluster.reset(), /minibroker has ended/)
})

test('a broker that cannot start says why', async () => {
  const settings = { 'log.segment.byte': 1 }
  await assert.rejects(start({ settings }), /^Error: minibroker did not start: .*did you mean log.segment.bytes\?$/)
  const reason = "the extra control is missing: python3 -m pip install 'minibroker[control]'"
  const command = ['sh', '-c', 'echo "minibroker: $0" >&2; exit 2', reason]
  await assert.rejects(start({ command }), { message: `minibroker did not start: ${reason}` })
  await assert.rejects(start({ command: ['/nowhere'] }), /minibroker did not start: .*\/nowhere/)
})

test('a broker is found in this order', () => {
  const { PATH } = process.env
  process.env.PATH = folder
  try {
    assert.throws(() => commandFor(undefined, '/tmp/x'), /^Error: there is no minibroker/)
    const starts = { podman: 'podman run', docker: 'docker run', uvx: 'uvx --from minibroker[', minibroker: 'minibroker' }
    for (const [name, words] of Object.entries(starts)) {
      writeFileSync(join(folder, name), '#!/bin/sh\n', { mode: 0o755 })
      assert.ok(commandFor(undefined, '/tmp/x').join(' ').startsWith(words))
    }
    process.env.MINIBROKER = 'python3 -m minibroker'
    assert.deepStrictEqual(commandFor(undefined, '/tmp/x'), ['python3', '-m', 'minibroker'])
    assert.deepStrictEqual(commandFor(['own'], '/tmp/x'), ['own'])
  } finally {
    process.env.PATH = PATH
    delete process.env.MINIBROKER
  }
})

test('an image is a broker, too', async () => {
  const engine = join(folder, 'engine')
  const real = commandFor(undefined, folder).join(' ')
  writeFileSync(engine, `#!/bin/sh\nwhile [ "$1" != minibroker ]; do shift; done\nshift 2\nexec ${real} "$@"\n`)
  chmodSync(engine, 0o755)
  const own = await start({ command: [engine, 'run', '--rm', 'minibroker', 'minibroker'] })
  await own.produce('orders', 'first')
  await own.expect('orders')
  await own.stop()
})

test('no broker is left behind by a process that is killed', async () => {
  const temporary = mkdtempSync(join(folder, 'killed-'))
  const script = "import { start } from './index.js'; await start(); console.log('ready'); setInterval(() => {}, 1000)"
  const env = { ...process.env, TMPDIR: temporary }
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], { env, cwd: import.meta.dirname })
  await once(child.stdout, 'data')
  assert.ok(existsSync(temporary) && readdirSync(temporary).length > 0)
  child.kill('SIGKILL')
  for (let left = 200; readdirSync(temporary).length > 0; left--) {
    assert.ok(left > 0, 'the broker runs still')
    await setTimeout(50)
  }
})

test('a broker does not keep a process alive', async () => {
  const script = "import { start } from './index.js'; await (await start()).produce('orders', 'first')"
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], { cwd: import.meta.dirname })
  const [status] = await once(child, 'exit')
  assert.strictEqual(status, 0)
})
