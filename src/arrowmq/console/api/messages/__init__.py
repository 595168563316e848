"""Messages, wherever they are: stored, dead, scheduled, half; what became of one, and sending.

In: an id, a key, a time, a filter. Out: messages with what a page shows of them, and the outcome of what was done.
"""
