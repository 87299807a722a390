"""Named injectors: each breaks one stage of a real run the way a public bug did."""

from engine.faults.injector import FAULTS as FAULTS
from engine.faults.injector import Injector as Injector
from engine.faults.injector import describe as describe
from engine.faults.injector import inject as inject
