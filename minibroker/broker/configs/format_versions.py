"""The versions of Kafka that select a message format in `message.format.version`, in Kafka's spelling.

`protocol/records/` implements the formats. Kafka 3 treated every value as 3.0, and Kafka 4 removed the setting; here it
has the meaning that it had until Kafka 2.8.
"""

from __future__ import annotations

from functools import cache

# The number of -IV versions of each release; until 0.9.0 there were none.
_RELEASES = {
    "0.10.0": 2,
    "0.10.1": 3,
    "0.10.2": 1,
    "0.11.0": 3,
    "1.0": 1,
    "1.1": 1,
    "2.0": 2,
    "2.1": 3,
    "2.2": 2,
    "2.3": 2,
    "2.4": 2,
    "2.5": 1,
    "2.6": 1,
    "2.7": 3,
    "2.8": 2,
    "3.0": 2,
    "3.1": 1,
    "3.2": 1,
    "3.3": 4,
    "3.4": 1,
    "3.5": 3,
    "3.6": 3,
    "3.7": 5,
    "3.8": 1,
    "3.9": 1,
    "4.0": 4,
    "4.1": 2,
    "4.2": 2,
    "4.3": 1,
}
_FORMATS = {"0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9.0": 0, "0.10.0": 1, "0.10.1": 1, "0.10.2": 1}
_LATEST_FORMAT = 2


@cache
def format_of_version(version: str) -> int | None:
    """Return the magic byte of the format of a version of Kafka, or None if there is no such version.

    As in Kafka, a release may have more parts than it needs: 0.10.0.1 is 0.10.0, and 2.8.2 is 2.8.
    """
    parts = version.split(".")
    release, separator, internal = ".".join(parts[: 3 if parts[0] == "0" else 2]).partition("-IV")
    if separator:
        if not internal.isdecimal() or int(internal) >= _RELEASES.get(release, 0):
            return None
    elif release not in _FORMATS and release not in _RELEASES:
        return None
    return _FORMATS.get(release, _LATEST_FORMAT)
