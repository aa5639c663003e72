/* The event log: what the stream told as it happened, and for the rest what the times of attempts and nodes say.

The timeline is drawn from it as well, so both show the same. */
import type { Change, Execution, NodeAttempt } from "../api/client";
import { ms } from "../parts/time";

export interface LogEvent {
  key: string;
  atMs: number;
  node: string | null; // null: the execution as a whole
  status: string;
  run: number;
  attempt: number;
  detail: string;
}

export interface Log {
  known: Map<string, LogEvent>;
  levels: Map<string, number>; // of the nodes: what led to something stands before it
  events: LogEvent[]; // in order
}

export function emptyLog(): Log {
  return { known: new Map(), levels: new Map(), events: [] };
}

/** Each event once, in order of time. What is told later is right, but a detail that it lacks is kept. The map goes on
into the new log. */
export function grown(log: Log, found: LogEvent[], levels = log.levels): Log {
  const { known, events } = log;
  let isNew = levels !== log.levels;
  for (const event of found) {
    const old = known.get(event.key);
    const detail = event.detail || (old?.detail ?? "");
    if (old && old.atMs === event.atMs && old.status === event.status && old.detail === detail) continue;
    known.set(event.key, { ...event, detail });
    isNew = true;
  }
  return { known, levels, events: isNew ? [...known.values()].sort(inOrder(levels)) : events };
}

const RANKS: Record<string, number> = { PENDING: 0, QUEUED: 1, RUNNING: 2 };

/** Within a millisecond: the start of the execution, nodes by their level and their steps in order, the end. */
function inOrder(levels: Map<string, number>): (a: LogEvent, b: LogEvent) => number {
  const rank = ({ status }: LogEvent) => RANKS[status] ?? 3;
  const level = (event: LogEvent) =>
    event.node === null ? (rank(event) === 3 ? Infinity : -1) : (levels.get(event.node) ?? 0);
  return (a, b) => a.atMs - b.atMs || level(a) - level(b) || a.attempt - b.attempt || rank(a) - rank(b);
}

export function errorText(error: unknown): string {
  if (!error || typeof error !== "object") return "";
  const { type, message } = error as { type?: unknown; message?: unknown };
  return [type, message].filter((part) => typeof part === "string" && part).join(": ");
}

type Of = Pick<LogEvent, "node" | "run" | "attempt">;

function event(of: Of, at: string | null | undefined, status: string, detail = ""): LogEvent[] {
  const atMs = ms(at);
  const step = status in RANKS ? status : "END"; // an attempt has one of each
  return atMs === null
    ? []
    : [{ key: `${of.node ?? ""} ${of.run} ${of.attempt} ${step}`, atMs, ...of, status, detail }];
}

export function eventsOfChange({ run, at, nodes }: Change): LogEvent[] {
  return nodes.flatMap((node) => {
    const detail = errorText(node.error) || words(node.reason) || (node.worker ? `on ${node.worker}` : "");
    return event({ node: node.id, run, attempt: node.attempt }, at, node.status, detail);
  });
}

/** From the second run on, a node may still have the times of an earlier one: only the attempts tell of which. */
export function eventsOfExecution(execution: Execution): LogEvent[] {
  const { run, status, started_at } = execution;
  const own = { node: null, run, attempt: 0 };
  const nodes = execution.nodes.filter((node) => run === 1 || node.attempt === 0);
  return [
    ...event({ ...own, run: 1 }, execution.created_at, "PENDING", "created"),
    ...event(own, started_at, "RUNNING", `run ${run} started`),
    ...event(own, execution.finished_at, status, errorText(execution.error) || `run ${run} ended`),
    ...nodes.flatMap((node) => {
      const of = { node: node.id, run, attempt: node.attempt };
      return [
        ...event(of, node.queued_at, "QUEUED"),
        ...event(of, node.started_at, "RUNNING"),
        ...event(of, node.finished_at, node.status, errorText(node.error) || words(node.reason)),
      ];
    }),
  ];
}

export function eventsOfAttempts(attempts: NodeAttempt[]): LogEvent[] {
  return attempts.flatMap((one) => {
    const of = { node: one.node, run: one.run, attempt: one.attempt };
    return [
      ...event(of, one.queued_at, "QUEUED"),
      ...event(of, one.started_at, "RUNNING", one.worker ? `on ${one.worker}` : ""),
      ...event(of, one.finished_at, one.next_attempt_at ? "RETRYING" : one.status, errorText(one.error)),
    ];
  });
}

function words(reason: string | null | undefined): string {
  return reason?.replaceAll("_", " ") ?? "";
}
