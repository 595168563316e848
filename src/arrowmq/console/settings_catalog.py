"""The settings of a broker with their defaults, what each is for, and when a change counts; from `settings.tsv`.

`tools/configuration_table.py` writes the file from Apache's settings and from our own; the meanings are in `words/`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.resources import files

from arrowmq.console.pages.words import words_of


@dataclass(frozen=True, slots=True)
class About:
    default: str
    #: On ArrowMQ's brokers, when a change counts: `now`, from the next `start` on, `never`; or it is `fixed`
    counts: str
    meaning: str | None


@functools.cache
def catalog(language: str = "en") -> dict[str, About]:
    words = words_of(language)
    found = {}
    for line in files("arrowmq.console").joinpath("settings.tsv").read_text("utf-8").splitlines():
        key, default, counts = line.split("\t")
        found[key] = About(default, counts, words.get(f"setting.{key}"))
    return found
