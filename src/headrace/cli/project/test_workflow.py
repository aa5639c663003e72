"""The workflow, run to its end on the real engine. `pytest` runs this."""

from pathlib import Path

from headrace.testing import run_workflow

WORKFLOW = Path(__file__).with_name("workflow.yaml")


def test_everybody_is_greeted() -> None:
    result = run_workflow(WORKFLOW, {"names": ["Ada", "Alan"]}, handlers="handlers")
    assert result.status == "COMPLETED"
    assert result.output == {"count": 2, "text": "Hello Ada, Hello Alan"}
