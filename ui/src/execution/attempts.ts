/* What ran when, per node. A node tells its last attempt; of those that were tried more than once, all are fetched. */
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, type Attempt, data } from "../api/client";
import { ms } from "../parts/time";
import type { LiveNode } from "./live";

const MOST_FETCHED = 60;

export interface Bar {
  run: number | null;
  attempt: number;
  status: string;
  queuedMs: number | null;
  startedMs: number | null;
  endedMs: number | null; // null: it goes on
}

export function detailsQuery(id: string, node: LiveNode) {
  const mark = `${node.status} ${node.attempt} ${node.finished_at ?? ""}`; // a change of the node makes it a new query
  return {
    queryKey: ["node", id, node.id, mark],
    queryFn: () => data(api.GET("/v1/executions/{execution_id}/nodes/{node}", { params: { path: { execution_id: id, node: node.id } } })),
    staleTime: node.finished_at ? 60_000 : 1000,
  };
}

export function useAttempts(id: string, nodes: LiveNode[], run: number): Map<string, Attempt[]> {
  const asked = nodes.filter((node) => node.attempt > 1 || (run > 1 && node.started_at)).slice(0, MOST_FETCHED);
  return useQueries({
    queries: asked.map((node) => detailsQuery(id, node)),
    combine: (answers) => {
      const found = new Map<string, Attempt[]>();
      for (const { data: details } of answers) if (details) found.set(details.id, details.attempts);
      return found;
    },
  });
}

export function barsOf(node: LiveNode, attempts: Attempt[] | undefined): Bar[] {
  const last: Bar = {
    run: null,
    attempt: node.attempt,
    status: node.status,
    queuedMs: ms(node.queued_at),
    startedMs: ms(node.started_at),
    endedMs: ms(node.finished_at),
  };
  const bars: Bar[] = (attempts ?? []).map((one) => ({
    run: one.run,
    attempt: one.attempt,
    status: one.status,
    queuedMs: ms(one.queued_at),
    startedMs: ms(one.started_at),
    endedMs: ms(one.finished_at),
  }));
  if (last.queuedMs === null && last.startedMs === null) return bars;
  const known = bars.at(-1);
  if (!known || (known.queuedMs !== last.queuedMs && (last.queuedMs ?? 0) > (known.endedMs ?? known.queuedMs ?? 0))) bars.push(last);
  return bars;
}

/** The chain of nodes that decided when the execution ended: from the last to end, always to the parent that ended last. */
export function useCriticalPath(nodes: LiveNode[]): Set<string> {
  return useMemo(() => {
    const known = new Map(nodes.map((node) => [node.id, node]));
    const endOf = (node: LiveNode) => ms(node.finished_at) ?? (node.started_at ? Infinity : -Infinity);
    const latest = (some: LiveNode[]) => some.reduce<LiveNode | undefined>((best, node) => (!best || endOf(node) > endOf(best) ? node : best), undefined);
    const path = new Set<string>();
    let at = latest(nodes.filter((node) => node.started_at));
    while (at && !path.has(at.id)) {
      path.add(at.id);
      at = latest(at.dependencies.flatMap((id) => known.get(id) ?? []).filter((node) => node.started_at));
    }
    return path;
  }, [nodes]);
}
