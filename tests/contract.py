"""The diagnoses of the checker's contract, check by check, written out: what tests hold the code against."""

DIAGNOSES = {
    "I1": "width-mismatch rows-unaccounted",
    "I2": "tree-size-from-tokens over-budget tokens-differ tree-size",
    "I3": "kv-without-draft kv-counts-draft-twice seq-lens kv-indices kv-extent",
    "I4": "width-mismatch prefix-only-width mask-shorter-than-indptr mask-extent",
    "I5": "bit-order request-not-byte-aligned row-stride byte-extent packing",
    "I6": "offset-overflow buffer-without-draft-columns rope-table capacity",
    "I7": "cycle-or-orphan duplicate-sibling too-deep weights-not-sorted tree-form",
    "I8": "causal-mask request-broadcast previous-tree-not-cleared window-by-index padding-leak "
    "sibling-leak prefix-hidden mask-cell",
    "I9": "empty-row non-finite-logits live-rows",
    "I10": "flattened-positions constant-offset position",
    "I11": "stale-padding padding",
    "I12": "lost-sibling lost-child links",
    "I13": "path-not-maximal shifted-logits wrong-child acceptance",
    "I14": "accept-index-range bonus-stride bonus",
    "I15": "cropped-not-gathered gathered-twice layer-not-compacted length kv-commit",
    "I16": "slot-in-prefix slot-collision slot-range write-slots",
    "I17": "commit-by-length recurrent-commit",
    "I18": "drafter-anchor hidden-rows drafter-context",
    "I19": "rank-divergence",
    "I20": "past-stop placeholder-token token-range emitted output",
    "I21": "",
    "I22": "near-tie unexplained-mismatch",
    "I23": "",
}
