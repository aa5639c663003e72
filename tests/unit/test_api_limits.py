"""The sliding window of requests, and how keys and rates are written in the settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headrace.api.limits import wait_seconds
from headrace.settings import RateLimit, Settings

limits = st.builds(RateLimit, st.integers(1, 1000), st.sampled_from([1, 60, 3600]))


@given(limit=limits, share=st.floats(0, 0.999), now=st.integers(0, 2000), before=st.integers(0, 1000))
def test_after_the_wait_one_more_fits(limit: RateLimit, share: float, now: int, before: int) -> None:
    elapsed = share * limit.seconds
    wait = wait_seconds(limit, now, before, elapsed)
    assert 0 <= wait <= 2 * limit.seconds
    if wait:
        then = elapsed + wait + 1e-6 * limit.seconds
        if then >= limit.seconds:
            now, before, then = 0, now, then - limit.seconds
        if then >= limit.seconds:
            now, before, then = 0, 0, then - limit.seconds
        assert wait_seconds(limit, now, before, then) == 0


@given(limit=limits)
def test_a_quiet_client_gets_its_whole_share_and_no_more(limit: RateLimit) -> None:
    assert wait_seconds(limit, limit.requests - 1, 0, 0.0) == 0
    assert wait_seconds(limit, limit.requests, 0, 0.0) > 0
    assert wait_seconds(limit, 0, limit.requests, 0.0) > 0


def test_keys() -> None:
    settings = Settings(API_KEYS="0123456789abcdef, ada:fedcba9876543210 ,bo:read+run:0011223344556677,")
    assert [(key.name, sorted(key.scopes)) for key in settings.fixed_keys] == [
        ("key-1", ["admin", "read", "run"]),
        ("ada", ["admin", "read", "run"]),
        ("bo", ["read", "run"]),
    ]
    assert {"0123456789abcdef", "fedcba9876543210", "0011223344556677"} <= set(settings.confidential)
    assert "0123456789abcdef" not in repr(settings)


@pytest.mark.parametrize(
    "keys",
    ["short", "a:b:c:0123456789abcdef", "ada:boss:0123456789abcdef", "ada::0123456789abcdef", ":0123456789abcdef",
     "a:0123456789abcdef,a:0123456789abcdeg", "0123456789abcdef:read:ada"],
)  # fmt: skip
def test_keys_that_cannot_be_read_are_not_shown(keys: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Settings(API_KEYS=keys)
    assert "0123456789abcdef" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        (None, "dev", None),
        (None, "test", None),
        (None, "prod", (60, 60)),
        ("off", "prod", None),
        ("5/second", "dev", (5, 1)),
        (" 1000 / hour ", "prod", (1000, 3600)),
    ],
)
def test_rates(text: str | None, environment: str, expected: tuple[int, int] | None) -> None:
    settings = Settings(ENVIRONMENT=environment, **({} if text is None else {"API_RATE_LIMIT": text}))
    assert settings.rate_limit == expected


@pytest.mark.parametrize("text", ["", "60", "0/minute", "60/day", "-1/second", "x/minute", "60/minutes"])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(ValidationError):
        Settings(API_RATE_LIMIT=text)


def test_where_the_record_is() -> None:
    assert Settings(HEADRACE_HOME="/h").sql_url == "sqlite:////h/headrace.db"
    assert Settings(DATABASE_URL="postgresql://x/y", POSTGRES_HOST="z").sql_url == "postgresql://x/y"
    made = Settings(POSTGRES_HOST="db", POSTGRES_USER="u@", POSTGRES_PASSWORD="p/:", POSTGRES_DB="d")
    assert made.sql_url == "postgresql://u%40:p%2F%3A@db:5432/d"
    assert "p/:" in made.confidential
