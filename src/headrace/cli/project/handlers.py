"""What the nodes of workflow.yaml do: one function for each handler that they name."""

from pydantic import BaseModel, Field

from headrace import Context, handler


class Greet(BaseModel, extra="forbid"):
    """The config of a node, checked before the handler is called."""

    names: list[str] = Field(description="Whom to greet.")
    greeting: str = Field("Hello", description="What to say before each name.")


@handler("greet")
async def greet(config: Greet, ctx: Context) -> dict[str, list[str]]:
    """What it returns is the output of the node. `raise Retry("why")` from headrace asks for another attempt."""
    ctx.log.info("greeting", count=len(config.names), attempt=ctx.attempt)
    return {"lines": [f"{config.greeting} {name}" for name in config.names]}
