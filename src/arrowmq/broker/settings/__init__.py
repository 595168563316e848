"""What a broker is told: Apache's `broker.conf` keys, those that were changed at run time, those it refuses.

In: properties from a file, the command line or UPDATE_BROKER_CONFIG. Out: a typed `BrokerConfig`, or a sentence that
says why a value is refused.
"""
