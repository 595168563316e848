"""Apache's brokers end some refusals with a pointer to their FAQ; clients' users search for that line."""

from __future__ import annotations

FAQ_URL = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"


def with_faq(remark: str) -> str:
    return f"{remark}\nSee {FAQ_URL} for further details."
