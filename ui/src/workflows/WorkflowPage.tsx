/* One workflow: the graph and the text of each version, what changed between two, and a way to run it. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { lazy, Suspense, useMemo, useState } from "react";
import { api, data, type WorkflowItem } from "../api/client";
import { Button, CopyButton, Loading, Trouble } from "../parts/controls";
import { Back, Edit, Play } from "../parts/icons";
import { State } from "../parts/State";
import { visible } from "../parts/text";
import { age, full, ms, span, useNow } from "../parts/time";
import { type Definition, inputsOf, nodesOf, written } from "./definition";
import { around, diff } from "./diff";
import { RunDialog } from "./RunDialog";

const Graph = lazy(() => import("../execution/Graph"));
const route = getRouteApi("/workflows/$name");

export function useVersion(name: string, version: number | undefined) {
  return useQuery({
    queryKey: ["definition", name, version],
    enabled: version !== undefined,
    staleTime: Infinity,
    queryFn: () =>
      data(
        api.GET("/v1/workflows/{name}/versions/{version}", { params: { path: { name, version: String(version) } } }),
      ),
  });
}

export default function WorkflowPage() {
  const { name } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [node, setNode] = useState<string>();
  const workflow = useQuery({
    queryKey: ["workflow", name],
    queryFn: () => data(api.GET("/v1/workflows/{name}", { params: { path: { name }, query: { limit: 200 } } })),
  });
  const version = search.version ?? workflow.data?.version;
  const shown = useVersion(name, version);
  const other = useVersion(name, search.against);
  const definition = (shown.data?.definition ?? null) as Definition | null;
  const nodes = useMemo(() => nodesOf(definition), [definition]);
  const text = useMemo(() => (definition ? written(definition) : ""), [definition]);

  if (workflow.error) return <Trouble error={workflow.error} onRetry={() => void workflow.refetch()} />;
  if (!workflow.data) return <Loading what="the workflow" />;
  const set = (change: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  return (
    <div className="flex h-full flex-col">
      <header className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b px-4 py-2">
        <Link
          to="/workflows"
          aria-label="All workflows"
          className="-ml-1.5 rounded p-1 text-ink-3 hover:bg-hover hover:text-ink"
        >
          <Back />
        </Link>
        <h1 className="text-base font-semibold">{name}</h1>
        <span className="num text-xs text-ink-3">v{version}</span>
        {typeof definition?.description === "string" && (
          <p className="data min-w-0 truncate text-ink-2 max-md:hidden">{visible(definition.description)}</p>
        )}
        <div className="ml-auto flex gap-1.5">
          <Link to="/edit" search={{ workflow: name, version }}>
            <Button tabIndex={-1}>
              <Edit className="size-3.5" />
              Edit
            </Button>
          </Link>
          <Button look="primary" disabled={!definition} onClick={() => set({ run: true })}>
            <Play className="size-3.5" />
            Run…
          </Button>
        </div>
      </header>
      <div className="flex min-h-0 flex-1 max-md:flex-col max-md:overflow-y-auto">
        <div className="flex min-w-0 flex-1 flex-col max-md:flex-none">
          <div className="relative min-h-0 flex-1 border-b max-md:h-80 max-md:flex-none">
            <Suspense fallback={<Loading what="the graph" />}>
              <Graph nodes={nodes} chosen={node} onSelect={setNode} />
            </Suspense>
          </div>
          <section
            aria-label={other.data ? "Changes" : "Definition"}
            tabIndex={0}
            className="relative min-h-0 flex-1 overflow-auto bg-subtle max-md:flex-none"
          >
            {other.data ? (
              <Changes before={written(other.data.definition)} after={text} from={search.against!} to={version!} />
            ) : (
              <>
                <span className="absolute top-1.5 right-2">
                  <CopyButton text={text} label="Copy the YAML" />
                </span>
                <Code text={text} />
              </>
            )}
          </section>
        </div>
        <aside className="flex w-72 shrink-0 flex-col gap-5 overflow-y-auto border-l p-4 max-md:w-full max-md:border-l-0">
          <Versions versions={workflow.data.versions} version={version!} against={search.against} onChange={set} />
          <Recent name={name} />
        </aside>
      </div>
      {search.run && definition && (
        <RunDialog
          title={`Run ${name} v${version}`}
          inputs={inputsOf(definition)}
          body={{ workflow: name, version }}
          onClose={() => set({ run: undefined })}
        />
      )}
    </div>
  );
}

function Versions({
  versions,
  version,
  against,
  onChange,
}: {
  versions: WorkflowItem[];
  version: number;
  against: number | undefined;
  onChange: (change: { version?: number; against?: number }) => void;
}) {
  const now = useNow(10_000);
  return (
    <section>
      <h2 className="mb-1.5 text-xs font-medium text-ink-3">Versions</h2>
      <ul className="flex flex-col">
        {versions.map((item) => (
          <li
            key={item.version}
            className={`flex items-center rounded-md ${item.version === version ? "bg-accent-soft" : "hover:bg-hover"}`}
          >
            <button
              type="button"
              aria-pressed={item.version === version}
              onClick={() =>
                onChange({ version: item.version, against: against === item.version ? undefined : against })
              }
              className="flex flex-1 items-baseline gap-2 px-2 py-1 text-left"
            >
              <span className="num font-medium">v{item.version}</span>
              <time dateTime={item.created_at} title={full(ms(item.created_at)!)} className="text-xs text-ink-3">
                {age(now - ms(item.created_at)!)}
              </time>
            </button>
            {item.version !== version && (
              <Button
                look="quiet"
                small
                aria-pressed={against === item.version}
                onClick={() => onChange({ against: against === item.version ? undefined : item.version })}
              >
                {against === item.version ? "Hide changes" : "Compare"}
              </Button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Recent({ name }: { name: string }) {
  const now = useNow(5000);
  const recent = useQuery({
    queryKey: ["executions", "recent", name],
    refetchInterval: 5000,
    queryFn: () => data(api.GET("/v1/executions", { params: { query: { workflow: name, limit: 8 } } })),
  });
  return (
    <section>
      <h2 className="mb-1.5 flex items-baseline justify-between text-xs font-medium text-ink-3">
        Recent executions
        <Link to="/executions" search={{ workflow: name }} className="text-accent hover:underline">
          All
        </Link>
      </h2>
      <ul className="flex flex-col">
        {recent.data?.items.map((item) => {
          const [started, ended] = [ms(item.started_at), ms(item.finished_at)];
          return (
            <li key={item.execution_id}>
              <Link
                to="/executions/$id"
                params={{ id: item.execution_id }}
                search={{}}
                className="flex items-center gap-2 rounded-md px-2 py-1 hover:bg-hover"
              >
                <State status={item.status} className="text-xs" />
                <span className="num ml-auto text-xs text-ink-2">
                  {started !== null && ended !== null ? span(ended - started) : ""}
                </span>
                <span className="num w-14 text-right text-xs whitespace-nowrap text-ink-3">
                  {age(now - ms(item.created_at)!)}
                </span>
              </Link>
            </li>
          );
        })}
        {recent.data?.items.length === 0 && <li className="text-ink-3">None yet.</li>}
      </ul>
    </section>
  );
}

function Code({ text }: { text: string }) {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return (
    <pre className="grid grid-cols-[auto_1fr] gap-x-4 p-3 font-mono text-xs leading-5">
      <code aria-hidden="true" className="num text-right text-ink-3 select-none">
        {lines.map((_, at) => `${at + 1}\n`)}
      </code>
      <code className="data whitespace-pre-wrap">{visible(text)}</code>
    </pre>
  );
}

const TONE = { same: "", gone: "bg-bad-soft text-bad", new: "bg-good/10 text-good" };

function Changes({ before, after, from, to }: { before: string; after: string; from: number; to: number }) {
  const lines = useMemo(() => around(diff(before, after)), [before, after]);
  return (
    <div className="py-2 font-mono text-xs leading-5">
      <h2 className="px-4 pb-2 font-sans font-medium text-ink-2">
        From v{from} to v{to}
      </h2>
      {lines.map((line, at) =>
        line === null ? (
          <p key={at} className="px-4 text-ink-3">
            ⋯
          </p>
        ) : (
          <div key={at} className={`grid grid-cols-[2.5rem_2.5rem_1rem_1fr] px-2 ${TONE[line.kind]}`}>
            <span className="num pr-2 text-right text-ink-2">{line.before}</span>
            <span className="num pr-2 text-right text-ink-2">{line.after}</span>
            <span>{line.kind === "gone" ? "−" : line.kind === "new" ? "+" : ""}</span>
            <span className="data whitespace-pre-wrap">{visible(line.text)}</span>
          </div>
        ),
      )}
    </div>
  );
}
