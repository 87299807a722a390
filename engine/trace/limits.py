"""How much one input may claim. Every size is compared with these before anything of that size is
allocated.

The limits are far above what a server does (a step of 64 requests with 65 rows each over 4,096
tokens of context has 17 million cells) and low enough that reading and checking a hostile file
stays below about 2 GB.
"""

from __future__ import annotations

MAX_STEPS = 1 << 20  # steps of one file
MAX_FILES = 1 << 10  # files of a directory

MAX_LINE_BYTES = 32 << 20  # one JSON line
MAX_CONTAINERS = 1 << 20  # opening brackets and braces of one JSON line
MAX_HEADER_BYTES = 16 << 20  # header of a trace: prompts and texts
MAX_METADATA_BYTES = 1 << 20  # Arrow message without its body
MAX_BODY_BYTES = 1 << 29  # body of an Arrow message as stored
MAX_INFLATED_BYTES = 1 << 29  # the same with its buffers decompressed
MAX_SNAPSHOT_BYTES = 256 << 20  # a snapshot as stored
MAX_MEMBER_BYTES = 512 << 20  # one member of a snapshot, inflated
MAX_RATIO = 200  # inflated to stored size of a member larger than a MiB

MAX_RANKS = 1 << 12
MAX_REQUESTS = 1 << 12  # live or padded
MAX_BUDGET = 1 << 11  # nodes without the root
MAX_NODES = MAX_BUDGET + 1  # nodes of one tree
MAX_ROWS = 1 << 16  # query rows of one step
MAX_LAYERS = 1 << 12
MAX_PREFIX_LEN = 1 << 22  # tokens of one request
MAX_SLOTS = 1 << 24  # KV slots that the requests of one step refer to
MAX_REQUEST_CELLS = 1 << 24  # q_len * (prefix_len + q_len) of one request
MAX_STEP_CELLS = 1 << 26  # the same summed over a step
MAX_OFFSET = 1 << 48  # magnitude of a recorded offset; sums of such offsets stay inside int64
MAX_TEXT = 1 << 20  # characters of one string
MAX_EXACT = 1 << 53  # integers that float64 holds without loss (token ids beside logits)
