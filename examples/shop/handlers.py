"""What the nodes of workflow.yaml do. A handler is a function of its config; Headrace does the rest."""

from pydantic import BaseModel, Field, PositiveInt

from headrace import Context, Fatal, Retry, handler

PRICES_CENTS = {"tea": 450, "cup": 1200, "kettle": 3900}
SHIPPING_CENTS = {"DE": 490, "FR": 890}


class Items(BaseModel, extra="forbid"):
    """The config of a node. It is checked before the handler is called; `headrace validate` and editors know it too."""

    items: dict[str, PositiveInt] = Field(description="How many of each article.")


@handler("price_items")
def price_items(config: Items) -> dict[str, int]:
    """A plain function: it runs in a thread. What it returns is the output of the node."""
    if missing := config.items.keys() - PRICES_CENTS.keys():
        raise Fatal(f"we do not sell {', '.join(sorted(missing))}")  # final: no further attempt, the node fails
    return {"cents": sum(PRICES_CENTS[name] * count for name, count in config.items.items())}


class Parcel(BaseModel, extra="forbid"):
    country: str


@handler("quote_shipping")
async def quote_shipping(config: Parcel) -> dict[str, int]:
    """An error of the usual kinds decides by itself: KeyError and ValueError are final, network errors are not."""
    return {"cents": SHIPPING_CENTS[config.country]}


class Charge(BaseModel, extra="forbid"):
    cents: PositiveInt


@handler("charge_card")
async def charge_card(config: Charge, ctx: Context) -> dict[str, str]:
    """As if it asked a bank, which is busy at first.

    `ctx.idempotency_key` is the same in all attempts. A bank that gets it charges once, however often it is asked.
    """
    ctx.log.info("charging", cents=config.cents, key=ctx.idempotency_key, attempt=ctx.attempt)
    if ctx.attempt == 1:
        raise Retry("the bank is busy", after=0.2)
    return {"receipt": f"{config.cents / 100:.2f} EUR, paid"}
