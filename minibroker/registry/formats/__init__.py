"""Avro, JSON Schema and Protobuf as the registry needs them: pure functions of texts, with one interface (`schema`)."""
