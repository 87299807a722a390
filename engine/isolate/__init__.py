"""The isolation lab: vary one thing at a time, compare with plain decoding, and say which thing the fault hangs on."""
