/* A definition being written: the text, the graph that it makes, and what is wrong with it, as one types. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { api, data, type ErrorItem, type Execution } from "../api/client";
import { Button, Loading } from "../parts/controls";
import { Check, Play } from "../parts/icons";
import { StateIcon } from "../parts/State";
import { plural, visible } from "../parts/text";
import { say, sayProblem } from "../parts/toasts";
import { inputsOf, lineOf, nodesOf, read } from "./definition";
import { RunDialog } from "./RunDialog";
import { asYaml, NO_PROBLEMS, useProblems, useSettled } from "./validation";

const Graph = lazy(() => import("../execution/Graph"));
const CodeEditor = lazy(() => import("./CodeEditor"));

interface Props {
  begin: string;
  origin?: Execution; // whose input the run form begins with
  letter?: string; // the dead letter that this is about
  onText?: (text: string) => void;
}

interface Place {
  line: number;
  column: number;
}

export function Editor({ begin, origin, letter, onText }: Props) {
  const [text, setText] = useState(begin);
  const [jumpTo, setJumpTo] = useState<Place | null>(null);
  const [isRunning, setRunning] = useState(false);
  const settled = useSettled(text);
  const definition = useMemo(() => read(settled), [settled]);
  const [nodes, setNodes] = useState(() => nodesOf(definition));
  useEffect(() => {
    onText?.(settled);
    if (definition) setNodes(nodesOf(definition)); // a text that cannot be read leaves the last graph
  }, [settled, definition, onText]);
  const checked = useProblems(settled);
  const problems = checked.data?.problems ?? NO_PROBLEMS;
  const isChecked = !!checked.data && !checked.isPlaceholderData && !checked.error && settled === text;
  const isValid = isChecked && !problems.length;
  const faulty = useMemo(() => new Set(problems.flatMap((problem) => problem.node ?? [])), [problems]);
  const save = useSave(settled);
  const find = (id: string | undefined) => {
    const line = id === undefined ? null : lineOf(id, text);
    if (line !== null) setJumpTo({ line, column: 1 });
  };
  const goTo = ({ line, column, node }: ErrorItem) =>
    line ? setJumpTo({ line, column: column ?? 1 }) : find(node ?? undefined);

  return (
    <div className="flex h-full flex-col">
      <header className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b px-4 py-2">
        <h1 className="text-base font-semibold">
          {typeof definition?.name === "string" ? visible(definition.name) : "New workflow"}
        </h1>
        <p role="status" className="flex items-center gap-1.5 text-xs">
          {isValid ? (
            <>
              <Check className="size-3.5 text-good" />
              <span className="text-good">Valid, {plural(checked.data!.count, "node")}</span>
            </>
          ) : problems.length ? (
            <>
              <StateIcon status="FAILED" className="size-3" />
              <span className="text-bad">{plural(problems.length, "problem")}</span>
            </>
          ) : (
            <span className="text-ink-3">{checked.error ? checked.error.message : "Checking…"}</span>
          )}
        </p>
        <div className="ml-auto flex gap-1.5">
          <Button disabled={!isValid || save.isPending} onClick={() => save.mutate()}>
            Save
          </Button>
          <Button look="primary" disabled={!isValid} onClick={() => setRunning(true)}>
            <Play className="size-3.5" />
            Run…
          </Button>
        </div>
      </header>
      {origin && <Note origin={origin} isLetter={letter !== undefined} />}
      <div className="flex min-h-0 flex-1 max-md:flex-col">
        <div className="flex min-h-0 min-w-0 flex-1 flex-col">
          <div className="min-h-0 flex-1">
            <Suspense fallback={<Loading what="the editor" />}>
              <CodeEditor begin={begin} problems={problems} jumpTo={jumpTo} onChange={setText} />
            </Suspense>
          </div>
          {problems.length > 0 && <Problems problems={problems} onChoose={goTo} />}
        </div>
        <section
          aria-label="Graph"
          className="relative min-h-0 min-w-0 flex-1 border-l bg-page max-md:max-h-[40%] max-md:border-t max-md:border-l-0"
        >
          <Suspense fallback={<Loading what="the graph" />}>
            <Graph nodes={nodes} problems={faulty} onSelect={find} />
          </Suspense>
        </section>
      </div>
      {isRunning && definition && (
        <RunDialog
          title={`Run ${String(definition.name)}`}
          inputs={inputsOf(definition)}
          body={{ definition }}
          given={origin?.input_params}
          letter={letter}
          onClose={() => setRunning(false)}
        />
      )}
    </div>
  );
}

function useSave(text: string) {
  const navigate = useNavigate();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: () => data(api.POST("/v1/workflow", asYaml(text))),
    onSuccess: ({ name, version }) => {
      say(`${name} is stored as version ${version}. An execution of it waits to be started.`);
      void queries.invalidateQueries();
      void navigate({ to: "/workflows/$name", params: { name }, search: {} });
    },
    onError: sayProblem,
  });
}

function Note({ origin, isLetter }: { origin: Execution; isLetter: boolean }) {
  return (
    <p className="border-b bg-accent-soft px-4 py-1.5 text-xs">
      This is the definition of <span className="font-mono">…{origin.execution_id.slice(-12)}</span>; the run form
      begins with its input. Running it starts a new execution, from the beginning, and leaves that one as it is.
      {isLetter && " The form offers to drop the dead letter."}
    </p>
  );
}

function Problems({ problems, onChoose }: { problems: ErrorItem[]; onChoose: (problem: ErrorItem) => void }) {
  return (
    <ul aria-label="Problems" className="max-h-[35%] shrink-0 overflow-y-auto border-t bg-subtle py-1">
      {problems.map((problem, at) => (
        <li key={at}>
          <button
            type="button"
            onClick={() => onChoose(problem)}
            className="grid w-full grid-cols-[1rem_3.5rem_1fr] items-baseline gap-2 px-4 py-0.5 text-left hover:bg-hover"
          >
            <StateIcon status="FAILED" className="size-3 translate-y-0.5" />
            <span className="num font-mono text-xs text-ink-3">
              {problem.line ? `${problem.line}:${problem.column ?? 1}` : ""}
            </span>
            <span className="data">
              {problem.node && <span className="font-mono text-xs">{visible(problem.node)}: </span>}
              {visible(problem.msg)}
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
