"""Checks the options that begin with `kafka.`: those that Spark refuses or fixes. The client checks the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from minibroker.client.client_errors import SettingError
from minibroker.client.connection_settings import INT32_MAX, ClientSettings, Settings
from minibroker.pipeline.brokers.java_store import read_store_as_pem
from minibroker.pipeline.log_source import OptionError

# Spark's own connector refuses these too. The text says what to do instead.
REFUSED: Final = {
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "offsets are kept by Spark, and none are committed",
    "interceptor.classes": "interceptors are Java classes",
    "key.deserializer": "keys are bytes: cast the column",
    "value.deserializer": "values are bytes: cast the column",
    "key.serializer": "keys are bytes: cast the column",
    "value.serializer": "values are bytes: cast the column",
    "bootstrap.servers": "it is set already",
}
# These can only have the value that is in effect anyway.
FIXED: Final = {"check.crcs": "true", "allow.auto.create.topics": "false"}


def make_client_settings(bootstrap_servers: str, settings: Mapping[str, str], client_id: str = "") -> ClientSettings:
    """Return the settings of a client. Raises `OptionError` if one is invalid."""
    rest = Settings(settings, known=FIXED)
    for name in sorted(rest.keys() & REFUSED.keys()):
        raise OptionError(f"kafka.{name} cannot be set: {REFUSED[name]}")
    for name in sorted(rest.keys() & FIXED.keys()):
        value = rest.pop(name)
        if value.strip().lower() != FIXED[name]:
            raise OptionError(f"kafka.{name} can only be {FIXED[name]}, not {value!r}")
    rest["bootstrap.servers"] = bootstrap_servers
    rest.setdefault("receive.message.max.bytes", str(INT32_MAX))  # a batch may be larger than the fetch size
    with translate_errors():
        return ClientSettings(rest, client_id, read_store_as_pem)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the client's errors about settings as `OptionError`."""
    try:
        yield
    except SettingError as error:
        raise OptionError(f"kafka.{error}") from None
