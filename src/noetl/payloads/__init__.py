"""Bytes: what is too large for an event, kept under the digest of its content.

This room knows how bytes are named, stored, verified, summarised and brought back, which forms they have (Arrow,
Feather, JSON), and where copies of them are kept near their readers. It speaks to durable storage through the
ObjectStore port only. What the bytes mean (a step's result, a frame's rows), which technology holds them, and who may
read them must never enter here.
"""
