/* What ran when, per node: each attempt is a bar with a wait before it. And which chain of nodes decided the end. */
import { useMemo } from "react";
import { ms } from "../parts/time";
import type { LiveNode } from "./live";
import type { LogEvent } from "./log";

export interface Bar {
  run: number;
  attempt: number;
  status: string;
  queuedMs: number | null;
  startedMs: number | null;
  endedMs: number | null; // null: it goes on
}

export function barsOf(events: LogEvent[]): Map<string, Bar[]> {
  const found = new Map<string, Bar[]>();
  for (const { node, status, run, attempt, atMs } of events) {
    if (node === null) continue;
    const bars = found.get(node) ?? [];
    found.set(node, bars);
    const last = bars.at(-1);
    const open = last?.endedMs === null ? last : undefined;
    if (status === "RUNNING" && open?.startedMs === null) Object.assign(open, { status, startedMs: atMs });
    else if (status === "QUEUED" || status === "RUNNING") {
      if (open) Object.assign(open, { status: "ABANDONED", endedMs: atMs }); // given back, or its worker was lost
      const isQueued = status === "QUEUED";
      bars.push({
        run,
        attempt,
        status,
        queuedMs: isQueued ? atMs : null,
        startedMs: isQueued ? null : atMs,
        endedMs: null,
      });
    } else if (open) Object.assign(open, { status: status === "RETRYING" ? "FAILED" : status, endedMs: atMs });
  }
  return found;
}

/** From the last node to end, always to the parent that ended last. */
export function useCriticalPath(nodes: LiveNode[]): Set<string> {
  return useMemo(() => {
    const path = new Set<string>();
    const known = new Map(nodes.map((node) => [node.id, node]));
    const endOf = (node: LiveNode) => ms(node.finished_at) ?? -Infinity;
    const latest = (some: LiveNode[]) =>
      some
        .filter((node) => node.started_at)
        .reduce<LiveNode | undefined>((best, node) => (!best || endOf(node) > endOf(best) ? node : best), undefined);
    let at = latest(nodes);
    while (at && !path.has(at.id)) {
      path.add(at.id);
      at = latest(at.dependencies.flatMap((id) => known.get(id) ?? []));
    }
    return path;
  }, [nodes]);
}
