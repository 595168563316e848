"""`arrowmq user` and `arrowmq acl`: who may use a cluster, and for what.

In: the words of a command line. Out: requests to every broker that is meant (each keeps its own users), and tables.
"""
