"""The commit log: files of equal size that follow one another, preparing the next, walking records by their bytes.

In: positions in the log. Out: views of mapped files there, the next file when one is full, records as they are walked.
"""
