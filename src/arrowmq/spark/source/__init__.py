"""Reading topics: options, offset ranges, pulls in executors, records as Arrow batches, the stream's progress.

In: options and filters of a query. Out: partitions of offset ranges, and their messages as Arrow record batches.
"""
