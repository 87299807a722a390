"""Shrink a faulty recording to the smallest one that still gives the same diagnosis."""

from engine.minimize.search import Minimized as Minimized
from engine.minimize.search import minimize as minimize
