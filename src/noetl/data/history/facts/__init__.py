"""Facts: what happened, one row for each thing worth counting, made from the events of the lake.

A fact is made in two steps. *Parts* are rows that follow from a range of events alone; they are written once for each
range, and never changed. The *view* over all parts joins what ranges have cut: durations, running totals, costs. So it
does not matter in which ranges the parts were made, and those that are not made yet can be made while somebody asks.
"""
