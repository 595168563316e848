"""Work that takes longer than a request: sending dead letters again, with a record on disk.

In: which letters, how fast. Out: a result for each letter, progress as events. The record decides what was sent.
"""
