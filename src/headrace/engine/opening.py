"""What an execution is opened with: nothing but its input when fresh, or also what an earlier run has completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from headrace.hot.keys import INPUT_FIELD, TRACE_FIELD
from headrace.hot.store import SLICE
from headrace.model.definition import Definition, Node
from headrace.model.graph import Graph
from headrace.model.messages import Dispatch, Opening, OpenSlice, Record
from headrace.model.state import NodeState

SLICE_BYTES = 4 << 20
ENDED = (NodeState.COMPLETED, NodeState.FAILED, NodeState.SKIPPED)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a node already: completed, with its output; or failed, skipped, or tried before."""

    record: Record
    output: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is to be opened. `created_ms` 0: now. `elapsed_ms`: how long it has been running, if it was lost.

    `roots`: all nodes without parents and their payloads, which go to the workers at once, or none: then the
    orchestrators begin."""

    execution_id: str
    definition: Definition
    input_text: str
    number: int = 1
    created_ms: int = 0
    elapsed_ms: int = 0
    old_epoch: str = ""
    last_event: str = ""
    roots: Sequence[tuple[Node, str]] = ()
    is_cancelled: bool = False
    traceparent: str | None = None

    @property
    def given(self) -> list[tuple[str, str]]:
        """What it begins with; the store keeps it beside the outputs."""
        traced = [(TRACE_FIELD, self.traceparent)] if self.traceparent is not None else []
        return [(INPUT_FIELD, self.input_text), *traced]


def fresh(run: Run, token: str) -> OpenSlice:
    definition = run.definition.content_hash
    return OpenSlice(
        run.execution_id,
        token,
        outputs=run.given,
        opening=_opening(run, 0, 0, is_fresh=True),
        roots=[
            Dispatch(run.execution_id, token, run.number, node.id, 1, 0, node.handler, payload, definition=definition)
            for node, payload in run.roots
        ],
    )


def continued(run: Run, token: str, graph: Graph, kept: Mapping[str, Kept]) -> list[OpenSlice]:
    """What is known of nodes, the outputs of completed ones, and how many parents of each node are complete; the last
    slice opens."""
    kept = {**kept, **_skipped(graph, kept)}
    slices: list[OpenSlice] = []
    rows: list[tuple[str | int, ...]] = []
    counts: list[tuple[str, int]] = []
    outputs = run.given
    size = len(run.input_text)

    def cut() -> None:
        nonlocal rows, counts, outputs, size
        slices.append(OpenSlice(run.execution_id, token, rows, counts, outputs))
        rows, counts, outputs, size = [], [], [], 0

    done: dict[int, int] = {}
    for name, node in kept.items():
        record = node.record
        if node.output is not None:
            children = graph.children[graph.index[name]]
            for child in children:
                done[child] = done.get(child, 0) + 1
            record = msgspec.structs.replace(record, cursor=len(children))
            outputs.append((name, node.output))
            size += len(node.output)
        rows.append((name, *msgspec.structs.astuple(record)))
        if size > SLICE_BYTES or len(rows) >= SLICE:
            cut()
    names = list(graph.index)
    for child, count in done.items():
        counts.append((names[child], count))
        if len(counts) >= SLICE:
            cut()
    ended = [node.record.state for node in kept.values() if node.record.state in ENDED]
    opening = _opening(run, len(ended), ended.count(NodeState.FAILED), is_fresh=not kept)
    slices.append(OpenSlice(run.execution_id, token, rows, counts, outputs, opening))
    return slices


def _skipped(graph: Graph, kept: Mapping[str, Kept]) -> dict[str, Kept]:
    """What is below a node whose failure stands: it is skipped level by level, some of which may not be archived yet,
    and nobody comes back to do the rest."""
    failed = [name for name, node in kept.items() if node.record.state == NodeState.FAILED]
    names = list(graph.index)
    below = (names[i] for i in graph.descendants(*(graph.index[name] for name in failed)))
    skipped = Kept(Record(NodeState.SKIPPED.value, worker=failed[0] if failed else ""), None)
    return {name: skipped for name in below if name not in kept or kept[name].record.state not in ENDED}


def _opening(run: Run, ended: int, failed: int, *, is_fresh: bool) -> Opening:
    definition = run.definition
    timeout_ms = round((definition.timeout_seconds or 0) * 1000)
    return Opening(
        run=run.number,
        definition=definition.content_hash,
        mode=definition.on_failure,
        left=len(definition.nodes) - ended,
        failed=failed,
        created_ms=run.created_ms,
        timeout_ms=max(1, timeout_ms - run.elapsed_ms) if timeout_ms else 0,
        cancelled=run.is_cancelled,
        start="roots" if is_fresh else "all",
    )
