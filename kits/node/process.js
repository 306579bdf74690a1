// A process of minibroker, which ends when its stdin does: a pipe from this process, however this ends.

import { spawn } from 'node:child_process'
import { accessSync, constants, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { setTimeout } from 'node:timers/promises'

const PATIENCE_MS = 300_000 // for an image or a package to come from a registry
const PAUSE_MS = 5
const MOST_SAID = 4096

/** Returns the words that start minibroker here. `directory` has the ready file. */
export function commandFor(own, directory) {
  const named = process.env.MINIBROKER?.split(/\s+/).filter(Boolean)
  for (const words of [own, named]) if (words?.length) return words
  const user = process.getuid ? [`--user=${process.getuid()}:${process.getgid()}`] : []
  const mounted = `--volume=${directory}:${directory}`
  const image = ['run', '--rm', '--interactive', '--network=host', mounted, ...user, 'minibroker', 'minibroker']
  const found = [
    ['minibroker'],
    ['uvx', '--from', 'minibroker[control,registry]', 'minibroker'],
    ['docker', ...image],
    ['podman', ...image]
  ].find(([program]) => isOnPath(program))
  if (found) return found
  throw new Error(
    'there is no minibroker: install it, or say in MINIBROKER what starts it; uvx, docker and podman are not there, either'
  )
}

function isOnPath(program) {
  const endings = process.platform === 'win32' ? ['.exe'] : ['']
  return (process.env.PATH ?? '').split(delimiter).some(folder =>
    endings.some(ending => {
      try {
        accessSync(join(folder, program + ending), constants.X_OK)
        return true
      } catch {
        return false
      }
    })
  )
}

/** Returns the arguments of `serve`. */
function argumentsFor(options, ready) {
  const { nodes = 1, settings = {}, security, users = {}, registry, emulate } = options
  const words = ['serve', '--until-stdin-closes', '--temporary', '--ready-file', ready, '--log-level', 'warning']
  words.push('--control', '0', '--nodes', String(nodes), '--set', 'listeners=PLAINTEXT://127.0.0.1:0')
  if (security) words.push('--security', security)
  if (emulate) words.push('--emulate', emulate)
  if (registry) words.push('--registry', '0')
  for (const [name, password] of Object.entries(users)) words.push('--user', `${name}:${password}`)
  for (const [name, value] of Object.entries(settings)) words.push('--set', `${name}=${value}`)
  return words
}

/** A process that listens. `control` is the address for tests. It does not keep this process alive. */
export class BrokerProcess {
  #child
  #said = ''
  #failed
  ended = false

  /** Starts a broker, and waits until it listens. */
  static async start(options) {
    const directory = mkdtempSync(join(tmpdir(), 'minibroker-kit-'))
    try {
      const started = new BrokerProcess()
      await started.#start(options, directory)
      return started
    } finally {
      rmSync(directory, { recursive: true, force: true })
    }
  }

  async #start(options, directory) {
    const ready = join(directory, 'ready')
    const [program, ...words] = [...commandFor(options.command, directory), ...argumentsFor(options, ready)]
    this.#child = spawn(program, words, { stdio: ['pipe', 'ignore', 'pipe'] })
    this.#child.stderr.on('data', text => {
      process.stderr.write(text)
      this.#said = (this.#said + text).slice(-MOST_SAID)
    })
    this.#child.stdin.on('error', () => {}) // the broker has ended, which is seen elsewhere
    this.#child.on('error', error => (this.#failed = error))
    this.#child.on('close', () => (this.ended = true))
    this.control = await this.#address(ready)
    for (const each of [this.#child, this.#child.stdin, this.#child.stderr]) each.unref()
  }

  async #address(ready) {
    for (const until = Date.now() + PATIENCE_MS; Date.now() < until; await setTimeout(PAUSE_MS)) {
      if (this.#failed) throw new Error(`minibroker did not start: ${this.#failed.message}`)
      if (this.ended) throw new Error(`minibroker did not start: ${this.said}`)
      const [, address] = textOf(ready).match(/^control (.*)$/m) ?? []
      if (address) return address
    }
    this.#child.kill()
    throw new Error(`minibroker did not start within ${PATIENCE_MS / 1000} s: ${this.said}`)
  }

  /** Resolves whether it ends within this time. */
  async hasEnded(waitMs) {
    for (const until = Date.now() + waitMs; !this.ended && Date.now() < until; ) await setTimeout(PAUSE_MS)
    return this.ended
  }

  /** The last line that the broker has written to stderr. */
  get said() {
    return this.#said.trim().split('\n').at(-1).replace(/^minibroker: /, '')
  }

  /** Ends the broker, and waits until it has removed its data. */
  async stop() {
    if (this.ended) return
    this.#child.ref()
    const closed = new Promise(resolve => this.#child.once('close', resolve))
    this.#child.stdin.end()
    await closed
  }
}

function textOf(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
