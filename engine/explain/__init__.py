"""What a check, a diagnosis or a class of faults means, and which public reports had it.

Two data files are the one source for the command line and the app: ``explanations.toml`` (the texts) and
``reports.toml`` (the public reports). Nothing here reads a trace, and nothing but the standard library is imported.
"""

from engine.explain.catalogue import explain as explain
from engine.explain.catalogue import explain_finding as explain_finding
from engine.explain.catalogue import keys as keys
from engine.explain.catalogue import reports as reports
from engine.explain.entries import Explanation as Explanation
from engine.explain.entries import Grade as Grade
from engine.explain.entries import Kind as Kind
from engine.explain.entries import Report as Report
