/* One execution, followed to its end. Changes are gathered and applied at most ten times a second, so that two hundred
events a second cost no more than ten. */
import { useCallback, useEffect, useState } from "react";
import { api, type Change, type Execution, type ExecutionNode, type Problem } from "../api/client";
import { follow } from "../api/events";
import { keyNeeded } from "../api/key";
import { store, type Store, useStore } from "../parts/store";
import { hasEnded } from "../parts/State";
import { eventsOfChange, eventsOfExecution, type LogEvent, mergeEvents } from "./log";

const FLUSH_MS = 100;

export interface LiveNode extends ExecutionNode {
  next_attempt_at?: string | null;
  worker?: string | null;
}

export interface Live {
  execution: (Omit<Execution, "nodes"> & { nodes: LiveNode[] }) | null;
  events: LogEvent[];
  problem: Problem | null;
}

const NOTHING: Live = { execution: null, events: [], problem: null };

/** `again` follows anew: after a retry, an execution that had ended goes on. */
export function useLive(id: string): Live & { again: () => void } {
  const [turn, setTurn] = useState(0);
  const [live] = useState<Store<Live>>(() => store(NOTHING));
  const again = useCallback(() => setTurn((n) => n + 1), []);

  useEffect(() => {
    const leaving = new AbortController();
    if (live.get().execution?.execution_id !== id) live.set(NOTHING);
    let changes: Change[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      const taken = changes;
      changes = [];
      live.update((state) => apply(state, taken));
    };
    void follow(`/v1/executions/${encodeURIComponent(id)}/events`, {
      signal: leaving.signal,
      endsWith: "end",
      onEvent: ({ kind, data }) => {
        if (kind === "change") {
          changes.push(data as Change);
          timer ??= setTimeout(flush, FLUSH_MS);
        } else if (kind === "snapshot" || kind === "end") {
          if (timer !== undefined) clearTimeout(timer), flush(); // their times are in the log
          const execution = data as Execution;
          live.update((state) => ({ execution, problem: null, events: mergeEvents(state.events, eventsOfExecution(execution)) }));
        } else if (kind === "problem") {
          live.update((state) => ({ ...state, problem: data as Problem }));
        }
      },
      onProblem: (problem) => live.update((state) => ({ ...state, problem })),
    });
    return () => (leaving.abort(), clearTimeout(timer));
  }, [id, turn, live]);

  useRetriedElsewhere(id, live, again);
  useEffect(() => keyNeeded.subscribe(() => keyNeeded.get() === null && again()), [again]);
  return { ...useStore(live), again };
}

/** The stream of an ended execution is over: whoever comes back to the page sees whether it was retried meanwhile. */
function useRetriedElsewhere(id: string, live: Store<Live>, again: () => void): void {
  useEffect(() => {
    const look = async () => {
      const known = live.get().execution;
      if (!known || !hasEnded(known.status)) return;
      const { data } = await api.GET("/v1/executions/{execution_id}", { params: { path: { execution_id: id } } }).catch(() => ({ data: undefined }));
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
  const events: LogEvent[] = [];
  let { run, status, started_at } = state.execution;
  for (const change of changes) {
    events.push(...eventsOfChange(change));
    if (change.run > run) (run = change.run), (started_at = change.at);
    if (!hasEnded(status)) status = "RUNNING";
    started_at ??= change.at;
    for (const one of change.nodes) {
      const place = places.get(one.id);
      if (place !== undefined) nodes[place] = changed(nodes[place]!, one, change.at);
    }
  }
  return { ...state, execution: { ...state.execution, run, status, started_at, nodes }, events: mergeEvents(state.events, events) };
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
  if (change.status === "RUNNING") return { ...next, queued_at: node.queued_at ?? at, started_at: at, finished_at: null };
  if (hasEnded(change.status) || change.status === "RETRYING") return { ...next, finished_at: at };
  return next;
}
