/* What one can do with an execution, and how to do the same from a terminal. */
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, BASE, data, type Execution } from "../api/client";
import { Button, Command, Dialog } from "../parts/controls";
import { Play, Retry, Stop } from "../parts/icons";
import { say, sayProblem } from "../parts/toasts";

type Shown = Pick<Execution, "execution_id" | "status" | "workflow" | "version" | "input_params">;

export function Actions({ execution, again }: { execution: Shown; again: () => void }) {
  const { execution_id: id, status } = execution;
  const [isCopying, setCopying] = useState(false);
  const path = { params: { path: { execution_id: id } } };
  const cancel = useMutation({
    mutationFn: () => data(api.POST("/v1/executions/{execution_id}/cancel", path)),
    onSuccess: () => say("It is being cancelled. What runs is told to stop."),
    onError: sayProblem,
  });
  const retry = useMutation({
    mutationFn: () => data(api.POST("/v1/executions/{execution_id}/retry", path)),
    onSuccess: ({ run }) => say(`Run ${run} has started. What was completed keeps its output.`),
    onError: sayProblem,
    onSettled: again,
  });
  const trigger = useMutation({
    mutationFn: () => data(api.POST("/v1/workflow/trigger/{execution_id}", { ...path, body: {} })),
    onSuccess: again,
    onError: sayProblem,
  });
  return (
    <>
      <Button look="quiet" onClick={() => setCopying(true)}>
        Copy as…
      </Button>
      {status === "PENDING" && (
        <Button look="primary" disabled={trigger.isPending} onClick={() => trigger.mutate()}>
          <Play className="size-3.5" />
          Start
        </Button>
      )}
      {status === "RUNNING" && (
        <Button look="danger" disabled={cancel.isPending} onClick={() => cancel.mutate()}>
          <Stop className="size-3.5" />
          Cancel
        </Button>
      )}
      {(status === "FAILED" || status === "CANCELLED") && (
        <Button look="primary" disabled={retry.isPending} onClick={() => retry.mutate()}>
          <Retry className="size-3.5" />
          Retry
        </Button>
      )}
      {isCopying && <CopyAs execution={execution} onClose={() => setCopying(false)} />}
    </>
  );
}

function CopyAs({ execution, onClose }: { execution: Shown; onClose: () => void }) {
  const { execution_id: id, workflow, version, input_params: input } = execution;
  const body = JSON.stringify({ workflow, ...(version ? { version } : {}), input_params: input });
  const server = BASE === "http://127.0.0.1:8080" ? "" : `HEADRACE_SERVER=${quoted(BASE)} `;
  return (
    <Dialog title="The same from a terminal" onClose={onClose} className="max-w-2xl">
      <div className="flex flex-col gap-4 p-4">
        <Ways
          name="Look at it"
          cli={`${server}headrace executions show ${id}`}
          curl={`curl ${quoted(`${BASE}/v1/executions/${id}`)}`}
        />
        <Ways
          name="Why does it wait?"
          cli={`${server}headrace why ${id}`}
          curl={`curl ${quoted(`${BASE}/v1/executions/${id}/why`)}`}
        />
        <Ways
          name="Start another one with the same input"
          curl={`curl ${quoted(`${BASE}/v1/executions`)} -H 'Content-Type: application/json' \\\n  -d ${quoted(body)}`}
        />
        <p className="text-xs text-ink-3">
          With API keys set: <code className="font-mono">HEADRACE_API_KEY</code> for the command line,{" "}
          <code className="font-mono">-H "Authorization: Bearer $KEY"</code> for curl.
        </p>
      </div>
    </Dialog>
  );
}

function Ways({ name, cli, curl }: { name: string; cli?: string; curl: string }) {
  return (
    <section className="flex flex-col gap-1.5">
      <h3 className="text-xs font-medium text-ink-2">{name}</h3>
      {cli && <Command>{cli}</Command>}
      <Command>{curl}</Command>
    </section>
  );
}

/** For a POSIX shell, whatever is in it. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
