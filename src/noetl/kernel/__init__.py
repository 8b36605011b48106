"""The kernel: what an event is, what it is called, and what it means.

Everything here is pure. No I/O, no clock, no randomness: time and ids come in as arguments. That is
what lets a replay on another machine, years later, give the same bytes. The rest of the system may
import the kernel; the kernel imports nothing of the rest but `errors`.
"""
