"""Store directories as tables, without a broker: segments walked record by record, and the small tables beside them.

In: a folder that a broker writes or has written. Out: its messages, offsets and damages as Arrow batches.
"""
