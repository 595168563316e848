"""What keeps signed requests on a broker's fast path: the native form of the guard's check, and what it is told.

In: the guard of a broker (`arrowmq.auth.guard`) and its permit. Out: a native check of requests, or none.
"""
