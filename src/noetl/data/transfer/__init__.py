"""Transfers: rows from a source into a target, in parts that are resumed one by one and shown all at once."""
