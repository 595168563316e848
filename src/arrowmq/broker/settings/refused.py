"""Settings that ask for something this broker does not have, and that would be dangerous to pass over in silence.

A broker that was told to check passwords, or to wait for replicas, and does neither, breaks a promise that nobody sees
broken. So it does not start, and says what to change. Settings without such weight are ignored with a line in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from arrowmq.config import ConfigError


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which values of a key are refused, in words and as a check, and why."""

    values: str
    asks_for_it: Callable[[str], bool]
    reason: str


def _is_true(text: str) -> bool:
    return text.lower() == "true"


def _is_above_one(text: str) -> bool:
    return text.lstrip("+-").isdigit() and int(text) > 1


def _is_given(text: str) -> bool:
    return bool(text)


_NO_AUTH = "this broker checks neither users nor permissions: keep it in a network where everybody may use it"
_NO_REPLICAS = "this broker has no replicas to wait for"

REFUSED: Mapping[str, Refusal] = {
    "aclEnable": Refusal("true", _is_true, _NO_AUTH),
    "authenticationEnabled": Refusal("true", _is_true, _NO_AUTH),
    "authorizationEnabled": Refusal("true", _is_true, _NO_AUTH),
    "enableControllerMode": Refusal("true", _is_true, "there is no controller to obey: masters do not change here"),
    "enableDLegerCommitLog": Refusal("true", _is_true, "this broker has no DLedger replication"),
    "inSyncReplicas": Refusal("above 1", _is_above_one, _NO_REPLICAS),
    "minInSyncReplicas": Refusal("above 1", _is_above_one, _NO_REPLICAS),
    "messageStorePlugIn": Refusal("any", _is_given, "plug-ins are Java classes: this broker cannot load them"),
    "storeType": Refusal(
        "other than default",
        lambda text: text not in ("", "default"),
        "this broker keeps queues in files, not in RocksDB",
    ),
}


def refuse(properties: Mapping[str, str]) -> None:
    """Raises `ConfigError` if the settings ask for something that is not there."""
    for key, text in properties.items():
        refusal = REFUSED.get(key)
        if refusal is not None and refusal.asks_for_it(text.strip()):
            raise ConfigError(f"{key}={text.strip()}: {refusal.reason}")
