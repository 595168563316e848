"""The way of a message out: pulls, those that wait for a message, and look-ups by key or place.

In: pull and query requests. Out: records' bytes by queue and offset, or the reason why there are none.
"""
