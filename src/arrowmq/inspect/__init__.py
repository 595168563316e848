"""What can be told about a cluster by looking at it: what is wrong, where a message is and what became of it.

In: an `Admin`, or the facts that were gathered through one. Out: findings, lives of messages, rows of plain values.
Knows no terminal and no browser: the `arrowmq` command and the console show the same.
"""
