"""The fast path: frequent requests served natively from the socket's bytes to the store and back.

In: whole frames of a connection. Out: how many bytes were served, and the answers. Never refuses anything: what it does
not know goes to the general path, which decides. Differential tests show that both leave the same bytes.

  permit.py, closers.py    everything that can close it, and what a request must not have to be taken
  router.py                code → native handlers; a new one is one more entry there
  sends.py, pulls.py, transactions.py, pop/
                           each entry: what is ordinary for a broker, a topic, a reader, and what its handler is given
"""
