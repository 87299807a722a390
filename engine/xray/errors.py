"""What goes wrong before a kernel runs."""

from __future__ import annotations


class XRayError(ValueError):
    """A step, a kernel or a device that cannot be X-rayed; the message names place, expected and found."""
