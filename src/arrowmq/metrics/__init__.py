"""What a broker shows Prometheus.

In: a running broker. Out: a page of metric families, with the names and labels of RocketMQ 5 where it has them, so that
boards made for it work; and some of ArrowMQ's own (`arrowmq_…`) for what RocketMQ does not show: lag by queue and in
seconds, why sends were refused, how long the event loop stood still.
Everything is gathered when somebody asks: a broker that nobody scrapes pays nothing.
"""
