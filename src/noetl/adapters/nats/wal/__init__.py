"""The log on JetStream: one append is one message, and what JetStream has acknowledged is committed.

`messages` says how an append is written, `stream` puts it into JetStream and follows what others put there, `index`
judges each message by those before it, `past` asks the table for what the stream no longer has, and `log` is one
process's view of all that.
"""
