"""The HTTP API: what the services of `runtime` can do, for programs that speak HTTP.

    app         the application: routes, limits, errors
    context     who is asking, and what they may do
    problems    errors as problem details (RFC 9457)
    wire        bodies and answers as structs, and how OpenAPI describes them
    streams     server-sent events
    running     a listening server, from its start to its drained end

Nothing is decided here. A handler reads a request, asks a service, and writes the answer; FastAPI stays in
this room, and so does whatever it brings.
"""
