"""Reads Java's trust stores (JKS, PKCS12) by Java's own `keytool`. It imports nothing of Spark, Arrow and numpy."""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache
from typing import Final

from minibroker.pipeline.java import JavaError, find_java

KEYTOOL_TIMEOUT_S: Final = 60


def read_store_as_pem(path: str, password: str) -> str:
    """Return the certificates of a store in PEM. Raises `OSError`."""
    return _read_store(path, password, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=16)
def _read_store(path: str, password: str, mtime_ns: int) -> str:
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
