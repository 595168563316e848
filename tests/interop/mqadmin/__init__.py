"""Apache's own mqadmin, run against Apache's servers and ours with the same data in them.

In: a target (Apache or ours). Out: what each subcommand of the plan printed, as named fields; and where the two differ,
which is a failure unless `differences` gives a reason. `python -m tests.interop.mqadmin` prints the comparison.
"""
