"""All faults that are planted, once the modules that register them are imported.

What they are is in these modules.
"""

from __future__ import annotations

from tests.pipeline.verifying import faults, index_faults, producer_faults

FAULTS = faults.FAULTS
MODULES = (faults, index_faults, producer_faults)
