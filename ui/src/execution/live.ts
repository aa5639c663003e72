/* One execution, followed to its end. Changes are gathered and applied at most ten times a second, so that two hundred
events a second cost no more than ten. */
import { useCallback, useEffect, useState } from "react";
import {
  type Attempts,
  api,
  type Change,
  data,
  type Execution,
  type ExecutionNode,
  type NodeAttempt,
  type Problem,
} from "../api/client";
import { follow } from "../api/events";
import { keyNeeded } from "../api/key";
import { hasEnded } from "../parts/State";
import { type Store, store, useStore } from "../parts/store";
import { levelsOf } from "./kin";
import { emptyLog, eventsOfAttempts, eventsOfChange, eventsOfExecution, grown, type Log } from "./log";

const FLUSH_MS = 100;
const PAGE = 1000;
const MOST_ATTEMPTS = 20_000; // of very many, the log and the timeline know the first

export interface LiveNode extends ExecutionNode {
  next_attempt_at?: string | null;
  worker?: string | null;
}

export interface Live {
  execution: (Omit<Execution, "nodes"> & { nodes: LiveNode[] }) | null;
  log: Log;
  problem: Problem | null;
}

const nothing = (): Live => ({ execution: null, log: emptyLog(), problem: null });

/** `again` follows anew: after a retry, an execution that had ended goes on. */
export function useLive(id: string): Live & { again: () => void } {
  const [turn, setTurn] = useState(0);
  const [live] = useState<Store<Live>>(() => store(nothing()));
  const again = useCallback(() => setTurn((n) => n + 1), []);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a turn is a new beginning
  useEffect(() => {
    const leaving = new AbortController();
    let changes: Change[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      clearTimeout(timer);
      timer = undefined;
      const taken = changes;
      changes = [];
      live.update((state) => apply(state, taken));
    };
    const renew = (execution: Execution) => {
      flush(); // their times are in the log
      live.update(({ log }) => {
        const levels = log.levels.size ? log.levels : levelsOf(execution.nodes);
        return { execution, problem: null, log: grown(log, eventsOfExecution(execution), levels) };
      });
      void tellAttempts(id, live, leaving.signal);
    };
    void follow(`/v1/executions/${encodeURIComponent(id)}/events`, {
      signal: leaving.signal,
      endsWith: "end",
      onEvent: ({ kind, data }) => {
        if (kind === "change") {
          changes.push(data as Change);
          timer ??= setTimeout(flush, FLUSH_MS);
        } else if (kind === "snapshot" || kind === "end") renew(data as Execution);
        else if (kind === "problem") live.update((state) => ({ ...state, problem: data as Problem }));
      },
      onProblem: (problem) => live.update((state) => ({ ...state, problem })),
    });
    return () => {
      leaving.abort();
      clearTimeout(timer);
    };
  }, [id, turn, live]);

  useRetriedElsewhere(id, live, again);
  useEffect(() => keyNeeded.subscribe(() => keyNeeded.get() === null && again()), [again]);
  return { ...useStore(live), again };
}

/** What happened before this page was opened, and in earlier runs. Without it the log has only the last attempts. */
async function tellAttempts(id: string, live: Store<Live>, signal: AbortSignal): Promise<void> {
  const found: NodeAttempt[] = [];
  let cursor: string | null | undefined;
  try {
    do {
      const params = { path: { execution_id: id }, query: { limit: PAGE, cursor: cursor ?? undefined } };
      const page: Attempts = await data(api.GET("/v1/executions/{execution_id}/attempts", { params, signal }));
      found.push(...page.items);
      cursor = page.next_cursor;
    } while (cursor && found.length < MOST_ATTEMPTS);
  } catch {
    return; // the next snapshot asks again; that the server is away is shown elsewhere
  }
  live.update((state) => ({ ...state, log: grown(state.log, eventsOfAttempts(found)) }));
}

/** The stream of an ended execution is over: whoever comes back to the page sees whether it was retried meanwhile. */
function useRetriedElsewhere(id: string, live: Store<Live>, again: () => void): void {
  useEffect(() => {
    const look = async () => {
      const known = live.get().execution;
      if (!known || !hasEnded(known.status)) return;
      const { data } = await api
        .GET("/v1/executions/{execution_id}", { params: { path: { execution_id: id } } })
        .catch(() => ({ data: undefined }));
      if (data && (data.run !== known.run || data.status !== known.status)) again();
    };
    const onFocus = () => void look();
    window.addEventListener("focus", onFocus);
    return () => window.removeEventListener("focus", onFocus);
  }, [id, live, again]);
}

function apply(state: Live, changes: Change[]): Live {
  if (!state.execution || !changes.length) return state;
  const nodes = [...state.execution.nodes];
  const places = new Map(nodes.map((node, place) => [node.id, place]));
  let { run, status, started_at } = state.execution;
  for (const change of changes) {
    if (change.run > run) [run, started_at] = [change.run, change.at];
    if (!hasEnded(status)) status = "RUNNING";
    started_at ??= change.at;
    for (const one of change.nodes) {
      const place = places.get(one.id);
      if (place !== undefined) nodes[place] = changed(nodes[place]!, one, change.at);
    }
  }
  const log = grown(state.log, changes.flatMap(eventsOfChange));
  return { ...state, execution: { ...state.execution, run, status, started_at, nodes }, log };
}

function changed(node: LiveNode, change: Change["nodes"][number], at: string): LiveNode {
  const next: LiveNode = {
    ...node,
    status: change.status,
    attempt: change.attempt,
    error: change.error ?? null,
    reason: change.reason ?? null,
    next_attempt_at: change.next_attempt_at ?? null,
    worker: change.worker ?? node.worker,
  };
  if (change.status === "QUEUED") return { ...next, queued_at: at, started_at: null, finished_at: null };
  if (change.status === "RUNNING")
    return { ...next, queued_at: node.queued_at ?? at, started_at: at, finished_at: null };
  if (hasEnded(change.status) || change.status === "RETRYING") return { ...next, finished_at: at };
  return next;
}
