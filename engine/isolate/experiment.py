"""Experiment: a matrix and the subject that it is tried on, as it lies in ``experiment.json``."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.isolate.matrix import Matrix


@dataclass(frozen=True)
class LocalSubject:
    """The engine of this project. Fields are those of :class:`engine.decoding.run_settings.RunSettings`."""

    model: str = "smollm2"
    drafter: str = "dflash"
    accuracy: float = 0.9
    block_size: int = 8
    spine: bool = False
    captured_bs: int | None = None  # with graphs; None: the next power of two
    fault: str | None = None  # that is to be found
    backend: str = "addressed"
    device: str = "cpu"
    dtype: str = "float32"
    checks: bool = True  # record a trace of each cell and check it


@dataclass(frozen=True)
class ServerSubject:
    """A server that is started for each setting of budget, top-k and graphs, and ended again.

    ``command`` and ``plain_command`` are words of a command line; ``plain_command``: the same model without
    speculation. What stands in braces is filled in: ``{budget}``, ``{width}`` (budget + 1), ``{topk}`` (the budget
    where there is no cap), ``{port}`` that it is to listen on, and ``{traces}``, a folder for the tap, one a server;
    the word ``{eager}`` becomes ``eager_words`` without graphs and nothing with them. One plain server serves all
    cells: it knows ``{port}``, ``{traces}`` and ``{eager}`` (without graphs only where no cell has them), and lacks the
    variables that name others.

    ``ahead``: servers that load while another is asked. They listen on the ports that follow that of ``url``, so both
    commands must name ``{port}``.
    """

    command: tuple[str, ...]
    plain_command: tuple[str, ...]
    url: str = "http://127.0.0.1:30000"
    block_size: int | None = None  # of the drafter
    eager_words: tuple[str, ...] = ("--disable-cuda-graph",)
    environment: tuple[tuple[str, str], ...] = ()  # filled in like the command
    patience: float = 900.0  # seconds until it must be ready
    ahead: int = 0
    timeout: float = 300.0  # seconds of one answer
    tie: float = (
        0.25  # log-probabilities that lie closer are a near-tie; 16-bit logits are some 0.1 apart
    )

    def __post_init__(self) -> None:
        for name in ("command", "plain_command"):
            if not getattr(self, name):
                raise ValueError(f"{name}: expected the words of a command line, found none")
        if self.ahead < 0:
            raise ValueError(f"ahead: expected at least 0, found {self.ahead}")
        for name in ("command", "plain_command") if self.ahead else ():
            if not any("{port}" in word for word in getattr(self, name)):
                why = "since servers that load ahead have ports of their own"
                raise ValueError(f"{name}: expected {{port}}, {why}, found it nowhere")


@dataclass(frozen=True)
class Experiment:
    """What is tried on what."""

    matrix: Matrix = field(default_factory=Matrix)
    subject: LocalSubject | ServerSubject = field(default_factory=LocalSubject)

    @property
    def speed_counts(self) -> bool:
        """Whether slower than plain decoding is slow: the local engine is built to be looked at, not to be fast."""
        return isinstance(self.subject, ServerSubject)
