"""Named injectors on recorded steps, for mistakes that the engine cannot make by itself.

The clean relayouts that they build on are in ``masks``, ``kv_layouts``, ``states``, ``numbering`` and ``long_context``.
"""

from engine.faults.recorded.injector import RecordedInjector as RecordedInjector
from engine.faults.recorded.table import RECORDED_FAULTS as RECORDED_FAULTS
from engine.faults.recorded.table import RECORDED_INJECTORS as RECORDED_INJECTORS
from engine.faults.recorded.table import inject_recorded as inject_recorded
