"""`python -m arrowmq` is the command `arrowmq`."""

from arrowmq.cli import main

main()
