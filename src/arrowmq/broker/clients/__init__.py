"""Who is connected: producers and consumers by group, their heartbeats, and requests handed on to one of them.

In: heartbeats and unregistrations, connections that end. Out: members of groups, notices to clients of a change.
"""
