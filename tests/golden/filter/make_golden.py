"""Makes `sql92.json.gz` anew: generated expressions, and what Apache's own filter classes say to each.

    python make_golden.py FOLDER

FOLDER holds `apache.py` with a function `java(source, *arguments)` that compiles and runs a Java file against the jars
of Apache RocketMQ. The expressions come from a seed, so a run gives the same file.
"""

from __future__ import annotations

import gzip
import importlib
import json
import random
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SEED = 20_240_519

VALUES = [
    None, "", "0", "1", "5", "7", "-3", "+5", "007", "7.5", "5.0", "-0.0", "1e2", ".5", "5d", "0x1p3", "NaN",
    "Infinity", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    " 5", "5 ", "1_0", "٥", "true", "TRUE", "false", "abc", "ab", "x'y", "ä中", "5L",
]  # fmt: skip
WRITTEN = json.loads((HERE / "expressions.json").read_text("utf-8"))


def property_sets(chance: random.Random) -> list[dict[str, str]]:
    """Each value once as `a`, with values by chance as `b` and `c`."""
    sets = []
    for value in VALUES:
        pairs = (("a", value), ("b", chance.choice(VALUES)), ("c", chance.choice(VALUES)))
        sets.append({name: text for name, text in pairs if text is not None})
    return sets


def literal(chance: random.Random) -> str:
    return chance.choice(
        [
            "0",
            "1",
            "5",
            "7",
            "2147483648",
            "5L",
            "7.5",
            "5.0",
            "1E2",
            ".5",
            "'5'",
            "'abc'",
            "'b'",
            "''",
            "TRUE",
            "FALSE",
            "NULL",
        ]
    )


def operand(chance: random.Random, depth: int) -> str:
    roll = chance.random()
    if roll < 0.45:
        return chance.choice("abc")
    if roll < 0.8:
        return literal(chance)
    if roll < 0.9 or depth <= 0:
        return chance.choice(["-", "+", "NOT ", "- "]) + chance.choice(["a", "5", "7.5", "TRUE"])
    return f"({condition(chance, depth - 1)})"


def condition(chance: random.Random, depth: int) -> str:
    negated = chance.choice(["", "NOT "])
    name = chance.choice("abc")
    members = ", ".join(chance.choices(["'5'", "'7'", "'abc'", "'true'"], k=chance.randint(1, 6)))
    order = chance.choice(["<", "<=", ">", ">="])
    search = chance.choice(["CONTAINS", "STARTSWITH", "ENDSWITH"]) + " " + chance.choice(["'a'", "'5'", "''", "'b'"])
    forms = (
        lambda: f"{operand(chance, depth)} {chance.choice(['=', '<>'])} {operand(chance, depth)}",
        lambda: f"{operand(chance, depth)} {order} {operand(chance, 0)}",
        lambda: f"{name} {order} {chance.choice(['5', '7.5', 'b', '-3', '2147483648'])}",
        lambda: f"{operand(chance, depth)} IS {negated}NULL",
        lambda: f"{name} {negated}IN ({members})",
        lambda: f"{operand(chance, 0)} {negated}BETWEEN {operand(chance, 0)} AND {operand(chance, 0)}",
        lambda: f"{name} {negated}BETWEEN {chance.choice(['1', '-3', '.5'])} AND {chance.choice(['5', '7.5', 'b'])}",
        lambda: f"{operand(chance, 0)} {negated}{search}",
        lambda: operand(chance, depth),
    )
    if depth > 0 and chance.random() < 0.45:
        glue = chance.choice(["AND", "OR"])
        left, right = condition(chance, depth - 1), condition(chance, depth - 1)
        return chance.choice([f"{left} {glue} {right}", f"({left}) {glue} {right}", f"{left} {glue} NOT ({right})"])
    return chance.choice(forms)()


def spoiled(chance: random.Random, text: str) -> str:
    """The expression with one character lost, doubled or exchanged."""
    if not text:
        return text
    at = chance.randrange(len(text))
    return text[:at] + chance.choice(["", text[at] * 2, " ", "'", "(", ")", "-", "#", "0", "."]) + text[at + 1 :]


def main(folder: str) -> None:
    sys.path.insert(0, folder)
    apache = importlib.import_module("apache")
    chance = random.Random(SEED)
    sets = property_sets(chance)
    expressions = dict.fromkeys(WRITTEN)
    while len(expressions) < 6000:
        expressions[condition(chance, chance.randint(0, 3))] = None
    while len(expressions) < 7500:
        expressions[spoiled(chance, condition(chance, chance.randint(0, 2)))] = None
    asked = {"properties": sets, "expressions": list(expressions)}
    with tempfile.TemporaryDirectory() as scratch:
        question, answer = Path(scratch, "question.json"), Path(scratch, "answer.json")
        question.write_text(json.dumps(asked), "utf-8")
        apache.java(HERE / "Evaluate.java", str(question), str(answer))
        answers = json.loads(answer.read_text("utf-8"))
    golden = {"properties": sets, "answers": dict(zip(expressions, answers, strict=True))}
    packed = gzip.compress(json.dumps(golden, ensure_ascii=False).encode(), 9, mtime=0)
    (HERE / "sql92.json.gz").write_bytes(packed)
    print(f"{len(answers)} expressions, {answers.count('refused')} refused, {len(packed)} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
