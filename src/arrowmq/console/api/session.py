"""Who I am, and logging in and out."""

from __future__ import annotations

from typing import Annotated

import msgspec

from arrowmq.client.errors import ArrowMQError, Refused
from arrowmq.console.api.declare import Call, Struct, endpoint
from arrowmq.console.doors.sessions import Visitor
from arrowmq.console.errors import Problem, is_denied
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import HeartbeatData
from arrowmq.wire.codes import RequestCode
from arrowmq.wire.errors import WireError


class SessionAnswer(Struct, kw_only=True):
    who: str
    csrf: str
    is_read_only: bool
    needs_login: bool


@endpoint("GET", "/api/session", tag="session")
async def session(call: Call) -> SessionAnswer:
    """Who asks, and the token that changes need in their X-CSRF-Token header."""
    options = call.console.options
    return SessionAnswer(
        who=call.visitor.who,
        csrf=call.console.sessions.csrf_of(call.visitor),
        is_read_only=options.is_read_only,
        needs_login=options.needs_login,
    )


class Login(Struct, kw_only=True, forbid_unknown_fields=True):
    """The console's token, or a user of the brokers with the password."""

    token: Annotated[str, msgspec.Meta(max_length=500)] = ""
    username: Annotated[str, msgspec.Meta(max_length=200)] = ""
    password: Annotated[str, msgspec.Meta(max_length=500)] = ""


async def log_in(call: Call, given: Login) -> Visitor:
    sessions = call.console.sessions
    if not sessions.may_try(call.address):
        raise Problem(429, "too many failures from this address: wait a minute")
    if given.token and sessions.is_token(given.token):
        return sessions.open("token")
    if given.username and given.password:
        credentials = (given.username, given.password)
        if await _is_user(call, credentials):
            return sessions.open(given.username, credentials)
    sessions.failed(call.address)
    if given.token:
        raise Problem(401, "that opens nothing: the token is printed where the console was started")
    raise Problem(401, "the brokers let nobody in with this name and password")


async def _is_user(call: Call, credentials: tuple[str, str]) -> bool:
    """A user of the brokers is whom a broker lets in that does not let in everybody: asked with a heartbeat of nobody,
    which needs a signature and no right."""
    await call.console.gatherer.fresh()
    for row in call.console.gatherer.now.brokers:
        try:
            if row.broker_id == 0 and not await _lets_in(call, row.address, None):
                return await _lets_in(call, row.address, credentials)
        except (ArrowMQError, WireError):
            continue  # this broker cannot tell; another may
    return False


async def _lets_in(call: Call, address: str, credentials: tuple[str, str] | None) -> bool:
    admin = await call.console.open_admin(credentials)
    try:
        nobody = fastjson.dumps(HeartbeatData(client_id=admin.session.client_id))
        await admin.call(address, RequestCode.HEART_BEAT, None, nobody)
    except Refused as refused:
        if is_denied(refused):
            return False
        raise
    finally:
        await admin.close()
    return True
