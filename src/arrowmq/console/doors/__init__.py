"""Who may come in, and how: hosts, log-in, forged requests, sizes, times, and the log of every change.

In: raw requests. Out: requests with a `Visitor`, or a refusal with a sentence. Nothing behind it checks again.
"""
