"""Writing DataFrames to topics: at least once by plain sends, exactly once by half messages and a record of decisions.

In: rows of a batch or micro-batch. Out: messages, each batch's committed once however often Spark tries it.
"""
