"""The console's languages: one file each in `words/`, by the same names. What one lacks is a failing test."""

from __future__ import annotations

import functools
from importlib.resources import files

import msgspec

LANGUAGES = ("en", "zh")
NAMES = {"en": "English", "zh": "中文"}


@functools.cache
def words_of(language: str) -> dict[str, str]:
    text = files("arrowmq.console").joinpath("words").joinpath(f"{language}.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, str])


def language_of(cookie: str, accepted: str) -> str:
    """What the visitor chose, else what the browser asks for, else English."""
    if cookie in LANGUAGES:
        return cookie
    for part in accepted.split(","):
        primary = part.partition(";")[0].strip().partition("-")[0].lower()
        if primary in LANGUAGES:
            return primary
    return "en"


class Words:
    """`t("topics.title")`; with values for what stands in braces."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._words = words_of(language)

    def __call__(self, name: str, /, **values: object) -> str:
        text = self._words[name]
        for key, value in values.items():
            text = text.replace("{" + key + "}", str(value))
        return text

    def told(self, sentence: str, values: dict[str, str], english: str) -> str:
        """An event of a message's life; English is what the inspection itself says."""
        return self(f"told.{sentence}", **values) if f"told.{sentence}" in self._words else english

    def maybe(self, name: str, default: str) -> str:
        return self._words.get(name, default)
