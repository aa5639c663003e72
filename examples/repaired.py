"""A workflow fails, what was broken is repaired, and the workflow goes on where it stopped.

    python examples/repaired.py

The next run of a failed execution keeps the output of every node that is complete, and runs all others.
"""

from pathlib import Path

from pydantic import BaseModel

from headrace import Context, Fatal, handler
from headrace.testing import LocalEngine, WorkflowResult

WORKFLOW = Path(__file__).with_suffix(".yaml")

printer = {"sheets": 0}


class Text(BaseModel):
    text: str


@handler("translate")
async def translate(config: Text, ctx: Context) -> dict[str, str]:
    """As if a model did it, slowly and for money."""
    print(f"  {ctx.node_id}: translating, this costs money")
    return {"text": {"Alles fließt": "Everything flows"}.get(config.text, config.text)}


@handler("print_text")
def print_text(config: Text, ctx: Context) -> dict[str, int]:
    print(f"  {ctx.node_id}: printing")
    if not printer["sheets"]:
        raise Fatal("the printer is out of paper")  # trying again would not help: somebody has to come
    printer["sheets"] -= 1
    return {"sheets": 1}


def tell(result: WorkflowResult) -> None:
    why = f": {result.error['message']}" if result.error else ""
    print(f"  {result.status}{why}")


def main() -> None:
    with LocalEngine() as engine:
        print("Run 1")
        first = engine.run(WORKFLOW, handlers=[translate, print_text])
        tell(first)

        print("The printer gets paper")
        printer["sheets"] = 500

        print("Run 2 of the same execution")
        second = engine.retry(first, handlers=[translate, print_text])
        tell(second)

    kept = [node.id for node in first.nodes.values() if node.status == "COMPLETED"]
    again = [name for name in second.nodes if name not in kept]
    print(f"Kept: {', '.join(kept)}. Ran in run 2: {', '.join(again)}.")


if __name__ == "__main__":
    main()
