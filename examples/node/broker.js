// A broker for tests, in a process of its own.
'use strict'

const { spawn } = require('node:child_process')
const { mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const { createInterface } = require('node:readline')

// Starts a broker; `brokers` is where clients reach it.
async function startBroker() {
  const data = mkdtempSync(join(tmpdir(), 'billing-'))
  const settings = ['--set', 'listeners=PLAINTEXT://127.0.0.1:0', '--set', `log.dirs=${data}`]
  const options = { stdio: ['ignore', 'pipe', 'inherit'] }
  const broker = spawn('minibroker', ['serve', '--control', '0', '--log-level', 'warning', ...settings], options)
  // It prints two lines, which end with its addresses.
  const words = []
  for await (const line of createInterface({ input: broker.stdout })) {
    words.push(line.split(' ').at(-1))
    if (words.length === 2) break
  }
  if (words.length < 2) throw new Error('the broker did not start; it says why on stderr')
  const [servers, control] = words

  // Calls a method of the test kit, and returns what it returns.
  async function ask(path, body) {
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch(`${control}/v1/${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${path}: ${JSON.parse(text).message}`)
    return text ? JSON.parse(text) : null
  }

  async function stop() {
    broker.kill('SIGINT')
    await new Promise(resolve => broker.once('exit', resolve))
    rmSync(data, { recursive: true })
  }

  return { brokers: servers.split(','), ask, stop }
}

module.exports = { startBroker }
