/* The event log: what the stream told as it happened, and for the rest what the times of nodes and attempts say. */
import type { Attempt, Change, Execution } from "../api/client";
import { ms } from "../parts/time";

export interface LogEvent {
  key: string;
  atMs: number;
  node: string | null; // null: the execution as a whole
  status: string;
  attempt: number | null;
  detail: string;
}

export function errorText(error: unknown): string {
  if (!error || typeof error !== "object") return "";
  const { type, message } = error as { type?: unknown; message?: unknown };
  return [type, message].filter((part) => typeof part === "string" && part).join(": ");
}

function event(at: string | null | undefined, node: string | null, status: string, attempt: number | null, detail = ""): LogEvent[] {
  const atMs = ms(at);
  return atMs === null ? [] : [{ key: `${node ?? ""} ${status} ${atMs}`, atMs, node, status, attempt, detail }];
}

export function eventsOfChange(change: Change): LogEvent[] {
  return change.nodes.flatMap((node) => {
    const detail = errorText(node.error) || node.reason || (node.worker ? `on ${node.worker}` : "");
    return event(change.at, node.id, node.status, node.attempt, detail);
  });
}

export function eventsOfExecution(execution: Execution): LogEvent[] {
  const own = [
    ...event(execution.created_at, null, "PENDING", null, "created"),
    ...event(execution.started_at, null, "RUNNING", null, `run ${execution.run} started`),
    ...event(execution.finished_at, null, execution.status, null, errorText(execution.error) || `run ${execution.run} ended`),
  ];
  return own.concat(
    execution.nodes.flatMap((node) => [
      ...event(node.queued_at, node.id, "QUEUED", node.attempt),
      ...event(node.started_at, node.id, "RUNNING", node.attempt),
      ...event(node.finished_at, node.id, node.status, node.attempt, errorText(node.error) || (node.reason ?? "")),
    ]),
  );
}

export function eventsOfAttempts(node: string, attempts: Attempt[]): LogEvent[] {
  return attempts.flatMap((one) => {
    const isRetried = one.next_attempt_at !== null;
    return [
      ...event(one.queued_at, node, "QUEUED", one.attempt),
      ...event(one.started_at, node, "RUNNING", one.attempt, one.worker ? `on ${one.worker}` : ""),
      ...event(one.finished_at, node, isRetried ? "RETRYING" : one.status, one.attempt, errorText(one.error)),
    ];
  });
}

/** In order of time, each once; a detail that was told live is kept. */
export function mergeEvents(known: LogEvent[], found: LogEvent[]): LogEvent[] {
  const keys = new Map(known.map((one, place) => [one.key, place]));
  const all = [...known];
  for (const one of found) {
    const place = keys.get(one.key);
    if (place === undefined) all.push(one);
    else if (!all[place]!.detail && one.detail) all[place] = one;
  }
  if (all.length === known.length) return all;
  return all.sort((a, b) => a.atMs - b.atMs);
}
