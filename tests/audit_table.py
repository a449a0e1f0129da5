"""Prints what the audits found as one table, at the end of a run with some of them."""

import json
from typing import Any

HEADER = (
    "mechanism", "relation", "claimed epsilon, delta", "audited >=", "predicted", "checks",
    "mutants caught / tried",
)  # fmt: skip


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "audit" and report.when == "call":
                    add(rows, json.loads(value), report.passed)
    if not rows:
        return
    lines = [HEADER]
    for (mechanism, relation, claimed), row in sorted(rows.items()):
        numbers = (row["bound"], row["predicted"])
        bound, predicted = ("-" if each is None else f"{each:.2f}" for each in numbers)
        checks, caught = f"{row['passed']} of {row['checks']}", f"{row['caught']} / {row['tried']}"
        lines.append((mechanism, relation, claimed, bound, predicted, checks, caught))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    terminalreporter.section("privacy audits")
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        terminalreporter.write_line("  ".join(padded).rstrip())


def add(rows: dict[Any, dict[str, Any]], found: dict[str, Any], passed: bool) -> None:
    key = (found["mechanism"], found["relation"], found["claimed"])
    nothing = {"bound": None, "predicted": None, "checks": 0, "passed": 0, "caught": 0, "tried": 0}
    row = rows.setdefault(key, nothing)
    if found["mutant"] is None:
        row["checks"] += 1
        row["passed"] += passed
        if found["bound"] is not None:
            row["bound"], row["predicted"] = found["bound"], found["predicted"]
    else:
        row["tried"] += 1
        row["caught"] += passed
