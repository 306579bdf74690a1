// Does the cases that stdin gives, a line of JSON each, and answers each with one; ../secured.py has the rules.
'use strict'

const fs = require('fs')
const http = require('http')
const https = require('https')
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
  if (asked.action === 'write-until-refused') return writeUntilRefused(kafka, asked)
  if (asked.action === 'commit-until-refused') return commitUntilRefused(kafka, asked)
  if (asked.action === 'read-until-refused') return readUntilRefused(kafka, asked)
  await write(kafka, asked)
  return read(kafka, asked)
}

async function producing(kafka, write, options = {}) {
  const producer = kafka.producer(options)
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

async function untilRefused(act) {
  const end = Date.now() + PATIENCE_MS
  for (let first = true; Date.now() < end; first = false) {
    await act()
    if (first) say({ event: 'begun' })
    await pause(5)
  }
  throw new Error('was not refused')
}

function writeUntilRefused(kafka, { topic }) {
  return producing(kafka, producer => untilRefused(() => producer.send({ topic, messages: [{ value: 'x' }] })))
}

function commitUntilRefused(kafka, { topic }) {
  const options = { transactionalId: topic, idempotent: true, maxInFlightRequests: 1 }
  const commit = async producer => {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value: 'x' }] })
    await transaction.commit()
  }
  return producing(kafka, producer => untilRefused(() => commit(producer)), options)
}

function readUntilRefused(kafka, { topic }) {
  return consuming(kafka, topic, (_, reject) => {
    setTimeout(() => reject(new Error('was not refused')), PATIENCE_MS).unref()
    let first = true
    return async () => {
      if (first) say({ event: 'begun' })
      first = false
    }
  })
}

// Reads until the promise is settled for which `reading` returns what is to be done with each message.
async function consuming(kafka, topic, reading) {
  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 100 })
  try {
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    return await new Promise((resolve, reject) => {
      const eachMessage = reading(resolve, reject)
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({ eachMessage }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
}

async function read(kafka, { topic, records }) {
  const values = new Set()
  let read = 0
  await consuming(kafka, topic, resolve => {
    const late = setTimeout(resolve, PATIENCE_MS)
    return async ({ message }) => {
      values.add(message.value.toString())
      read += 1
      if (values.size < records) return
      clearTimeout(late)
      resolve()
    }
  })
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
  if (asked.config) return { ...made, ...configured(asked.config) }
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

// What the test kit's client_config returns, with a function where it has what gets a token.
function configured(config) {
  if (config.sasl?.mechanism !== 'oauthbearer') return config
  const oauthBearerProvider = async () => ({ value: await tokenFrom(config.sasl, config.ssl.ca) })
  return { ...config, sasl: { mechanism: 'oauthbearer', oauthBearerProvider } }
}

function tokenFrom({ token_endpoint, client_id, client_secret, scope }, ca) {
  const options = { method: 'POST', ca, headers: { 'content-type': 'application/x-www-form-urlencoded' } }
  const { request: begin } = token_endpoint.startsWith('https:') ? https : http
  return new Promise((resolve, reject) => {
    const request = begin(token_endpoint, options, async response => {
      const pieces = await response.toArray()
      resolve(JSON.parse(pieces.join('')).access_token)
    })
    request.on('error', reject)
    request.end(String(new URLSearchParams({ grant_type: 'client_credentials', scope, client_id, client_secret })))
  })
}

module.exports = { run }
