"""Ports: what the shell needs from outside, in the words of whoever calls it.

One small Protocol per file. An adapter implements a port for one technology; every adapter of a port
passes the same contract suite in `tests/contracts`. A port knows nothing of any technology.
"""
