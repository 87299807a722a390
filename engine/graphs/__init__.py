"""Whole verify steps on the device: draft, build, verify, walk and commit without the host, captured in CUDA graphs."""
