"""Consuming by pop: messages lent for a time, acknowledged one by one.

In: `receive` calls of a program. Out: messages with `ack`, `nack` and `extend`.

  simple       the consumer: which broker is asked when
  popped       a message with its receipt
  ack_batches  acks that are given at the same moment leave in one request
"""
