"""ArrowMQ beside Kafka, NATS JetStream and Redis streams: the same work, each with its own best client."""
