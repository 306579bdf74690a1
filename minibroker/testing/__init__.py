"""The test kit: a real broker on a real socket inside a test, which controls its faults, time and state.

Names are imported on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minibroker.broker.client_telemetry import ClientMetric as ClientMetric
    from minibroker.broker.configs.settings import SettingsError as SettingsError
    from minibroker.broker.lifecycle import StartError as StartError
    from minibroker.protocol.errors import KafkaError as KafkaError
    from minibroker.quantities import Duration as Duration
    from minibroker.testing.broker import Broker as Broker
    from minibroker.testing.broker import TestClock as TestClock
    from minibroker.testing.embedded.broker_security import Security as Security
    from minibroker.testing.embedded.directories import Snapshot as Snapshot
    from minibroker.testing.embedded.issuer import Issuer as Issuer
    from minibroker.testing.embedded.issuer import TokenOptions as TokenOptions
    from minibroker.testing.embedded.registry_verbs import DecodedRecord as DecodedRecord
    from minibroker.testing.embedded.registry_verbs import RegistryFault as RegistryFault
    from minibroker.testing.embedded.registry_verbs import RegistryRequest as RegistryRequest
    from minibroker.testing.embedded.registry_verbs import RegistryVerbs as RegistryVerbs
    from minibroker.testing.faults.engine import Fault as Fault
    from minibroker.testing.faults.engine import Faults as Faults
    from minibroker.testing.faults.rules import FaultError as FaultError
    from minibroker.testing.loops import NotRunning as NotRunning
    from minibroker.testing.seen.exchange import Exchange as Exchange
    from minibroker.testing.seen.journal import Journal as Journal
    from minibroker.testing.seen.log_reading import Record as Record
    from minibroker.testing.seen.waiting import Expired as Expired
    from minibroker.testing.verbs.dead_letter_records import DeadLetter as DeadLetter
    from minibroker.testing.verbs.filling import FillError as FillError
    from minibroker.testing.verbs.group_verbs import StreamsGroupState as StreamsGroupState
    from minibroker.testing.verbs.group_verbs import StreamsMemberState as StreamsMemberState
    from minibroker.testing.verbs.security_verbs import AclVerbs as AclVerbs
    from minibroker.testing.verbs.security_verbs import QuotaVerbs as QuotaVerbs
    from minibroker.testing.verbs.security_verbs import Users as Users
    from minibroker.testing.verbs.share_deliveries import Delivery as Delivery
    from minibroker.testing.verbs.share_verbs import DeliveredRecord as DeliveredRecord
    from minibroker.testing.verbs.share_verbs import ShareGroupVerbs as ShareGroupVerbs
    from minibroker.testing.verbs.token_verbs import Token as Token
    from minibroker.testing.verbs.token_verbs import TokenVerbs as TokenVerbs

_HOMES = {
    "broker.client_telemetry": ("ClientMetric",),
    "broker.configs.settings": ("SettingsError",),
    "broker.lifecycle": ("StartError",),
    "protocol.errors": ("KafkaError",),
    "quantities": ("Duration",),
    "testing.broker": ("Broker", "TestClock"),
    "testing.embedded.broker_security": ("Security",),
    "testing.embedded.directories": ("Snapshot",),
    "testing.embedded.issuer": ("Issuer", "TokenOptions"),
    "testing.embedded.registry_verbs": ("DecodedRecord", "RegistryFault", "RegistryRequest", "RegistryVerbs"),
    "testing.faults.engine": ("Fault", "Faults"),
    "testing.faults.rules": ("FaultError",),
    "testing.loops": ("NotRunning",),
    "testing.seen.exchange": ("Exchange",),
    "testing.seen.journal": ("Journal",),
    "testing.seen.log_reading": ("Record",),
    "testing.seen.waiting": ("Expired",),
    "testing.verbs.dead_letter_records": ("DeadLetter",),
    "testing.verbs.filling": ("FillError",),
    "testing.verbs.group_verbs": ("StreamsGroupState", "StreamsMemberState"),
    "testing.verbs.security_verbs": ("AclVerbs", "QuotaVerbs", "Users"),
    "testing.verbs.share_deliveries": ("Delivery",),
    "testing.verbs.share_verbs": ("DeliveredRecord", "ShareGroupVerbs"),
    "testing.verbs.token_verbs": ("Token", "TokenVerbs"),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"minibroker.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
