"""Consuming: iterating, push and lite pull consumers, and the membership of a group they stand on.

In: subscriptions, pulled bodies. Out: messages, each settled by its consumer, and the offsets that follow from it.
"""
