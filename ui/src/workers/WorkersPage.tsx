/* Who works, what waits, and how quickly it goes. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, data, type Queue, type Worker } from "../api/client";
import { Button, Command, Empty, Loading, Trouble } from "../parts/controls";
import { plural } from "../parts/text";
import { span } from "../parts/time";
import { Chart } from "./Chart";
import { takeSample } from "./samples";

const EVERY_MS = 2000;

export default function WorkersPage() {
  const workers = useQuery({
    queryKey: ["workers"],
    refetchInterval: EVERY_MS,
    queryFn: () => data(api.GET("/v1/workers")),
  });
  const queues = useQuery({
    queryKey: ["queues"],
    refetchInterval: EVERY_MS,
    queryFn: () => data(api.GET("/v1/queues")),
  });
  const samples = useQuery({ queryKey: ["samples"], refetchInterval: EVERY_MS, staleTime: 0, queryFn: takeSample });
  const audit = useQuery({
    queryKey: ["audit"],
    refetchInterval: 10_000,
    queryFn: () => data(api.GET("/v1/audit", { params: { query: { limit: 1 } } })),
  });
  const alive = workers.data?.items.filter((worker) => worker.alive) ?? [];
  const waits = queues.data?.items.reduce((sum, queue) => sum + queue.depth, 0) ?? 0;
  return (
    <div className="h-full overflow-y-auto">
      <header className="flex flex-wrap items-baseline gap-x-4 px-4 pt-3 pb-2">
        <h1 className="text-lg font-semibold tracking-tight">Workers &amp; queues</h1>
        {workers.data && queues.data && (
          <p className="num text-xs text-ink-2">
            {plural(alive.length, "worker")}, {alive.reduce((sum, worker) => sum + (worker.running ?? 0), 0)} of{" "}
            {plural(
              alive.reduce((sum, worker) => sum + (worker.slots ?? 0), 0),
              "slot",
            )}{" "}
            in use, {plural(waits, "task")} waiting
          </p>
        )}
      </header>
      {audit.data?.problems.map((problem) => (
        <p
          key={problem.cause}
          role="alert"
          className="data mx-4 mb-2 rounded-md border border-retrying/40 bg-warn-soft px-3 py-2"
        >
          <span className="font-medium text-retrying">{problem.why}.</span> {problem.do}
        </p>
      ))}
      {samples.data && (
        <div className="grid grid-cols-[repeat(auto-fit,minmax(17rem,1fr))] gap-3 px-4 py-2">
          <Chart
            title="Attempts per second"
            format={(value) => value.toFixed(value < 10 ? 1 : 0)}
            lines={[
              { name: "all", className: "text-accent", values: samples.data.map((one) => one.perSecond) },
              { name: "failed", className: "text-bad", values: samples.data.map((one) => one.failedPerSecond) },
            ]}
          />
          <Chart
            title="Time of an attempt"
            format={(value) => span(value * 1000)}
            lines={[
              { name: "p50", className: "text-accent", values: samples.data.map((one) => one.p50) },
              { name: "p95", className: "text-queued", values: samples.data.map((one) => one.p95) },
            ]}
          />
          <Chart
            title="Tasks"
            format={(value) => String(value)}
            lines={[
              { name: "run", className: "text-running", values: samples.data.map((one) => one.inUse) },
              { name: "wait", className: "text-queued", values: samples.data.map((one) => one.queued) },
            ]}
          />
        </div>
      )}
      <h2 className="px-4 pt-3 pb-1.5 text-sm font-semibold">Workers</h2>
      {workers.error && <Trouble error={workers.error} onRetry={() => void workers.refetch()} />}
      {workers.isPending && <Loading what="workers" />}
      {workers.data?.items.length === 0 && (
        <Empty title="No worker is running">
          <p>Tasks wait until there is one:</p>
          <Command>headrace worker</Command>
        </Empty>
      )}
      {!!workers.data?.items.length && <WorkerTable workers={workers.data.items} />}
      <h2 className="px-4 pt-6 pb-1.5 text-sm font-semibold">Queues</h2>
      {queues.error && <Trouble error={queues.error} onRetry={() => void queues.refetch()} />}
      {queues.data && <QueueTable queues={queues.data.items} />}
      <p className="px-4 py-4 text-xs text-ink-3">
        The plots begin when this page is first opened. For longer ones, let Prometheus read /metrics.
      </p>
    </div>
  );
}

const HEAD =
  "border-y bg-subtle text-left text-2xs font-medium text-ink-3 [&_th]:h-7 [&_th]:px-3 [&_th]:font-medium [&_th:first-child]:pl-4";
const CELLS = "border-b hover:bg-subtle [&_td]:h-9 [&_td]:px-3 [&_td:first-child]:pl-4";

function WorkerTable({ workers }: { workers: Worker[] }) {
  return (
    <div className="overflow-x-auto" tabIndex={0} role="group" aria-label="Workers">
      <table className="w-full">
        <thead className={HEAD}>
          <tr>
            <th>Worker</th>
            <th>State</th>
            <th>Heartbeat</th>
            <th>Slots</th>
            <th>Handlers</th>
          </tr>
        </thead>
        <tbody>
          {workers.map((worker) => (
            <WorkerRow key={worker.name} worker={worker} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function WorkerRow({ worker }: { worker: Worker }) {
  const [isWhole, setWhole] = useState(false);
  const { running, slots } = worker;
  const handlers = isWhole ? worker.handlers : worker.handlers.slice(0, 4);
  return (
    <tr className={CELLS}>
      <td className="font-mono text-xs whitespace-nowrap">{worker.name}</td>
      <td className={`text-xs font-medium ${worker.alive ? "text-good" : "text-bad"}`}>
        <span className="inline-flex items-center gap-1.5">
          <span className={`size-2 ${worker.alive ? "rounded-full bg-good" : "rotate-45 bg-bad"}`} />
          {worker.alive ? "Alive" : "Silent"}
        </span>
      </td>
      <td className="num text-xs whitespace-nowrap text-ink-2">{span(worker.heartbeat_age_seconds * 1000)} ago</td>
      <td className="text-xs whitespace-nowrap">
        {slots !== null && running !== null && (
          <span className="flex items-center gap-2">
            <span className="h-1.5 w-20 overflow-hidden rounded-full bg-hover">
              <span className="block h-full bg-running" style={{ width: `${(100 * running) / Math.max(1, slots)}%` }} />
            </span>
            <span className="num text-ink-2">
              {running} of {slots}
            </span>
          </span>
        )}
      </td>
      <td className="min-w-48 text-xs">
        <span className="flex flex-wrap items-center gap-1 py-1">
          {handlers.map((name) => (
            <code key={name} className="data rounded bg-hover px-1 font-mono text-2xs">
              {name}
            </code>
          ))}
          {worker.handlers.length > handlers.length && (
            <Button look="quiet" small onClick={() => setWhole(true)}>
              {worker.handlers.length - handlers.length} more
            </Button>
          )}
        </span>
      </td>
    </tr>
  );
}

function QueueTable({ queues }: { queues: Queue[] }) {
  const deepest = Math.max(1, ...queues.map((queue) => queue.depth));
  const sorted = [...queues].sort((a, b) => b.depth - a.depth || a.handler.localeCompare(b.handler));
  return (
    <div className="overflow-x-auto" tabIndex={0} role="group" aria-label="Queues">
      <table className="w-full">
        <thead className={HEAD}>
          <tr>
            <th>Handler</th>
            <th className="w-1/2">Waiting</th>
            <th>Oldest</th>
          </tr>
        </thead>
        <tbody>
          {sorted.map((queue) => (
            <tr key={queue.handler} className={CELLS}>
              <td className="data font-mono text-xs">{queue.handler}</td>
              <td>
                <span className="flex items-center gap-3">
                  <span className="num w-12 text-right text-xs">{queue.depth}</span>
                  <span className="h-1.5 flex-1">
                    <span
                      className="block h-full rounded-full bg-queued"
                      style={{ width: `${(100 * queue.depth) / deepest}%` }}
                    />
                  </span>
                </span>
              </td>
              <td className="num text-xs whitespace-nowrap text-ink-2">
                {queue.oldest_age_seconds === null ? "–" : span(queue.oldest_age_seconds * 1000)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
