"""The values of labels, as Apache's metrics spell them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from arrowmq.broker import names
from arrowmq.wire.codes import LanguageCode

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def is_system(broker: Broker, topic: str) -> bool:
    return names.is_system_topic(topic, broker.config)


def yes_no(value: bool) -> str:
    return "true" if value else "false"


def labels_of(text: str) -> dict[str, str]:
    """Labels from the setting metricsLabel, `name:value,name:value`; what is not that is left out."""
    pairs = (part.split(":") for part in text.split(",") if part.strip())
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2 and LABEL.fullmatch(pair[0].strip())}


def language_name(code: int) -> str:
    try:
        return LanguageCode(code).name.lower()
    except ValueError:
        return "other"
