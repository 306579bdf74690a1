"""Python's clients as programs that log in; and the rules of all such programs, which other languages have, too.

    python3 -m conformance.programs.secured confluent|aiokafka|kafka-python

A program does the cases that its stdin gives, a line of JSON each, and answers each with a line. A case has

- `bootstrap`, `protocol`, and what its protocol needs: `authority` and `certificate` (files in PEM, the latter with the
  key), `mechanism`, `user` and `password`, or `token`; `token_url` with the token for Java, from where a client may
  also get a token with `client_id`, `client_secret` and `scope`
- `config` instead, for franz-go, kafkajs and Java: what the test kit's `client_config` returns
- `tokenauth`, for franz-go, if `user` and `password` are those of a delegation token
- `refused`, if the client is to be refused: who tries again until a timeout needs no long one
- `action`: `round-trip` writes `records` within `seconds` to `topic`, the numbers from 0 on, and reads them in a group
  of that name; `write-until-refused` writes records until the broker refuses one, `read-until-refused` reads until
  then, and `commit-until-refused` commits transactions, whose id is the topic's name; after the first record or
  transaction these print the line `{"event": "begun"}`

and its answer `{"read": ..., "distinct": ...}`, how many records and how many different ones were read, or
`{"error": ...}` with what the client says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.sasl.oauth

PATIENCE_S = 30
Case = dict[str, Any]


def pause_s(case: Case) -> float:
    pause: float = case["seconds"] / case["records"]
    return pause


def until_refused(do: Callable[[], object]) -> None:
    """Repeat what a right allows, and say when it has been done once."""
    end = time.monotonic() + PATIENCE_S
    do()
    print(json.dumps({"event": "begun"}), flush=True)
    while time.monotonic() < end:
        time.sleep(0.005)
        do()
    raise TimeoutError("was not refused")


# --- confluent-kafka: librdkafka ------------------------------------------------------------------


class ByConfluent:
    """A case, and what librdkafka says of its connections meanwhile."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.told: list[str] = []
        self.settings: dict[str, Any] = {
            "bootstrap.servers": case["bootstrap"],
            "security.protocol": case["protocol"],
            "error_cb": lambda error: self.told.append(f"{error.name()}: {error}"),
            "log_level": 0,
        }
        if case.get("authority"):
            self.settings["ssl.ca.location"] = case["authority"]
        if case.get("certificate"):
            self.settings |= {"ssl.certificate.location": case["certificate"], "ssl.key.location": case["certificate"]}
        if case.get("mechanism"):
            self.settings |= {"sasl.mechanism": case["mechanism"], **self._login()}

    def _login(self) -> dict[str, Any]:
        case = self.case
        if case["mechanism"] != "OAUTHBEARER":
            return {"sasl.username": case["user"], "sasl.password": case["password"]}
        if not case.get("client_id"):
            return {"oauth_cb": lambda _: (case["token"], time.time() + 60)}
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": case["token_url"],
            "sasl.oauthbearer.client.id": case["client_id"],
            "sasl.oauthbearer.client.secret": case["client_secret"],
            "sasl.oauthbearer.scope": case["scope"],
        }

    def answer(self) -> Case:
        action = self.case["action"]
        if action == "read-until-refused":
            self._read_until_refused()
        transactional = {"transactional.id": self.case["topic"]} if action == "commit-until-refused" else {}
        producer = confluent_kafka.Producer({**self.settings, "enable.idempotence": True, **transactional})
        try:
            if action == "write-until-refused":
                until_refused(lambda: self._write_one(producer))
            if action == "commit-until-refused":
                producer.init_transactions(PATIENCE_S)
                until_refused(lambda: self._commit_one(producer))
            self._write(producer)
        finally:
            producer.purge()
        return self._read()

    def _write(self, producer: confluent_kafka.Producer) -> None:
        written: list[Any] = []
        for number in range(self.case["records"]):
            producer.produce(self.case["topic"], b"%d" % number, on_delivery=lambda error, _: written.append(error))
            producer.poll(0)
            time.sleep(pause_s(self.case))
        end = time.monotonic() + PATIENCE_S
        while len(written) < self.case["records"] and time.monotonic() < end:
            producer.poll(0.01)
            if self.told and not written:  # it would try for minutes
                raise ConnectionError(self.told[0])
        if any(written):
            raise ConnectionError(next(error.name() for error in written if error))

    def _write_one(self, producer: confluent_kafka.Producer) -> None:
        written: list[Any] = []
        producer.produce(self.case["topic"], b"x", on_delivery=lambda error, _: written.append(error))
        producer.flush(PATIENCE_S)
        if written[0]:
            raise PermissionError(written[0].name())

    def _commit_one(self, producer: confluent_kafka.Producer) -> None:
        producer.begin_transaction()
        producer.produce(self.case["topic"], b"x")
        producer.commit_transaction(PATIENCE_S)

    def _consumer(self) -> confluent_kafka.Consumer:
        settings = {**self.settings, "group.id": self.case["topic"], "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe([self.case["topic"]])
        return consumer

    def _read_until_refused(self) -> None:
        consumer = self._consumer()

        def read() -> None:
            message = consumer.poll(PATIENCE_S)
            if message is not None and message.error():
                raise PermissionError(message.error().name())

        try:
            until_refused(read)
        finally:
            consumer.close()

    def _read(self) -> Case:
        consumer = self._consumer()
        values: list[bytes | None] = []
        end = time.monotonic() + PATIENCE_S
        while len(set(values)) < self.case["records"] and time.monotonic() < end:
            values += [message.value() for message in consumer.consume(500, timeout=0.1) if not message.error()]
        consumer.close()
        return {"read": len(values), "distinct": len(set(values))}


# --- Python's own clients -------------------------------------------------------------------------


class Token(kafka.net.sasl.oauth.AbstractTokenProvider):
    """The case's token, for kafka-python."""

    def __init__(self, case: Case) -> None:
        self._token: str = case["token"]

    def token(self) -> str:
        return self._token


class AioToken(aiokafka.abc.AbstractTokenProvider):
    """The case's token, for aiokafka."""

    def __init__(self, case: Case) -> None:
        self._token: str = case["token"]

    async def token(self) -> str:
        return self._token


def python_settings(case: Case, provider: Callable[[Case], Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": case["bootstrap"], "security_protocol": case["protocol"]}
    if case.get("authority"):
        context = ssl.create_default_context(cafile=case["authority"])
        if case.get("certificate"):
            context.load_cert_chain(case["certificate"])
        settings["ssl_context"] = context
    if case.get("mechanism") == "OAUTHBEARER":
        settings |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider(case)}
    elif case.get("mechanism"):
        settings["sasl_mechanism"] = case["mechanism"]
        settings |= {"sasl_plain_username": case["user"], "sasl_plain_password": case["password"]}
    return settings


async def by_aiokafka(case: Case) -> Case:
    settings = python_settings(case, AioToken)
    reading = {**settings, "group_id": case["topic"], "auto_offset_reset": "earliest"}
    if case["action"] == "read-until-refused":
        async with aiokafka.AIOKafkaConsumer(case["topic"], **reading) as consumer:
            await aio_until_refused(consumer.getone)
    transactional = {"transactional_id": case["topic"]} if case["action"] == "commit-until-refused" else {}
    producer = aiokafka.AIOKafkaProducer(**settings, enable_idempotence=True, **transactional)
    try:
        async with asyncio.timeout(4 if case.get("refused") else PATIENCE_S):
            await producer.start()
        if case["action"] == "write-until-refused":
            await aio_until_refused(lambda: producer.send_and_wait(case["topic"], b"x"))
        if transactional:
            await aio_until_refused(lambda: aio_commit(producer, case["topic"]))
        sent = []
        for number in range(case["records"]):
            sent.append(await producer.send(case["topic"], b"%d" % number))
            await asyncio.sleep(pause_s(case))
        await asyncio.gather(*sent)
    finally:
        await producer.stop()
    values = []
    async with aiokafka.AIOKafkaConsumer(case["topic"], **reading) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            while len(set(values)) < case["records"]:
                values.append((await consumer.getone()).value)
    return {"read": len(values), "distinct": len(set(values))}


async def aio_commit(producer: aiokafka.AIOKafkaProducer, topic: str) -> None:
    async with producer.transaction():
        await producer.send_and_wait(topic, b"x")


async def aio_until_refused(do: Callable[[], Awaitable[object]]) -> None:
    """As `until_refused`."""
    async with asyncio.timeout(PATIENCE_S):
        await do()
        print(json.dumps({"event": "begun"}), flush=True)
        while True:
            await asyncio.sleep(0.005)
            await do()


def by_kafka_python(case: Case) -> Case:
    settings = {**python_settings(case, Token), "bootstrap_timeout_ms": 500 if case.get("refused") else 20_000}
    topic, action = case["topic"], case["action"]
    reading = {**settings, "group_id": topic, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}
    if action == "read-until-refused":
        with contextlib.closing(kafka.KafkaConsumer(topic, **reading)) as consumer:
            until_refused(lambda: next(iter(consumer)))
    transactional = {"transactional_id": topic} if action == "commit-until-refused" else {}
    producer = kafka.KafkaProducer(**settings, **transactional, enable_idempotence=True, max_block_ms=5000)

    def write() -> None:
        if transactional:
            producer.begin_transaction()
        producer.send(topic, b"x").get(PATIENCE_S)
        if transactional:
            producer.commit_transaction()

    try:
        if transactional:
            producer.init_transactions()
        if action != "round-trip":
            until_refused(write)
        sent = []
        for number in range(case["records"]):
            sent.append(producer.send(topic, b"%d" % number))
            time.sleep(pause_s(case))
        for each in sent:
            each.get(PATIENCE_S)
    finally:
        producer.close(timeout=5)
    values: list[bytes | None] = []
    end = time.monotonic() + PATIENCE_S
    with contextlib.closing(kafka.KafkaConsumer(topic, **reading)) as consumer:
        while len(set(values)) < case["records"] and time.monotonic() < end:
            polled = consumer.poll(500)
            values += [record.value for records in polled.values() for record in records]
    return {"read": len(values), "distinct": len(set(values))}


CLIENTS: dict[str, Callable[[Case], Case]] = {
    "confluent": lambda case: ByConfluent(case).answer(),
    "aiokafka": lambda case: asyncio.run(by_aiokafka(case)),
    "kafka-python": by_kafka_python,
}


class Complaints(logging.Handler):
    """What a client logs: aiokafka and kafka-python say only there why they cannot connect."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main(name: str) -> None:
    complaints = Complaints()
    logging.basicConfig(handlers=[complaints])
    for line in sys.stdin:
        complaints.lines.clear()
        try:
            answer = CLIENTS[name](json.loads(line))
        except Exception as error:  # whatever the client raises is its answer
            answer = {"error": "; ".join([f"{type(error).__name__}: {error}", *complaints.lines])}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
