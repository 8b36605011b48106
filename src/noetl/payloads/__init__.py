"""Bytes: what is too large for an event, kept under the digest of its content.

This room knows how bytes are named, stored, verified, summarised and brought back. It speaks to storage
through the ObjectStore port only. What the bytes mean (rows, tables, a step's result), which technology
holds them, and who may read them must never enter here.
"""
