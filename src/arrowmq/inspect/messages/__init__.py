"""Messages: found by id, shown as rows, and the life of one as events.

In: an `Admin` and an id, a key or a time. Out: messages as rows, and the events of one in their order.
"""
