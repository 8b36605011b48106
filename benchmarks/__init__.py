"""Benchmarks: ours against the raw library, measured alternately in one run, reported as a ratio.

`python -m benchmarks NAME --json` prints one document; `make bench` runs them all and prints a table.
A ratio is always ours / reference: with a unit of time smaller is better, with a rate larger.
"""
