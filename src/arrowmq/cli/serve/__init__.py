"""`arrowmq server`, `namesrv` and `broker`: run a node, or several processes of them, until told to stop.

In: settings files, `--set`, signals. Out: a running node, its log, and the line that says that it is ready.
"""
