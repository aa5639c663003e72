/* Numbers over time, from /metrics, for as long as the page is open. The API keeps no history of them. */
import { BASE } from "../api/client";
import { authorization } from "../api/key";

const MOST = 150;

export interface Sample {
  atMs: number;
  perSecond: number | null; // attempts that ended, since the sample before
  failedPerSecond: number | null;
  p50: number | null; // seconds
  p95: number | null;
  queued: number;
  inUse: number;
}

interface Reading {
  atMs: number;
  values: Map<string, number>;
  buckets: [number, number][]; // upper bound in seconds, count so far
}

const samples: Sample[] = [];
let last: Reading | null = null;

export async function takeSample(): Promise<Sample[]> {
  const answer = await fetch(`${BASE}/metrics`, { headers: authorization(), cache: "no-store" });
  if (!answer.ok) throw new Error(`/metrics: ${answer.status}`);
  const reading = parse(await answer.text());
  const sample = compare(reading, last);
  last = reading;
  samples.push(sample);
  if (samples.length > MOST) samples.shift();
  return [...samples];
}

function parse(text: string): Reading {
  const values = new Map<string, number>();
  const buckets: [number, number][] = [];
  for (const line of text.split("\n")) {
    const found = /^(headrace_\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const [, name = "", labels = "", number] = found;
    const value = Number(number);
    if (name === "headrace_attempt_seconds_bucket") {
      const bound = /le="([^"]+)"/.exec(labels)?.[1];
      buckets.push([bound === "+Inf" ? Infinity : Number(bound), value]);
    } else {
      const outcome = name === "headrace_node_outcomes_total" ? `:${/outcome="(\w+)"/.exec(labels)?.[1]}` : "";
      values.set(name + outcome, (values.get(name + outcome) ?? 0) + value);
    }
  }
  return { atMs: Date.now(), values, buckets: buckets.sort((a, b) => a[0] - b[0]) };
}

function compare(now: Reading, before: Reading | null): Sample {
  const seconds = before ? (now.atMs - before.atMs) / 1000 : 0;
  const rate = (outcome: string) => {
    const name = `headrace_node_outcomes_total:${outcome}`;
    return before && seconds
      ? Math.max(0, (now.values.get(name) ?? 0) - (before.values.get(name) ?? 0)) / seconds
      : null;
  };
  const [completed, failed, retried] = [rate("completed"), rate("failed"), rate("retried")];
  const sum = (some: (number | null)[]) =>
    some.every((each) => each === null) ? null : some.reduce<number>((total, each) => total + (each ?? 0), 0);
  const grown = now.buckets.map(([bound, count], at): [number, number] => [
    bound,
    count - (before?.buckets[at]?.[1] ?? count),
  ]);
  return {
    atMs: now.atMs,
    perSecond: sum([completed, failed, retried]),
    failedPerSecond: sum([failed, retried]),
    p50: quantile(grown, 0.5),
    p95: quantile(grown, 0.95),
    queued: now.values.get("headrace_queue_depth") ?? 0,
    inUse: now.values.get("headrace_slots_in_use") ?? 0,
  };
}

/** Within a bucket, by straight lines, as Prometheus does. */
function quantile(buckets: [number, number][], share: number): number | null {
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const wanted = total * share;
  let [lower, below] = [0, 0];
  for (const [bound, count] of buckets) {
    if (count >= wanted)
      return bound === Infinity ? lower : lower + ((bound - lower) * (wanted - below)) / Math.max(1, count - below);
    [lower, below] = [bound, count];
  }
  return lower;
}
