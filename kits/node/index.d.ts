import { NewTopic, Verbs } from './verbs.js'

export * from './verbs.js'

/** How a broker starts. */
export interface Options {
  /** The number of brokers in the cluster; one by default. */
  nodes?: number
  /** Settings by Kafka's names: `{ 'num.partitions': 3 }`. */
  settings?: { [name: string]: string | number | boolean }
  /** Certificates and users of the broker's own. */
  security?: 'PLAINTEXT' | 'SSL' | 'SASL_PLAINTEXT' | 'SASL_SSL'
  /** Passwords by name. */
  users?: { [name: string]: string }
  /** Starts a schema registry, whose address is `registryUrl()`. */
  registry?: boolean
  /** A release of Apache Kafka, such as '2.8', as which the broker answers. */
  emulate?: string
  /** What starts minibroker, if neither `MINIBROKER` nor the `PATH` says it: `['python3', '-m', 'minibroker']`. */
  command?: string[]
}

/** A verb that failed. `code` is EXPIRED for a wait, whose message says what was there instead, or Kafka's error. */
export class MinibrokerError extends Error {
  code: string
}

/**
 * A broker in a process of its own, which ends with this process, however this ends. It does not keep this process
 * alive, so that there is no need to stop it.
 */
export class Broker extends Verbs {
  private constructor()
  static start(options?: Options): Promise<Broker>
  /** The addresses of all nodes, for clients. */
  readonly servers: string[]
  /** The same, with commas between them. */
  readonly bootstrapServers: string
  /** Create a topic that no other test has; return its name. */
  topic(options?: NewTopic): Promise<string>
  /** Append records to partition 0 of a topic; return the offset of the first. `produceRecords` has keys and headers. */
  produce(topic: string, ...values: string[]): Promise<number>
  /** End the broker. */
  stop(): Promise<void>
}

/** Starts a broker. Rejects with the broker's own line if it cannot start. */
export function start(options?: Options): Promise<Broker>
