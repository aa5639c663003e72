/* Beside the views: the chosen node, or the execution as a whole if none is chosen. */
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, data, type NodeDetails } from "../api/client";
import { Button, CopyButton, Loading, Trouble } from "../parts/controls";
import { Document } from "../parts/Document";
import { ErrorBox } from "../parts/ErrorBox";
import { Chevron, Close } from "../parts/icons";
import { hasEnded, StateIcon } from "../parts/State";
import { AttemptList, LogLines } from "./AttemptList";
import { ConfigView } from "./ConfigView";
import { Conversation } from "./Conversation";
import type { Live, LiveNode } from "./live";
import { Neighbours } from "./Neighbours";
import { Summary } from "./Summary";
import { Why } from "./Why";

type Shown = NonNullable<Live["execution"]>;
interface Props {
  execution: Shown;
  node: LiveNode | undefined;
  tab: string | undefined;
  onTab: (tab: string) => void;
  onSelect: (id: string | undefined) => void;
  again: () => void; // follow it anew
}

export function Inspector(props: Props) {
  return (
    <aside
      aria-label={props.node ? `Node ${props.node.id}` : "Execution"}
      className={`flex w-105 shrink-0 flex-col border-l bg-page max-xl:w-90 max-md:w-full max-md:border-t max-md:border-l-0 ${props.node ? "max-md:h-[62%]" : "max-md:h-[38%]"}`}
    >
      {props.node ? <NodePanel {...props} node={props.node} key={props.node.id} /> : <WholePanel {...props} />}
    </aside>
  );
}

interface Tab {
  name: string;
  label: string;
  show?: () => ReactNode; // none: it is not known yet
}

function NodePanel({ execution, node, tab, onTab, onSelect, again }: Props & { node: LiveNode }) {
  const details = useDetails(execution, node);
  const found = details.data;
  const count = found && found.attempts.length > 1 ? ` ${found.attempts.length}` : "";
  const tabs: Tab[] = [
    {
      name: "summary",
      label: "Summary",
      show: () => <Summary execution={execution} node={node} onSelect={onSelect} onTab={onTab} again={again} />,
    },
    { name: "conversation", label: "Conversation", show: found && (() => <Conversation details={found} />) },
    {
      name: "config",
      label: "Config",
      show: found && (() => <ConfigView execution={execution} details={found} onSelect={onSelect} />),
    },
    { name: "output", label: "Output", show: found && (() => <Output details={found} execution={execution} />) },
    { name: "attempts", label: `Attempts${count}`, show: found && (() => <AttemptList attempts={found.attempts} />) },
    { name: "logs", label: "Logs", show: found && (() => <LogLines attempts={found.attempts} />) },
  ].filter(({ name }) => name !== "conversation" || node.handler === "llm_service");
  const current = tabs.find(({ name }) => name === tab) ?? tabs[0]!;
  return (
    <>
      <header className="flex items-center gap-2 py-2 pr-2 pl-4">
        <StateIcon status={node.status} className="size-4" turns />
        <h2 className="data min-w-0 truncate font-mono text-sm font-semibold">{node.id}</h2>
        <span className="truncate text-xs text-ink-3">{node.handler}</span>
        <span className="ml-auto flex">
          <CopyButton text={() => location.href} label="Copy a link to this node" />
          <Button look="quiet" small aria-label="Close the node" onClick={() => onSelect(undefined)}>
            <Close />
          </Button>
        </span>
      </header>
      <div role="tablist" aria-label="Parts of the node" className="flex gap-0.5 overflow-x-auto border-b px-2.5">
        {tabs.map(({ name, label }) => (
          <button
            key={name}
            type="button"
            role="tab"
            aria-selected={current.name === name}
            onClick={() => onTab(name)}
            className={`-mb-px border-b-2 px-1.5 pt-0.5 pb-1.5 text-xs font-medium whitespace-nowrap ${current.name === name ? "border-accent text-ink" : "border-transparent text-ink-2 hover:text-ink"}`}
          >
            {label}
          </button>
        ))}
      </div>
      <div role="tabpanel" aria-label={current.label} tabIndex={0} className="min-h-0 flex-1 overflow-y-auto p-4">
        {current.show ? (
          current.show()
        ) : details.error ? (
          <Trouble error={details.error} onRetry={() => void details.refetch()} />
        ) : (
          <Loading what="the node" />
        )}
      </div>
    </>
  );
}

/** A change makes it a new query. Attempts are archived a moment after the node has changed, so it is asked again. */
function useDetails({ execution_id, status, run }: Shown, node: LiveNode) {
  const isOver = hasEnded(status);
  const params = { path: { execution_id, node: node.id } };
  return useQuery({
    queryKey: ["node", execution_id, node.id, node.status, node.attempt, node.finished_at, run, isOver],
    queryFn: () => data(api.GET("/v1/executions/{execution_id}/nodes/{node}", { params })),
    staleTime: isOver ? 60_000 : 1000,
    placeholderData: (old) => old,
    refetchInterval: isOver ? false : 3000,
  });
}

function Output({ details, execution }: { details: NodeDetails; execution: Shown }) {
  if (details.output === null)
    return <p className="text-ink-3">{hasEnded(details.status) ? "It has no output." : "There is no output yet."}</p>;
  return <Document name={`${execution.workflow}-${details.id}`} label="Output" value={details.output} />;
}

function WholePanel({ execution, onSelect }: Props) {
  const failed = execution.nodes.filter((node) => node.status === "FAILED");
  const waiting = execution.nodes.filter(
    (node) => node.status === "RUNNING" || node.status === "RETRYING" || node.status === "QUEUED",
  );
  return (
    <div
      tabIndex={0}
      role="group"
      aria-label="About the execution"
      className="flex min-h-0 flex-1 flex-col gap-5 overflow-y-auto p-4"
    >
      {execution.error && <ErrorBox error={execution.error} />}
      <Neighbours name="Failed" nodes={failed} onSelect={onSelect} />
      <Neighbours name="At work" nodes={waiting} onSelect={onSelect} />
      {!hasEnded(execution.status) && <Why execution={execution} node={null} mark={execution.status} />}
      {execution.output !== null && (
        <Document name={`${execution.workflow}-output`} label="Output" value={execution.output} />
      )}
      <Document name={`${execution.workflow}-input`} label="Input" value={execution.input_params} />
      <p className="flex items-center gap-1 text-xs text-ink-3">
        <Chevron className="size-3" />
        Choose a node to see its config, output, attempts and logs.
      </p>
    </div>
  );
}
