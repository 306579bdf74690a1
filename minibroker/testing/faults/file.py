"""Faults in a YAML file: a list of mappings, in the words of `rules`.

Reading YAML needs PyYAML, which the extra `minibroker[testing]` brings.
"""

from __future__ import annotations

from pathlib import Path

from minibroker.testing.faults.rules import FaultError, Rule, rule_from

MAXIMUM_BYTES = 1 << 20


def rules_in(path: Path) -> list[Rule]:
    """The rules of a file. Raises FaultError, one line that says where the fault is, and OSError."""
    try:
        import yaml
    except ImportError:
        raise FaultError("faults in YAML need PyYAML: python3 -m pip install 'minibroker[testing]'") from None
    with path.open("rb") as file:
        content = file.read(MAXIMUM_BYTES + 1)
    if len(content) > MAXIMUM_BYTES:
        raise FaultError(f"{path}: larger than {MAXIMUM_BYTES} bytes")
    try:
        listed = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise FaultError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(listed, list):
        raise FaultError(f"{path}: a list of faults is expected")
    rules = []
    for number, words in enumerate(listed, 1):
        try:
            rules.append(rule_from(words))
        except FaultError as error:
            raise FaultError(f"{path}: fault {number}: {error}") from None
    return rules
