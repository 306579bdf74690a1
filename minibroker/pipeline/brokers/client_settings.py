"""Checks the options that begin with `kafka.`: those that Spark refuses or fixes. The client checks the others.

Trust stores in Java's own formats (JKS, PKCS12) are read by Java's `keytool`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from minibroker.client.client_errors import SettingError
from minibroker.client.connection_settings import INT32_MAX, ClientSettings, Settings
from minibroker.pipeline.java import JavaError, find_java
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

KEYTOOL_TIMEOUT_S: Final = 60


def client_settings(bootstrap_servers: str, settings: Mapping[str, str], client_id: str = "") -> ClientSettings:
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
    with option_errors():
        return ClientSettings(rest, client_id, read_store)


@contextmanager
def option_errors() -> Iterator[None]:
    """Raise the client's errors about settings as `OptionError`."""
    try:
        yield
    except SettingError as error:
        raise OptionError(f"kafka.{error}") from None


def read_store(path: str, password: str) -> str:
    """Return the certificates of a store in PEM. Raises `OSError`."""
    return _read(path, password, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: str, password: str, mtime_ns: int) -> str:
    try:
        keytool = find_java().program.resolve().with_name("keytool")
        command = [str(keytool), "-list", "-rfc", "-keystore", path, "-storepass:env", "STORE_PASSWORD"]
        environment = {**os.environ, "STORE_PASSWORD": password}
        run = subprocess.run(command, capture_output=True, text=True, timeout=KEYTOOL_TIMEOUT_S, env=environment)
    except (JavaError, OSError, subprocess.TimeoutExpired) as error:
        raise OSError(f"{path} is not in PEM, and Java cannot read it: {error}") from None
    if run.returncode != 0:
        reason = (run.stdout + run.stderr).strip().splitlines()[:1]
        raise OSError(f"{path}: {''.join(reason)}")
    return run.stdout
