"""Words that Apache's broker adds to its answers, kept because people search for them and tools compare them."""

from __future__ import annotations

FAQ_URL = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"

# Apache's broker leaves this on some successful answers: it sets the code and forgets the text it began with.
NOT_SET = "not set any response code"


def with_faq(remark: str) -> str:
    """Some refusals end with a pointer to Apache's FAQ."""
    return f"{remark}\nSee {FAQ_URL} for further details."
