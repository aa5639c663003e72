/* One execution: its header, three views of the same nodes with one selection, and the inspector. */
import { getRouteApi, Link } from "@tanstack/react-router";
import { lazy, Suspense, useCallback } from "react";
import { CopyButton, Loading, Trouble } from "../parts/controls";
import { Back } from "../parts/icons";
import { hasEnded, look, NODE_STATUSES, State, StateIcon } from "../parts/State";
import { full, ms, span, useNow } from "../parts/time";
import { VIEWS, type View } from "../router";
import { useKeys } from "../shell/keys";
import { Actions } from "./Actions";
import { useCriticalPath } from "./bars";
import { EventLog } from "./EventLog";
import { Inspector } from "./Inspector";
import { type Live, type LiveNode, useLive } from "./live";
import { Timeline } from "./Timeline";

const Graph = lazy(() => import("./Graph"));
const route = getRouteApi("/executions/$id");
const NO_NODES: LiveNode[] = [];
const VIEW_NAMES: Record<View, string> = { graph: "Graph", timeline: "Timeline", log: "Event log" };

export default function ExecutionPage() {
  const { id } = route.useParams();
  return <Followed key={id} id={id} />;
}

function Followed({ id }: { id: string }) {
  const { view = "graph", node: chosen, tab } = route.useSearch();
  const navigate = route.useNavigate();
  const live = useLive(id);
  const { execution, problem } = live;
  const { events } = live.log;
  const nodes = execution?.nodes ?? NO_NODES;
  const critical = useCriticalPath(execution && hasEnded(execution.status) ? nodes : NO_NODES); // the end decides it
  const select = useCallback(
    (node: string | undefined) => void navigate({ search: (old) => ({ ...old, node }), replace: true }),
    [navigate],
  );
  const show = (next: View) => void navigate({ search: (old) => ({ ...old, view: next }), replace: true });
  const step = (by: number) => {
    const at = nodes.findIndex((node) => node.id === chosen);
    select(nodes[Math.max(0, Math.min(nodes.length - 1, at < 0 ? 0 : at + by))]?.id);
  };
  useKeys({
    "1": () => show("graph"),
    "2": () => show("timeline"),
    "3": () => show("log"),
    j: () => step(1),
    k: () => step(-1),
    Escape: () => select(undefined),
  });

  if (!execution) {
    if (!problem) return <Loading what="the execution" />;
    return <Trouble error={Object.assign(new Error(problem.message), problem)} onRetry={live.again} />;
  }
  const node = nodes.find((each) => each.id === chosen);
  return (
    <div className="flex h-full flex-col">
      <Header execution={execution} again={live.again} />
      <div className="flex flex-wrap items-center gap-x-4 gap-y-1 border-b px-4 py-1.5">
        <div role="tablist" aria-label="Views" className="flex rounded-md border bg-subtle p-0.5">
          {VIEWS.map((each) => (
            <button
              key={each}
              type="button"
              role="tab"
              aria-selected={view === each}
              onClick={() => show(each)}
              className={`h-6 rounded-[5px] px-2.5 text-xs font-medium ${view === each ? "bg-raised shadow-sm ring-1 ring-edge/60" : "text-ink-2 hover:text-ink"}`}
            >
              {VIEW_NAMES[each]}
            </button>
          ))}
        </div>
        <Progress nodes={nodes} />
      </div>
      <div className="flex min-h-0 flex-1 max-md:flex-col">
        <section aria-label={VIEW_NAMES[view]} className="relative min-h-0 min-w-0 flex-1">
          {view === "graph" && (
            <Suspense fallback={<Loading what="the graph" />}>
              <Graph nodes={nodes} critical={critical} chosen={chosen} onSelect={select} />
            </Suspense>
          )}
          {view === "timeline" && (
            <Timeline execution={execution} events={events} critical={critical} chosen={chosen} onSelect={select} />
          )}
          {view === "log" && <EventLog events={events} execution={execution} chosen={chosen} onSelect={select} />}
        </section>
        <Inspector
          execution={execution}
          node={node}
          tab={tab}
          onTab={(next) => void navigate({ search: (old) => ({ ...old, tab: next }), replace: true })}
          onSelect={select}
          again={live.again}
        />
      </div>
    </div>
  );
}

function Header({ execution, again }: { execution: NonNullable<Live["execution"]>; again: () => void }) {
  const started = ms(execution.started_at);
  const ended = ms(execution.finished_at);
  const now = useNow(250, execution.status === "RUNNING");
  return (
    <header className="flex flex-wrap items-center gap-x-3 gap-y-1.5 border-b px-4 py-2">
      <Link
        to="/executions"
        search={{}}
        aria-label="All executions"
        className="-ml-1.5 rounded p-1 text-ink-3 hover:bg-hover hover:text-ink"
      >
        <Back />
      </Link>
      <h1 className="flex min-w-0 items-baseline gap-2 text-base font-semibold">
        <Link
          to="/workflows/$name"
          params={{ name: execution.workflow }}
          search={execution.version ? { version: execution.version } : {}}
          className="data truncate hover:underline"
        >
          {execution.workflow}
        </Link>
        {execution.version !== null && <span className="text-xs font-normal text-ink-3">v{execution.version}</span>}
      </h1>
      <State status={execution.status} turns />
      <span className="flex items-center font-mono text-xs text-ink-2" title={execution.execution_id}>
        <span className="max-sm:hidden">{execution.execution_id}</span>
        <span className="sm:hidden">…{execution.execution_id.slice(-8)}</span>
        <CopyButton text={execution.execution_id} label="Copy the id" />
      </span>
      <dl className="flex items-center gap-x-4 text-xs text-ink-3">
        {execution.run > 1 && <Fact name="Run">{execution.run}</Fact>}
        {started !== null && (
          <Fact name="Started" wide>
            <time dateTime={execution.started_at!} title={full(started)}>
              {full(started).split(", ").at(-1)!.slice(0, 8)}
            </time>
          </Fact>
        )}
        {started !== null && (
          <Fact name="Took">
            <span className="num">{span((ended ?? now) - started)}</span>
          </Fact>
        )}
      </dl>
      <div className="ml-auto flex gap-1.5">
        <Actions execution={execution} again={again} />
      </div>
    </header>
  );
}

function Fact({ name, wide, children }: { name: string; wide?: boolean; children: React.ReactNode }) {
  return (
    <div className={`flex gap-1 ${wide ? "max-sm:hidden" : ""}`}>
      <dt>{name}</dt>
      <dd className="text-ink-2">{children}</dd>
    </div>
  );
}

function Progress({ nodes }: { nodes: LiveNode[] }) {
  const counts = NODE_STATUSES.map((status) => ({
    status,
    count: nodes.filter((node) => node.status === status).length,
  })).filter((one) => one.count);
  const done = nodes.filter((node) => node.status === "COMPLETED").length;
  return (
    <div className="flex min-w-0 flex-1 items-center gap-3">
      <div
        role="progressbar"
        aria-label="Nodes completed"
        aria-valuemin={0}
        aria-valuemax={nodes.length}
        aria-valuenow={done}
        className="flex h-1.5 w-32 shrink-0 overflow-hidden rounded-full bg-hover max-sm:hidden"
      >
        {[...counts]
          .reverse()
          .map(
            ({ status, count }) =>
              status !== "PENDING" && (
                <span
                  key={status}
                  className={`${look(status).text} bg-current`}
                  style={{ width: `${(100 * count) / nodes.length}%` }}
                />
              ),
          )}
      </div>
      <span className="flex flex-wrap gap-x-3 text-xs">
        {counts.map(({ status, count }) => (
          <span key={status} className="num inline-flex items-center gap-1 text-ink-2">
            <StateIcon status={status} className="size-3" />
            {count}
            <span className="max-md:sr-only">{look(status).word.toLowerCase()}</span>
          </span>
        ))}
      </span>
    </div>
  );
}
