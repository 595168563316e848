"""What a broker knows and tells of itself: counts, runtime information, administration of the whole broker.

In: counts from the services and fast paths. Out: statistics, GET_BROKER_RUNTIME_INFO, changes of settings.
"""
