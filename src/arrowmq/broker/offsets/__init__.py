"""How far groups are: offsets committed, queried, reset, and the progress that administrators ask for.

In: commits with pulls or by request, resets to a time. Out: offsets by group, topic and queue, kept in
`config/consumerOffset.json`.
"""
