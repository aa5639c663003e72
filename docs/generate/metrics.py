"""The metrics, from their list: name, type, label, meaning."""

from __future__ import annotations

from docs.generate.markdown import code, table

from headrace.engine.metrics import METRICS


def _table() -> str:
    rows = (
        (code(name), each.kind, code(each.label) if each.label else "", each.meaning) for name, each in METRICS.items()
    )
    return table(("name", "type", "label", "meaning"), rows)


BLOCKS = {"metrics": _table}
