"""A cluster that knows its users: who they are, and what they may."""

from __future__ import annotations

import json

from scene import bury

from arrowmq import Admin

ROOT = ("root", "the-secret-of-root")
ANN = ("ann", "the-secret-of-ann")
GUARDED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "the-secret-of-brokers"}),
}


async def furnish_rights(namesrv: str, address: str) -> None:
    """Ann may read and send orders, and nothing of payments."""
    async with Admin(namesrv, credentials=ROOT) as admin:
        await admin.create_topic("orders", queues=1)
        await admin.create_topic("payments", queues=1)
        await admin.create_group("billing")
        await admin.create_user(address, *ANN, "Normal")
        await admin.give_rights(address, "ann", ["Topic:orders"], ["Pub", "Sub", "Get"])
        await bury(admin, "billing", "payments", [b"secret payment"])
