"""Handlers of the examples: `headrace run examples/fan-out.yaml --handlers examples.handlers`. None needs a network."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, Field

from headrace import Context, Retry, handler


class Words(BaseModel):
    """The config of a node. It is checked before the handler is called, and `headrace validate` knows it too."""

    text: str


@handler("count_words")
async def count_words(config: Words, ctx: Context) -> dict[str, object]:
    """As if a slow service did it."""
    await asyncio.sleep(0.2)
    ctx.log.debug("counted", length=len(config.text))
    return {"text": config.text, "words": len(config.text.split())}


class Chapters(BaseModel):
    text: str


@handler("split_chapters")
def split_chapters(config: Chapters) -> dict[str, object]:
    """A plain function: it runs in a thread."""
    return {"chapters": [part.strip() for part in config.text.split("---")]}


class Sum(BaseModel):
    numbers: list[int]


@handler("add_up", isolation="process")
def add_up(config: Sum) -> dict[str, int]:
    """CPU-bound work belongs into a process of its own."""
    return {"total": sum(config.numbers)}


class Flaky(BaseModel):
    fails: int = Field(ge=0, description="how many attempts fail before one succeeds")


@handler("flaky")
async def flaky(config: Flaky, ctx: Context) -> dict[str, int]:
    """As a service that is overloaded for a moment: says when to come back."""
    if ctx.attempt <= config.fails:
        raise Retry(f"attempt {ctx.attempt}: the service is busy", after=0.3)
    return {"attempts": ctx.attempt}


class Page(BaseModel):
    text: str = Field(description="what the page says")
    seconds: float = Field(ge=0, description="how long the server takes")
    busy_times: int = Field(0, ge=0, description="how many attempts it turns away first")


@handler("fetch_page")
async def fetch_page(config: Page, ctx: Context) -> dict[str, str]:
    """As if the page came over the network."""
    await asyncio.sleep(config.seconds)
    if ctx.attempt <= config.busy_times:
        raise Retry("the server is busy", after=0.7)
    return {"text": config.text}
