"""python: the code of a task, run in warm processes apart from ours.

    tool          a call -> a request -> an outcome
    request       what is sent to a process, and what comes back
    pool          which process runs which call
    process       one process: start, one exchange at a time, end
    tables        tables there and back, as open files
    environments  which interpreter, with which packages
    worker/       the other side, which runs the code

User code never runs in this process, and nothing it does (loop for ever, eat all memory, crash the interpreter) reaches
further than the call that did it.
"""
