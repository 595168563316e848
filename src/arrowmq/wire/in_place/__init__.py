"""Frames read and written where they lie: what native code serves requests with, without a Python object each.

In: the bytes of a request of a known code, and a table of its header's field names. Out: a `Request` whose fields are
named at compile time (`_fields.pxd`, generated from `wire.headers`) and point into those bytes; and answers, written
around template parts that the general encoder made. What is not of the plain form that clients write is left to
`wire.frames`, which judges it: nothing here refuses anything. C for other native modules; `wire.frames` is what says
how a frame reads.
"""
