/* The next run of an ended execution, from a chosen node on. */
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, data } from "../api/client";
import { Button, Command, Dialog } from "../parts/controls";
import { Retry } from "../parts/icons";
import { plural } from "../parts/text";
import { say, sayProblem } from "../parts/toasts";
import { descendantsOf } from "./kin";
import type { Live } from "./live";

interface Props {
  execution: NonNullable<Live["execution"]>;
  node: string;
  again: () => void;
}

export function RetryFromHere({ execution, node, again }: Props) {
  const [isAsking, setAsking] = useState(false);
  return (
    <>
      <Button className="self-start" onClick={() => setAsking(true)}>
        <Retry className="size-3.5" />
        Retry from here…
      </Button>
      {isAsking && <Question execution={execution} node={node} again={again} onClose={() => setAsking(false)} />}
    </>
  );
}

/** Asked first: what runs again may cost money again. */
function Question({ execution, node, again, onClose }: Props & { onClose: () => void }) {
  const behind = descendantsOf(node, execution.nodes).size;
  const retry = useMutation({
    mutationFn: () => {
      const params = { path: { execution_id: execution.execution_id } };
      return data(api.POST("/v1/executions/{execution_id}/retry", { params, body: { from: [node] } }));
    },
    onSuccess: ({ run }) => say(`Run ${run} has started, from ${node} on.`),
    onError: sayProblem,
    onSettled: () => {
      onClose();
      again();
    },
  });
  return (
    <Dialog title={`Retry from ${node}`} onClose={onClose} className="max-w-md">
      <div className="flex flex-col gap-4 p-4">
        <p>
          Run {execution.run + 1} runs <span className="data font-mono text-xs font-semibold">{node}</span>
          {behind > 0 && ` and ${behind === 1 ? "the node" : `the ${plural(behind, "node")}`} behind it`} again
          {execution.status === "COMPLETED" ? "" : ", and whatever is not complete"}. Everything else keeps its output.
        </p>
        <Command>{`headrace executions retry ${execution.execution_id} --from ${node}`}</Command>
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Not now</Button>
          <Button look="primary" disabled={retry.isPending} onClick={() => retry.mutate()}>
            <Retry className="size-3.5" />
            Start run {execution.run + 1}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
