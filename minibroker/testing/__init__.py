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
    from minibroker.testing.broker_security import AclVerbs as AclVerbs
    from minibroker.testing.broker_security import QuotaVerbs as QuotaVerbs
    from minibroker.testing.broker_security import Security as Security
    from minibroker.testing.broker_security import Users as Users
    from minibroker.testing.dead_letter_records import DeadLetter as DeadLetter
    from minibroker.testing.directories import Snapshot as Snapshot
    from minibroker.testing.exchange import Exchange as Exchange
    from minibroker.testing.faults.engine import Fault as Fault
    from minibroker.testing.faults.engine import Faults as Faults
    from minibroker.testing.faults.rules import FaultError as FaultError
    from minibroker.testing.filling import FillError as FillError
    from minibroker.testing.issuer import Issuer as Issuer
    from minibroker.testing.issuer import TokenOptions as TokenOptions
    from minibroker.testing.journal import Journal as Journal
    from minibroker.testing.log_reading import Record as Record
    from minibroker.testing.loops import NotRunning as NotRunning
    from minibroker.testing.registry_verbs import DecodedRecord as DecodedRecord
    from minibroker.testing.registry_verbs import RegistryFault as RegistryFault
    from minibroker.testing.registry_verbs import RegistryRequest as RegistryRequest
    from minibroker.testing.registry_verbs import RegistryVerbs as RegistryVerbs
    from minibroker.testing.share_deliveries import Delivery as Delivery
    from minibroker.testing.share_verbs import DeliveredRecord as DeliveredRecord
    from minibroker.testing.share_verbs import ShareGroupVerbs as ShareGroupVerbs
    from minibroker.testing.streams_group_views import StreamsGroupState as StreamsGroupState
    from minibroker.testing.streams_group_views import StreamsMemberState as StreamsMemberState
    from minibroker.testing.token_verbs import Token as Token
    from minibroker.testing.token_verbs import TokenVerbs as TokenVerbs
    from minibroker.testing.waiting import Expired as Expired

_HOMES = {
    "broker.client_telemetry": ("ClientMetric",),
    "broker.configs.settings": ("SettingsError",),
    "broker.lifecycle": ("StartError",),
    "protocol.errors": ("KafkaError",),
    "quantities": ("Duration",),
    "testing.broker": (
        "Broker",
        "TestClock",
    ),
    "testing.dead_letter_records": ("DeadLetter",),
    "testing.directories": ("Snapshot",),
    "testing.exchange": ("Exchange",),
    "testing.faults.engine": (
        "Fault",
        "Faults",
    ),
    "testing.faults.rules": ("FaultError",),
    "testing.filling": ("FillError",),
    "testing.issuer": (
        "Issuer",
        "TokenOptions",
    ),
    "testing.journal": ("Journal",),
    "testing.log_reading": ("Record",),
    "testing.loops": ("NotRunning",),
    "testing.registry_verbs": (
        "DecodedRecord",
        "RegistryFault",
        "RegistryRequest",
        "RegistryVerbs",
    ),
    "testing.broker_security": (
        "AclVerbs",
        "QuotaVerbs",
        "Security",
        "Users",
    ),
    "testing.share_deliveries": ("Delivery",),
    "testing.share_verbs": (
        "DeliveredRecord",
        "ShareGroupVerbs",
    ),
    "testing.streams_group_views": (
        "StreamsGroupState",
        "StreamsMemberState",
    ),
    "testing.token_verbs": (
        "Token",
        "TokenVerbs",
    ),
    "testing.waiting": ("Expired",),
}
__all__ = [
    "AclVerbs",
    "Broker",
    "ClientMetric",
    "DeadLetter",
    "DecodedRecord",
    "DeliveredRecord",
    "Delivery",
    "Duration",
    "Exchange",
    "Expired",
    "Fault",
    "FaultError",
    "Faults",
    "FillError",
    "Issuer",
    "Journal",
    "KafkaError",
    "NotRunning",
    "QuotaVerbs",
    "Record",
    "RegistryFault",
    "RegistryRequest",
    "RegistryVerbs",
    "Security",
    "SettingsError",
    "ShareGroupVerbs",
    "Snapshot",
    "StartError",
    "StreamsGroupState",
    "StreamsMemberState",
    "TestClock",
    "Token",
    "TokenOptions",
    "TokenVerbs",
    "Users",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"minibroker.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
