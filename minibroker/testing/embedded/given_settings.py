"""The settings that a test gives to a broker: their texts, and whether they are valid."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from minibroker.broker.configs.settings import SettingsError
from minibroker.broker.configuration import load_settings

TEST_USERS, TEST_ISSUER = "test.users", "test.issuer"  # settings of the test kit alone
AUDIENCE = "kafka"  # of the issuer's tokens

log = logging.getLogger("minibroker")


def check_settings(texts: Mapping[str, str]) -> None:
    """Log which settings have no effect. Raises SettingsError."""
    try:
        loaded = load_settings(None, {}, [f"{name}={text}" for name, text in texts.items()])
    except SettingsError as error:
        raise SettingsError(str(error).removeprefix("--set ")) from None
    for warning in loaded.warnings:
        log.warning(warning)


@contextmanager
def suppress_settings_warnings() -> Iterator[None]:
    """Log no warnings about settings in the block, as the command has logged them before."""
    log.addFilter(_is_not_warning)
    try:
        yield
    finally:
        log.removeFilter(_is_not_warning)


def _is_not_warning(record: logging.LogRecord) -> bool:
    return record.levelno != logging.WARNING


def format_setting(value: object) -> str:
    """Return a setting's value as in a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(format_setting(each) for each in value)
    return str(value)
