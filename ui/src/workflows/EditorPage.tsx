/* A definition being written: the text, the graph that it makes, and what is wrong with it, as one types. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { api, data, type ErrorItem, Problem } from "../api/client";
import { Button, Loading } from "../parts/controls";
import { Check, Play } from "../parts/icons";
import { StateIcon } from "../parts/State";
import { plural, visible } from "../parts/text";
import { say, sayProblem } from "../parts/toasts";
import { inputsOf, nodesOf, read, written } from "./definition";
import { RunDialog } from "./RunDialog";
import { useVersion } from "./WorkflowPage";

const Graph = lazy(() => import("../execution/Graph"));
const CodeEditor = lazy(() => import("./CodeEditor"));
const route = getRouteApi("/edit");
const PAUSE_MS = 300;
const DRAFT = "headrace.draft";
const NO_PROBLEMS: ErrorItem[] = [];

const FIRST = `name: hello
description: Greet somebody
inputs:
  name: {type: string, default: world}
nodes:
  - id: greeting
    handler: llm_service
    config:
      model: echo
      prompt: "Hello {{ input.name }}"
  - id: done
    handler: output
    dependencies: [greeting]
    config:
      text: "{{ greeting.text }}"
`;

export default function EditorPage() {
  const { workflow, version } = route.useSearch();
  const stored = useVersion(workflow ?? "", workflow ? (version ?? 1) : undefined);
  if (workflow && !stored.data) return <Loading what="the definition" />;
  const begin = stored.data ? written(stored.data.definition) : (sessionStorage.getItem(DRAFT) ?? FIRST);
  return <Editor key={`${workflow} ${version}`} begin={begin} isDraft={!workflow} />;
}

function useSettled<T>(value: T, pauseMs: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), pauseMs);
    return () => clearTimeout(timer);
  }, [value, pauseMs]);
  return settled;
}

/** The answer of the validate call: null while it is not known. */
function useProblems(text: string) {
  return useQuery({
    queryKey: ["validate", text],
    staleTime: 10_000,
    placeholderData: (old) => old,
    queryFn: async (): Promise<{ problems: ErrorItem[]; count: number }> => {
      try {
        const answer = await data(api.POST("/v1/validate", { body: text as never, bodySerializer: (body) => body as unknown as string, headers: { "Content-Type": "application/yaml" } }));
        return { problems: NO_PROBLEMS, count: answer.nodes };
      } catch (error) {
        if (!(error instanceof Problem) || (error.status !== 422 && error.status !== 400)) throw error;
        return { problems: error.errors.length ? error.errors : [{ loc: [], msg: error.message, code: error.code }], count: 0 };
      }
    },
  });
}

function Editor({ begin, isDraft }: { begin: string; isDraft: boolean }) {
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [text, setText] = useState(begin);
  const [jumpTo, setJumpTo] = useState<{ line: number; column: number } | null>(null);
  const [isRunning, setRunning] = useState(false);
  const settled = useSettled(text, PAUSE_MS);
  const definition = useMemo(() => read(settled), [settled]);
  const [nodes, setNodes] = useState(() => nodesOf(definition));
  useEffect(() => {
    if (isDraft) sessionStorage.setItem(DRAFT, settled);
    if (definition) setNodes(nodesOf(definition)); // a text that cannot be read leaves the last graph
  }, [settled, definition, isDraft]);
  const checked = useProblems(settled);
  const problems = checked.data?.problems ?? NO_PROBLEMS;
  const isValid = !!checked.data && !problems.length && !checked.error && settled === text;
  const faulty = useMemo(() => new Set(problems.flatMap((problem) => problem.node ?? [])), [problems]);
  const save = useMutation({
    mutationFn: () => data(api.POST("/v1/workflow", { body: settled as never, bodySerializer: (body) => body as unknown as string, headers: { "Content-Type": "application/yaml" } })),
    onSuccess: ({ name, version }) => {
      say(`${name} is stored as version ${version}. An execution of it waits to be started.`);
      void queries.invalidateQueries();
      void navigate({ to: "/workflows/$name", params: { name }, search: {} });
    },
    onError: sayProblem,
  });
  const find = (id: string | undefined) => {
    const at = id === undefined ? -1 : text.split("\n").findIndex((line) => new RegExp(`(^|[\\s{,-])["']?id["']?\\s*:\\s*["']?${id}["']?\\s*([,}#]|$)`).test(line));
    if (at >= 0) setJumpTo({ line: at + 1, column: 1 });
  };

  return (
    <div className="flex h-full flex-col">
      <header className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b px-4 py-2">
        <h1 className="text-base font-semibold">{typeof definition?.name === "string" ? visible(definition.name) : "New workflow"}</h1>
        <p role="status" className="flex items-center gap-1.5 text-xs">
          {isValid ? <><Check className="size-3.5 text-good" /><span className="text-good">Valid, {plural(checked.data!.count, "node")}</span></> : problems.length ? <><StateIcon status="FAILED" className="size-3" /><span className="text-bad">{plural(problems.length, "problem")}</span></> : <span className="text-ink-3">{checked.error ? checked.error.message : "Checking…"}</span>}
        </p>
        <div className="ml-auto flex gap-1.5">
          <Button disabled={!isValid || save.isPending} onClick={() => save.mutate()}>Save</Button>
          <Button look="primary" disabled={!isValid} onClick={() => setRunning(true)}><Play className="size-3.5" />Run…</Button>
        </div>
      </header>
      <div className="flex min-h-0 flex-1 max-md:flex-col">
        <div className="flex min-h-0 min-w-0 flex-1 flex-col">
          <div className="min-h-0 flex-1"><Suspense fallback={<Loading what="the editor" />}><CodeEditor begin={begin} problems={problems} jumpTo={jumpTo} onChange={setText} /></Suspense></div>
          {problems.length > 0 && (
            <ul aria-label="Problems" className="max-h-[35%] shrink-0 overflow-y-auto border-t bg-subtle py-1">
              {problems.map((problem, at) => (
                <li key={at}>
                  <button type="button" onClick={() => (problem.line ? setJumpTo({ line: problem.line, column: problem.column ?? 1 }) : find(problem.node ?? undefined))} className="grid w-full grid-cols-[1rem_3.5rem_1fr] items-baseline gap-2 px-4 py-0.5 text-left hover:bg-hover">
                    <StateIcon status="FAILED" className="size-3 translate-y-0.5" />
                    <span className="num font-mono text-xs text-ink-3">{problem.line ? `${problem.line}:${problem.column ?? 1}` : ""}</span>
                    <span className="data">{problem.node && <span className="font-mono text-xs">{problem.node}: </span>}{visible(problem.msg)}</span>
                  </button>
                </li>
              ))}
            </ul>
          )}
        </div>
        <section aria-label="Graph" className="relative min-h-0 min-w-0 flex-1 border-l bg-page max-md:max-h-[40%] max-md:border-t max-md:border-l-0">
          <Suspense fallback={<Loading what="the graph" />}><Graph nodes={nodes} problems={faulty} onSelect={find} /></Suspense>
        </section>
      </div>
      {isRunning && definition && <RunDialog title={`Run ${String(definition.name)}`} inputs={inputsOf(definition)} body={{ definition }} onClose={() => setRunning(false)} />}
    </div>
  );
}
