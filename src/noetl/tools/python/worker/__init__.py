"""The process that runs user code: one request at a time, in its main thread.

It starts with the interpreter that a task asks for, where neither noetl nor its libraries may be installed. So
nothing enters this room but the standard library and the room itself, and what takes long to import is imported by
the request that needs it: a process should be ready in little more than the time Python takes to start.

    boot      the program
    serve     requests and replies
    channel   frames over a file descriptor
    state     what a call may change in the process, and how it is put back
    contract  inputs in, value out
    body      source text -> a function
    helpers   names that code finds bound
    values    Python values -> JSON
    frames    data frames -> Arrow tables
    tables    Arrow tables in and out, as open files
    faults    exceptions -> errors
"""
