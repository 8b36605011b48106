"""Named bytes outside the process: a directory tree, and the buckets of cloud stores.

Each module here is one kind of place. It promises what the ObjectStore port promises, however its writers end:
a reader finds a whole object or none. What the bytes mean, and how they are named, is decided elsewhere.
"""
