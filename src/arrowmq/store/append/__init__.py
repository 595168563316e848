"""Where every message is written: the ends of the log, of a queue and of the index, natively and as reference.

In: the fields of a message. Out: its record, queue entry and index entries in the mapped files, or what is missing.
"""
