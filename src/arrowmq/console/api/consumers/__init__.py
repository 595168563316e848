"""Who consumes: groups, where they stand in each queue, and the clients that are connected.

In: the snapshot of the gatherer, and what brokers and members answer. Out: lag, members, plans of new offsets.
"""
