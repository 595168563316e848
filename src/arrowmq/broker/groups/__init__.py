"""Consumer groups: their settings, subscriptions and filters, who gets which queue, who holds a queue's lock.

In: heartbeats' subscriptions, requests of consumers and administrators. Out: what a reader may see, assignments, locks.
"""
