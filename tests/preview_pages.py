"""What each page that `--validate_only` prints has."""


def check_page(out: str, *facts: str) -> None:
    lines = out.splitlines()
    assert 10 <= len(lines) <= 25 and max(map(len, lines)) <= 80
    told = " ".join(out.split())
    for fact in (
        *facts,
        "epsilon",
        "protects",
        "memory about",
        "Nothing was read, paid or written",
    ):
        assert fact in told, told
    assert "{" not in out
