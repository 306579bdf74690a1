"""The levels of this process's loggers, with Kafka's names (KIP-412): look up, set and unset.

Levels are not stored: the next start uses those of its command line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minibroker.broker.configs.config_changes import ChangeKind, ConfigChange
from minibroker.protocol.errors import ErrorCode, KafkaError

ROOT = "root"
# Kafka's names, the quietest first; Python has no level below DEBUG.
LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}

log = logging.getLogger("minibroker.configs")


def get_logger_levels() -> dict[str, str]:
    """Return the effective level of each logger, by name."""
    found = {ROOT: logging.getLogger()}
    for name, known in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(known, logging.Logger):  # otherwise it is only a prefix of another name
            found[name] = known
    return {name: _get_level_name(logger.getEffectiveLevel()) for name, logger in found.items()}


def _get_level_name(level: int) -> str:
    return next((text for text, number in LEVELS.items() if number <= level), "TRACE")


def change_logger_levels(changes: Iterable[ConfigChange], *, validate_only: bool) -> None:
    """Set and unset levels, all or none. Raises KafkaError: INVALID_CONFIG, INVALID_REQUEST."""
    wanted = list(changes)
    known = get_logger_levels()
    for change in wanted:
        _check_level_change(change, known)
    if not validate_only:
        for change in wanted:
            logger = logging.getLogger(None if change.name == ROOT else change.name)
            logger.setLevel(LEVELS[change.value] if change.kind is ChangeKind.SET else logging.NOTSET)
            log.warning("logger %s is at level %s now", change.name, _get_level_name(logger.getEffectiveLevel()))


def _check_level_change(change: ConfigChange, known_levels: dict[str, str]) -> None:
    if change.kind not in (ChangeKind.SET, ChangeKind.DELETE):
        message = f"{change.kind.name} operation is not allowed for the BROKER_LOGGER resource"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if change.name not in known_levels:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.kind is ChangeKind.DELETE and change.name == ROOT:
        message = f"Removing the log level of the {ROOT} logger is not allowed"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if change.kind is ChangeKind.SET and change.value not in LEVELS:
        reason = f"as it is not a supported log level. Valid log levels are {', '.join(sorted(LEVELS))}"
        message = f"Cannot set the log level of {change.name} to {change.value} {reason}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
