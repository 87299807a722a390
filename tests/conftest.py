"""Settings for every test: examples are bounded by number, never by time."""

import os

# Two workers share the cores: threads of one that wait for the other's cost more than they bring.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from hypothesis import settings

# Without a GPU, Triton kernels run in its interpreter; read when they are defined.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile("suite", deadline=None, max_examples=40)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("DDTREE_HYPOTHESIS", "suite"))
