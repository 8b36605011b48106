"""The canonical workload: every clinical record of many patients, one request each, from an API into Postgres.

    totals       what the API holds, as a function of ids: so what a complete run must find is known in advance
    answers      what the API answers to a request
    server       the API, with a limiter and counters
    tables       the queue and the records in Postgres, and the statements on them that every contestant runs
    drain        claim, fetch, save: the work of one process of a reference
    facilities   the order of the work, which both references keep
    reference_a  the hand-written asyncio script
    reference_b  the hand-written PySpark job
    pft.yaml     the playbook
    check        whether not one record is missing or wrong
    chaos        kills that a run has to survive
    services     the API and a Postgres for the length of a run
    run, report  all of it, turn by turn, and what is left behind

Nothing of the product is needed to know whether a run is right.
"""
