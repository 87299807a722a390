"""Checks: each compares one part of a recorded step with what the tree and the prefix alone imply."""

from engine.checks.finding import Effect as Effect
from engine.checks.finding import Finding as Finding
from engine.checks.finding import Verdict as Verdict
from engine.checks.finding import Where as Where
