// Does the cases that stdin gives, a line of JSON each, and answers each with one; ../secured.py has the rules.
'use strict'

const fs = require('fs')
const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const PATIENCE_MS = 30_000
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))
const say = answer => console.log(JSON.stringify(answer))

async function run() {
  let done = 0
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line)
    try {
      say(await answer(asked))
    } catch (error) {
      say({ error: reasons(error) })
    }
    done += 1
  }
  return `${done} cases`
}

function reasons(error) {
  const own = `${error.name}: ${error.type ?? ''} ${error.message}`
  return error.cause ? `${own} <- ${reasons(error.cause)}` : own
}

async function answer(asked) {
  const kafka = new Kafka(settings(asked))
  if (asked.action === 'until-refused') return untilRefused(kafka, asked)
  await write(kafka, asked)
  return read(kafka, asked)
}

async function producing(kafka, write) {
  const producer = kafka.producer()
  try {
    await producer.connect()
    return await write(producer)
  } finally {
    await producer.disconnect()
  }
}

function write(kafka, { topic, records, seconds }) {
  return producing(kafka, async producer => {
    const sent = []
    for (let number = 0; number < records; number++) {
      sent.push(producer.send({ topic, messages: [{ value: String(number) }] }))
      sent.at(-1).catch(() => {}) // it is told below
      if (seconds) await pause((1000 * seconds) / records)
    }
    await Promise.all(sent)
  })
}

function untilRefused(kafka, { topic }) {
  return producing(kafka, async producer => {
    const end = Date.now() + PATIENCE_MS
    for (let first = true; Date.now() < end; first = false) {
      await producer.send({ topic, messages: [{ value: 'x' }] })
      if (first) say({ event: 'written' })
      await pause(5)
    }
    throw new Error('was not refused')
  })
}

async function read(kafka, { topic, records }) {
  const values = new Set()
  let read = 0
  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 100 })
  try {
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      const late = setTimeout(resolve, PATIENCE_MS)
      const eachMessage = async ({ message }) => {
        values.add(message.value.toString())
        read += 1
        if (values.size < records) return
        clearTimeout(late)
        resolve()
      }
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({ eachMessage }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return { read, distinct: values.size }
}

function settings(asked) {
  const made = {
    clientId: 'conformance',
    brokers: [asked.bootstrap],
    logLevel: logLevel.NOTHING,
    reauthenticationThreshold: 500, // ms; with its 10 s it would log in anew before each request of a brief session
    retry: { initialRetryTime: 50, retries: 3 },
  }
  if (asked.authority) {
    made.ssl = { ca: [fs.readFileSync(asked.authority)] }
    if (asked.certificate) {
      const own = fs.readFileSync(asked.certificate)
      made.ssl = { ...made.ssl, key: own, cert: own }
    }
  }
  if (asked.mechanism === 'OAUTHBEARER') {
    made.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: asked.token }) }
  } else if (asked.mechanism) {
    made.sasl = { mechanism: asked.mechanism.toLowerCase(), username: asked.user, password: asked.password }
  }
  return made
}

module.exports = { run }
