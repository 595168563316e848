"""The judges: programs that were not written here, started from Python.

In: a folder to live in, free ports, settings. Out: running servers (the Apache broker, and ours with the same handle),
compiled client programs, and what they say. Everything fetched (jars, Go modules, npm packages) stays in one cache
folder outside the project.
"""
