"""Apache's keys for users and rights, read and checked; and which settings are secret.

    authenticationEnabled, authorizationEnabled         who asks, and what they may; the second needs the first
    initAuthenticationUser                              {"username":…,"password":…}: a super user, made where it is not
    innerClientAuthenticationCredentials                {"accessKey":…,"secretKey":…}: what this server's own requests
                                                        are signed with; a super user, made where it is not
    authenticationWhitelist, authorizationWhitelist     request codes, with commas, that are not checked; of gRPC calls
                                                        the names of the requests (apache.rocketmq.v2.QueryRouteRequest)
    migrateAuthFromV1Enabled                            take over the accounts of ACL 1.0's plain_acl.yml
    authenticationProvider and others                   Apache's own class names are accepted and mean what is here

Of our own:

    trustedProxies     networks whose PROXY header tells the client's address to rules about sources; none by default.
                       `*` believes anybody, as Apache does: a rule about sources then keeps nobody out, since who is
                       kept out writes a header
    haTrustedSources   networks whose slaves the HA port feeds; `*` (the default, and what Apache does) anybody's
    aclFile            where plain_acl.yml lies
    namesrvAuthenticationEnabled, namesrvAuthorizationEnabled     a NameServer checks, too; its users are its own
    controllerAuthenticationEnabled, controllerAuthorizationEnabled     so does a controller
    metricsAuthenticationEnabled                                  the metrics page asks for a name and a password
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from arrowmq.auth.errors import AccountError
from arrowmq.auth.sources import Source, parse_sources
from arrowmq.auth.users import User, UserType, new_user
from arrowmq.config import ConfigError
from arrowmq.wire import fastjson
from arrowmq.wire.errors import WireError

# Their values are given to nobody: not by GET_BROKER_CONFIG, not in a log.
SECRET_KEYS = frozenset({"initAuthenticationUser", "innerClientAuthenticationCredentials"})
_SECRET = re.compile(r"(password|secret|credential)", re.IGNORECASE)
HIDDEN = "******"

_PACKAGE = "org.apache.rocketmq.auth"
PROVIDERS: dict[str, tuple[str, ...]] = {
    "authenticationProvider": (f"{_PACKAGE}.authentication.provider.DefaultAuthenticationProvider",),
    "authenticationMetadataProvider": (
        f"{_PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider",
        "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
    ),
    "authenticationStrategy": (
        f"{_PACKAGE}.authentication.strategy.StatelessAuthenticationStrategy",
        f"{_PACKAGE}.authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (f"{_PACKAGE}.authorization.provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (
        f"{_PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider",
        "org.apache.rocketmq.proxy.auth.ProxyAuthorizationMetadataProvider",
    ),
    "authorizationStrategy": (
        f"{_PACKAGE}.authorization.strategy.StatelessAuthorizationStrategy",
        f"{_PACKAGE}.authorization.strategy.StatefulAuthorizationStrategy",
    ),
}

NAMESRV_KEYS = ("namesrvAuthenticationEnabled", "namesrvAuthorizationEnabled")
CONTROLLER_KEYS = ("controllerAuthenticationEnabled", "controllerAuthorizationEnabled")

KEYS = frozenset(
    {
        "authenticationEnabled",
        "authorizationEnabled",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "authenticationWhitelist",
        "authorizationWhitelist",
        "migrateAuthFromV1Enabled",
        "aclFile",
        "trustedProxies",
        "haTrustedSources",
        *PROVIDERS,
    }
)
"""What `read_settings` reads. A server is started with them; none changes at run time."""


@dataclass(frozen=True, slots=True)
class InnerCredentials:
    """What a server signs its own requests with."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    is_authenticating: bool = False
    is_authorizing: bool = False
    init_user: User | None = None
    inner_credentials: InnerCredentials | None = None
    unauthenticated_codes: frozenset[int] = frozenset()
    unauthorized_codes: frozenset[int] = frozenset()
    unauthenticated_calls: frozenset[str] = frozenset()  # the same for gRPC, by the names of the requests
    unauthorized_calls: frozenset[str] = frozenset()
    migrates_from_v1: bool = False
    acl_file: str = ""
    trusted_proxies: tuple[Source, ...] | None = ()  # None: anybody

    @property
    def is_on(self) -> bool:
        return self.is_authenticating


def read_settings(properties: Mapping[str, str]) -> AuthSettings:
    """The settings in Apache's keys. Raises `ConfigError`, whose text shows no secret."""
    is_authenticating, is_authorizing = (_flag(properties, f"{name}Enabled") for name in _SWITCHES)
    if is_authorizing and not is_authenticating:
        raise ConfigError(
            "authorizationEnabled=true needs authenticationEnabled=true: without signatures anybody may claim any name"
        )
    for key, known in PROVIDERS.items():
        given = properties.get(key, "").strip()
        if given and given not in known:
            raise ConfigError(f"{key}={given}: Java classes cannot be loaded here; leave it out, or name Apache's own")
    return AuthSettings(
        is_authenticating,
        is_authorizing,
        _init_user(properties.get("initAuthenticationUser", "")),
        read_inner_credentials(properties.get("innerClientAuthenticationCredentials", "")),
        _codes(properties, "authenticationWhitelist"),
        _codes(properties, "authorizationWhitelist"),
        _calls(properties, "authenticationWhitelist"),
        _calls(properties, "authorizationWhitelist"),
        _flag(properties, "migrateAuthFromV1Enabled"),
        properties.get("aclFile", "").strip(),
        read_networks("trustedProxies", properties.get("trustedProxies", "")),
    )


def read_namesrv_settings(properties: Mapping[str, str]) -> AuthSettings | None:
    """Of a NameServer, which checks nothing unless `namesrvAuthenticationEnabled` says so; then it checks rights as
    well, unless `namesrvAuthorizationEnabled` is false. Raises `ConfigError`."""
    return _read_own_settings(properties, NAMESRV_KEYS)


def read_controller_settings(properties: Mapping[str, str]) -> AuthSettings:
    """The same of a controller. One that checks nothing signs all the same what it tells brokers, who may check."""
    checks = _read_own_settings(properties, CONTROLLER_KEYS)
    if checks is not None:
        return checks
    inner = read_inner_credentials(properties.get("innerClientAuthenticationCredentials", ""))
    return AuthSettings(inner_credentials=inner)


def _read_own_settings(properties: Mapping[str, str], keys: tuple[str, str]) -> AuthSettings | None:
    """None where the first key does not switch checks on."""
    if not _flag(properties, keys[0]):
        return None
    rights = properties.get(keys[1], "true")
    return read_settings({**properties, "authenticationEnabled": "true", "authorizationEnabled": rights})


_SWITCHES = ("authentication", "authorization")


class _InitUser(msgspec.Struct):
    username: str = ""
    password: str = ""


class _Credentials(msgspec.Struct, rename="camel"):
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""


def _init_user(text: str) -> User | None:
    if not text.strip():
        return None
    try:
        given = fastjson.loads(text, type=_InitUser)
        return new_user(given.username, given.password, UserType.SUPER, None)
    except (WireError, AccountError) as fault:
        why = fault if isinstance(fault, AccountError) else "it is no JSON"
        raise ConfigError(f'initAuthenticationUser: {why}; write {{"username":"…","password":"…"}}') from None


def read_inner_credentials(text: str) -> InnerCredentials | None:
    """Raises `ConfigError`."""
    if not text.strip():
        return None
    try:
        given = fastjson.loads(text, type=_Credentials)
        new_user(given.access_key, given.secret_key, UserType.SUPER, None)
    except (WireError, AccountError):
        raise ConfigError(
            'innerClientAuthenticationCredentials cannot be used; write {"accessKey":"…","secretKey":"…"}'
        ) from None
    return InnerCredentials(given.access_key, given.secret_key, given.security_token)


def _flag(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "").strip().lower() == "true"


def _codes(properties: Mapping[str, str], key: str) -> frozenset[int]:
    found = set()
    for word in filter(None, map(str.strip, properties.get(key, "").split(","))):
        if word.isdigit():
            found.add(int(word))
        elif not re.fullmatch(r"[A-Za-z][\w.]*", word):  # the full name of a gRPC message
            raise ConfigError(f"{key}: {word!r} is neither a request code nor the name of a gRPC request")
    return frozenset(found)


def _calls(properties: Mapping[str, str], key: str) -> frozenset[str]:
    words = map(str.strip, properties.get(key, "").split(","))
    return frozenset(word for word in words if word and not word.isdigit())


def read_networks(key: str, text: str) -> tuple[Source, ...] | None:
    """Addresses and networks with commas; None for `*`, which is anybody's. Raises `ConfigError`."""
    if text.strip() == "*":
        return None
    try:
        return parse_sources(filter(None, map(str.strip, text.split(","))))
    except AccountError:
        raise ConfigError(f"{key}={text}: write addresses and networks with commas, or *") from None


def is_secret(key: str) -> bool:
    return key in SECRET_KEYS or _SECRET.search(key) is not None


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """The same settings, fit to be shown."""
    return {key: HIDDEN if value and is_secret(key) else value for key, value in properties.items()}
