// A broker of the Kafka protocol for tests; index.d.ts says what each part is for.

import { BrokerProcess } from './process.js'
import { MAPS, Verbs } from './verbs.js'

const ENDING_MS = 2000 // for a process to end whose connections have ended

export class MinibrokerError extends Error {
  constructor(message, code) {
    super(message)
    this.name = 'MinibrokerError'
    this.code = code
  }
}

export class Broker extends Verbs {
  #process
  #topics = 0

  constructor(process) {
    super()
    this.#process = process
  }

  static async start(options = {}) {
    const started = new Broker(await BrokerProcess.start(options))
    started.bootstrapServers = (await started.state()).bootstrapServers
    return started
  }

  get servers() {
    return this.bootstrapServers.split(',')
  }

  async topic(options = {}) {
    this.#topics += 1
    return this.createTopic(`topic-${this.#topics}`, options)
  }

  async produce(topic, ...values) {
    return this.produceRecords(topic, { values })
  }

  async stop() {
    await this.#process.stop()
  }

  // Sends fields with names in camel case, and returns the answer so, or its `only` field; null: all of it as it is.
  async _ask(method, path, fields, only) {
    const given = Object.entries(fields ?? {}).filter(([, value]) => value !== undefined)
    const sent = Object.fromEntries(given.map(([name, value]) => [snake(name), value]))
    const answer = await this._send(method, path, fields && sent)
    if (only) return answer[only]
    return only === null ? answer : inCamelCase(answer)
  }

  // Sends a body, or the fields of a GET in its query, and returns the answer.
  async _send(method, path, body) {
    const query = method === 'GET' && body ? `?${new URLSearchParams(body)}` : ''
    const url = `${this.#process.control}/v1/${path.map(encodeURIComponent).join('/')}${query}`
    const headers = { 'content-type': 'application/json' }
    let response, text
    try {
      response = await fetch(url, { method, headers, body: method === 'GET' ? undefined : JSON.stringify(body) })
      text = await response.text()
    } catch (error) {
      const reason = (await this.#process.hasEnded(ENDING_MS)) ? `minibroker has ended: ${this.#process.said}` : String(error.cause ?? error)
      throw new MinibrokerError(reason, 'NOT_RUNNING')
    }
    const answer = text ? JSON.parse(text) : undefined
    if (!response.ok) throw new MinibrokerError(answer.message, answer.error)
    return answer
  }
}

export const start = Broker.start

function snake(name) {
  return name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`)
}

function camel(name) {
  return name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())
}

function inCamelCase(value) {
  if (Array.isArray(value)) return value.map(inCamelCase)
  if (value === null || typeof value !== 'object') return value
  const fields = Object.entries(value).map(([name, each]) => [camel(name), each])
  return Object.fromEntries(fields.map(([name, each]) => [name, MAPS.has(name) ? each : inCamelCase(each)]))
}
