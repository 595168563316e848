"""RocketMQ's MessagingService: what each call means, whatever the back behind it.

In: calls (`grpc.call.Call`) with protobuf requests. Out: protobuf answers, requests to a `backs.back.Back`.
`messaging.py` is the table of calls. What RocketMQ refuses is a `Fault`, which becomes the `status` of the answer; only
the Telemetry stream ends with a status of gRPC.
"""
