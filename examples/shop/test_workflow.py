"""Tests of the handlers and of the workflow. `headrace` is a fixture that Headrace brings: the real engine."""

from pathlib import Path
from typing import Any

import pytest

from handlers import Items, price_items
from headrace import Fatal, handler
from headrace.testing import LocalEngine

WORKFLOW = Path(__file__).with_name("workflow.yaml")


def test_a_handler_is_a_function() -> None:
    assert price_items(Items(items={"tea": 2, "cup": 1})) == {"cents": 2100}
    with pytest.raises(Fatal, match="we do not sell coffee"):
        price_items(Items(items={"coffee": 1}))


def test_an_order_is_paid(headrace: LocalEngine) -> None:
    result = headrace.run(WORKFLOW, {"items": {"kettle": 1}, "country": "FR"}, handlers="handlers")
    assert result.status == "COMPLETED"
    assert result.output == {"receipt": "47.90 EUR, paid"}
    assert result.nodes["payment"].attempt == 2


def test_what_we_do_not_sell_is_not_charged(headrace: LocalEngine) -> None:
    result = headrace.run(WORKFLOW, {"items": {"coffee": 1}}, handlers="handlers")
    assert result.status == "FAILED"
    assert result.error is not None
    assert result.error["message"] == "we do not sell coffee"
    assert result.nodes["payment"].status == "SKIPPED"


def test_a_declined_card(headrace: LocalEngine) -> None:
    """A function in the test takes the place of the handler of its name."""
    charged = []

    @handler("charge_card")
    def decline(config: dict[str, Any]) -> None:
        charged.append(config["cents"])
        raise Fatal("declined")

    result = headrace.run(WORKFLOW, handlers=["handlers", decline])
    assert result.status == "FAILED"
    assert charged == [2590]  # once: Fatal is not tried again
