"""Playbooks by the clock: when they are due, who keeps the list of them, and what starts them.

A time comes once. Whatever becomes of it is decided on the schedule's record by compare-and-set, by one of all who
try; then it is carried out under an idempotency key, as often as it takes. So a schedule may be looked after by two
processes at once, or by one that is killed in the middle, and still every time has one execution.
"""
