"""Variables of the environment that commands read, and that are no settings of a broker."""

from typing import Final

TOKEN: Final = "MINIBROKER_CONTROL_TOKEN"
SERVER: Final = "MINIBROKER_BOOTSTRAP_SERVER"
REGISTRY: Final = "MINIBROKER_REGISTRY_URL"  # of `schemas` and `consume`
ALL: Final = (TOKEN, SERVER, REGISTRY)
