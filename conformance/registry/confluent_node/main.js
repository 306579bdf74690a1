// Serializes and deserializes with Confluent's own client: each format, the id before the value and the GUID in a
// header, rules, and a schema that is not compatible. Prints a line of JSON for each.
const registryOf = require("@confluentinc/schemaregistry");

const USER = {
  type: "record",
  name: "User",
  fields: [{ name: "name", type: "string", "confluent:tags": ["PII"] }],
};
const RULES = {
  domainRules: [
    { name: "named", kind: "CONDITION", mode: "WRITE", type: "CEL", expr: "message.name != 'nobody'" },
    { name: "masked", kind: "TRANSFORM", mode: "WRITE", type: "CEL_FIELD", tags: ["PII"], expr: "value + '-x'" },
  ],
};
const JSON_USER = { type: "object", properties: { name: { type: "string", maxLength: 3 } } };
const LATEST = { useLatestVersion: true, autoRegisterSchemas: false };
const IN_HEADER = { schemaIdSerializer: registryOf.HeaderSchemaIdSerializer };

const print = (...values) => console.log(JSON.stringify(values));

async function refused(name, work) {
  await work().then(
    () => print(name, "no error"),
    (error) => print(name, error.status ?? error.constructor.name, error.errorCode ?? null),
  );
}

async function goThereAndBack(name, serializer, deserializer, value) {
  const headers = {};
  const data = await serializer.serialize(name, value, headers);
  print(name, data[0] === 0, Object.keys(headers), await deserializer.deserialize(name, data, headers));
}

async function main() {
  registryOf.CelExecutor.register();
  registryOf.CelFieldExecutor.register();
  const client = new registryOf.SchemaRegistryClient({ baseURLs: [process.argv[2]] });
  const value = registryOf.SerdeType.VALUE;
  const avro = new registryOf.AvroDeserializer(client, value, {});
  const json = new registryOf.JsonDeserializer(client, value, { validate: true });
  const of = (subject, schemaType, schema, ruleSet) =>
    client.register(subject, { schemaType, schema: JSON.stringify(schema), ruleSet });

  await of("avro-value", "AVRO", USER);
  await goThereAndBack("avro", new registryOf.AvroSerializer(client, value, LATEST), avro, { name: "ann" });
  const inHeader = new registryOf.AvroSerializer(client, value, { ...LATEST, ...IN_HEADER });
  await goThereAndBack("avro", inHeader, avro, { name: "ann" });

  await of("json-value", "JSON", JSON_USER);
  const jsonWriter = new registryOf.JsonSerializer(client, value, { ...LATEST, validate: true });
  await goThereAndBack("json", jsonWriter, json, { name: "ann" });
  await refused("json", () => jsonWriter.serialize("json", { name: "anna" }));

  await of("rules-value", "AVRO", USER, RULES);
  const ruled = new registryOf.AvroSerializer(client, value, LATEST);
  await goThereAndBack("rules", ruled, avro, { name: "ann" });
  await refused("rules", () => ruled.serialize("rules", { name: "nobody" }));

  await refused("incompatible", () => of("avro-value", "AVRO", { ...USER, fields: [{ name: "age", type: "int" }] }));
  await refused("unknown", () => client.getBySubjectAndId("", 99));
  print("subjects", (await client.getAllSubjects()).sort());
}

main();
