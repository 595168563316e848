"""Reading: by queue and offset with Apache's limits and outcomes, by time; and reads that must wait for the disk.

In: a queue, an offset, limits and a filter. Out: views of the records, and where to go on; or why there are none.
"""
