"""The values of labels, as Apache's metrics spell them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from arrowmq.broker import names
from arrowmq.wire.codes import LanguageCode

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker

LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# Each release has a SNAPSHOT before it, so a release is two on from the one before; from 4.0.0 on without gaps.
VERSION_4_0_0, VERSION_5_0_0, PER_MINOR = 213, 413, 20


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


def version_name(ordinal: int) -> str:
    """The release a client says it is, as RocketMQ labels it; of releases before 4.0.0 the number alone."""
    for major, first in ((5, VERSION_5_0_0), (4, VERSION_4_0_0)):
        if ordinal >= first - 1:
            minor, rest = divmod(ordinal - first + 1, PER_MINOR)
            return f"v{major}_{minor}_{rest // 2}" + ("" if rest % 2 else "_snapshot")
    return f"v{ordinal}"
