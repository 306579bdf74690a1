// Starts the image by @testcontainers/kafka, prints where clients connect, and stops it when stdin ends.
import { readFileSync } from "node:fs";
import { KafkaContainer } from "@testcontainers/kafka";

const SECURE_PORT = 9095;

function secured(container) {
  return container.withSaslSslListener({
    port: SECURE_PORT,
    sasl: { mechanism: "SCRAM-SHA-256", user: { name: "alice", password: "alice-secret" } },
    keystore: { content: readFileSync(process.env.KEYSTORE), passphrase: "changeit" },
  });
}

const running = [];
for (const kind of process.argv.slice(2)) {
  const kraft = kind !== "zookeeper";
  const container = kraft ? new KafkaContainer("minibroker:8.0.0").withKraft() : new KafkaContainer("minibroker:8.0.0");
  const kafka = await (kind === "secured" ? secured(container) : container).start();
  running.push(kafka);
  console.log(`${kafka.getHost()}:${kafka.getMappedPort(kind === "secured" ? SECURE_PORT : 9093)}`);
}
for await (const _ of process.stdin);
for (const kafka of running) await kafka.stop();
process.exit(0);
