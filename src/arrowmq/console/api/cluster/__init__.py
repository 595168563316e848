"""The cluster itself: brokers and their pairs, settings, metrics, users and what they may.

In: the name or address of a broker. Out: what it tells of itself, and the outcome of a change.
"""
