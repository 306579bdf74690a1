// Registers, encodes, decodes and fails with KafkaJS's registry client; prints a line of JSON for each.
const { SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");

const USER = { type: "record", name: "User", namespace: "a", fields: [{ name: "name", type: "string" }] };
const OTHER = { ...USER, fields: [{ name: "age", type: "int" }] };
const MONEY = 'syntax = "proto3"; package m; message Money { int32 cents = 1; }';

async function main() {
  const registry = new SchemaRegistry({ host: process.argv[2] });
  const print = (value) => console.log(JSON.stringify(value));
  const schemas = [
    [SchemaType.AVRO, JSON.stringify(USER), "users-value", { name: "ann" }],
    [SchemaType.JSON, '{"type": "object", "properties": {"a": {"type": "integer"}}}', "json-value", { a: 1 }],
    [SchemaType.PROTOBUF, MONEY, "money-value", { cents: 5 }],
  ];
  for (const [type, schema, subject, value] of schemas) {
    const { id } = await registry.register({ type, schema }, { subject });
    print([id, await registry.getLatestSchemaId(subject), await registry.decode(await registry.encode(id, value))]);
  }
  const refusals = [
    () => registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(OTHER) }, { subject: "users-value" }),
    () => registry.getSchema(99),
  ];
  for (const refused of refusals) {
    await refused().then(
      () => print("no error"),
      (error) => print([error.name, error.status]),
    );
  }
}

main();
