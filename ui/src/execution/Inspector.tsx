/* Beside the views: the chosen node, or the execution as a whole if none is chosen. */
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, data, type NodeDetails } from "../api/client";
import { Button, CopyButton, Loading, Trouble } from "../parts/controls";
import { Chevron, Close, Download } from "../parts/icons";
import { Json } from "../parts/Json";
import { hasEnded, State, StateIcon } from "../parts/State";
import { bytes, download, visible } from "../parts/text";
import { clock, full, isToday, ms, span, useNow } from "../parts/time";
import { detailsQuery } from "./attempts";
import { AttemptList, LogLines } from "./AttemptList";
import { ConfigView } from "./ConfigView";
import { Conversation } from "./Conversation";
import type { Live, LiveNode } from "./live";

type Shown = NonNullable<Live["execution"]>;
interface Props {
  execution: Shown;
  node: LiveNode | undefined;
  tab: string | undefined;
  onTab: (tab: string) => void;
  onSelect: (id: string | undefined) => void;
}

export function Inspector(props: Props) {
  return (
    <aside aria-label={props.node ? `Node ${props.node.id}` : "Execution"} className={`flex w-105 shrink-0 flex-col border-l bg-page max-xl:w-90 max-md:w-full max-md:border-t max-md:border-l-0 ${props.node ? "max-md:h-[62%]" : "max-md:h-[38%]"}`}>
      {props.node ? <NodePanel {...props} node={props.node} key={props.node.id} /> : <WholePanel {...props} />}
    </aside>
  );
}

function NodePanel({ execution, node, tab, onTab, onSelect }: Props & { node: LiveNode }) {
  const details = useQuery({ ...detailsQuery(execution.execution_id, node), placeholderData: (old) => old, refetchInterval: node.status === "RUNNING" ? 3000 : false });
  const isLlm = node.handler === "llm_service";
  const found = details.data;
  const tabs: [string, string, (() => ReactNode) | null][] = [
    ["summary", "Summary", () => <Summary execution={execution} node={node} onSelect={onSelect} onTab={onTab} />],
    ...(isLlm ? [["conversation", "Conversation", found ? () => <Conversation details={found} /> : null] as [string, string, (() => ReactNode) | null]] : []),
    ["config", "Config", found ? () => <ConfigView execution={execution} details={found} onSelect={onSelect} /> : null],
    ["output", "Output", found ? () => <Output details={found} execution={execution} /> : null],
    ["attempts", `Attempts${found && found.attempts.length > 1 ? ` ${found.attempts.length}` : ""}`, found ? () => <AttemptList attempts={found.attempts} /> : null],
    ["logs", "Logs", found ? () => <LogLines attempts={found.attempts} /> : null],
  ];
  const current = tabs.find(([name]) => name === tab) ?? tabs[0]!;
  return (
    <>
      <header className="flex items-center gap-2 py-2 pr-2 pl-4">
        <StateIcon status={node.status} className="size-4" />
        <h2 className="data min-w-0 truncate font-mono text-sm font-semibold">{node.id}</h2>
        <span className="truncate text-xs text-ink-3">{node.handler}</span>
        <span className="ml-auto flex"><CopyButton text={() => location.href} label="Copy a link to this node" /><Button look="quiet" small aria-label="Close the node" onClick={() => onSelect(undefined)}><Close /></Button></span>
      </header>
      <div role="tablist" aria-label="Parts of the node" className="flex gap-0.5 overflow-x-auto border-b px-2.5">
        {tabs.map(([name, label]) => (
          <button key={name} type="button" role="tab" aria-selected={current[0] === name} onClick={() => onTab(name)} className={`-mb-px border-b-2 px-1.5 pt-0.5 pb-1.5 text-xs font-medium whitespace-nowrap ${current[0] === name ? "border-accent text-ink" : "border-transparent text-ink-2 hover:text-ink"}`}>{label}</button>
        ))}
      </div>
      <div role="tabpanel" aria-label={current[1]} tabIndex={0} className="min-h-0 flex-1 overflow-y-auto p-4">
        {current[2] ? current[2]() : details.error ? <Trouble error={details.error} onRetry={() => void details.refetch()} /> : <Loading what="the node" />}
      </div>
    </>
  );
}

function Summary({ execution, node, onSelect, onTab }: { execution: Shown; node: LiveNode; onSelect: (id: string) => void; onTab: (tab: string) => void }) {
  const children = execution.nodes.filter((each) => each.dependencies.includes(node.id));
  const started = ms(node.started_at);
  const queued = ms(node.queued_at);
  const ended = ms(node.finished_at);
  const now = useNow(250, node.status === "RUNNING" || node.status === "QUEUED");
  return (
    <div className="flex flex-col gap-4">
      <dl className="grid grid-cols-[6rem_1fr] gap-y-1.5">
        <Row name="State"><State status={node.status} />{node.reason && <span className="text-ink-2"> · {node.reason.replaceAll("_", " ")}</span>}</Row>
        {node.attempt > 0 && <Row name="Attempt">{node.attempt}</Row>}
        {queued !== null && <Row name="Queued"><Moment at={queued} /></Row>}
        {queued !== null && <Row name="Waited"><span className="num">{span((started ?? ended ?? now) - queued)}</span></Row>}
        {started !== null && <Row name="Ran"><span className="num">{span((ended ?? now) - started)}</span></Row>}
        {ended !== null && <Row name="Ended"><Moment at={ended} /></Row>}
      </dl>
      {node.error && <ErrorBox error={node.error} />}
      {!hasEnded(node.status) && !hasEnded(execution.status) && <WhyBox execution={execution} node={node.id} mark={`${node.status} ${node.attempt}`} />}
      {node.status === "FAILED" && <p className="text-xs text-ink-2">What it was given: <button type="button" className="text-accent hover:underline" onClick={() => onTab("config")}>Config</button>. What it said: <button type="button" className="text-accent hover:underline" onClick={() => onTab("logs")}>Logs</button>.</p>}
      <Neighbours name="Waits for" nodes={node.dependencies.flatMap((id) => execution.nodes.find((each) => each.id === id) ?? [])} onSelect={onSelect} />
      <Neighbours name="Then" nodes={children} onSelect={onSelect} />
    </div>
  );
}

function Row({ name, children }: { name: string; children: ReactNode }) {
  return <><dt className="text-ink-3">{name}</dt><dd className="min-w-0">{children}</dd></>;
}

function Moment({ at }: { at: number }) {
  return <time dateTime={new Date(at).toISOString()} title={full(at)} className="num">{isToday(at) ? clock(at) : full(at)}</time>;
}

const FEW = 12;

function Neighbours({ name, nodes, onSelect }: { name: string; nodes: LiveNode[]; onSelect: (id: string) => void }) {
  const [isWhole, setWhole] = useState(false);
  if (!nodes.length) return null;
  const shown = isWhole ? nodes : nodes.slice(0, FEW);
  return (
    <section>
      <h3 className="mb-1 text-xs font-medium text-ink-3">{name}</h3>
      <ul className="flex flex-wrap gap-1">
        {shown.map((node) => <li key={node.id}><NodeLink node={node} onSelect={onSelect} /></li>)}
        {nodes.length > shown.length && <li><Button look="quiet" small onClick={() => setWhole(true)}>{nodes.length - shown.length} more</Button></li>}
      </ul>
    </section>
  );
}

export function NodeLink({ node, onSelect }: { node: Pick<LiveNode, "id" | "status">; onSelect: (id: string) => void }) {
  return (
    <button type="button" onClick={() => onSelect(node.id)} className="inline-flex h-6 items-center gap-1.5 rounded-md border bg-subtle px-1.5 font-mono text-xs hover:border-edge hover:bg-hover">
      <StateIcon status={node.status} className="size-3" />{node.id}
    </button>
  );
}

export function ErrorBox({ error }: { error: Record<string, unknown> }) {
  const { type, message, code, ...rest } = error;
  const details = Object.entries(rest).filter(([, value]) => value !== null && value !== undefined);
  const text = visible(typeof message === "string" ? message : JSON.stringify(message ?? ""));
  return (
    <section className="rounded-md border border-bad/40 bg-bad-soft">
      <header className="flex items-center gap-2 py-0.5 pr-1 pl-3 text-xs">
        <h3 className="font-semibold text-bad">{String(type ?? "Error")}</h3>
        {typeof code === "string" && <span className="font-mono text-ink-3">{code}</span>}
        <span className="ml-auto"><CopyButton text={() => JSON.stringify(error, null, 2)} label="Copy the error" /></span>
      </header>
      <pre className="data max-h-72 overflow-auto px-3 pb-2 font-mono text-xs whitespace-pre-wrap">{text}</pre>
      {details.length > 0 && <p className="data border-t border-bad/20 px-3 py-1.5 font-mono text-2xs text-ink-2">{details.map(([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : String(value)}`).join(" · ")}</p>}
    </section>
  );
}

/** Why it is not running, in the words of the server; asked again while it waits. */
function WhyBox({ execution, node, mark }: { execution: Shown; node: string | null; mark: string }) {
  const why = useQuery({
    queryKey: ["why", execution.execution_id, mark],
    queryFn: () => data(api.GET("/v1/executions/{execution_id}/why", { params: { path: { execution_id: execution.execution_id } } })),
    refetchInterval: 5000,
    placeholderData: (old) => old,
  });
  const reasons = why.data?.nodes.filter((reason) => reason.node === node || reason.node === null) ?? [];
  if (!reasons.length) return null;
  return (
    <section aria-label="Why it waits" className="flex flex-col gap-2 rounded-md border bg-subtle px-3 py-2">
      {reasons.map((reason) => (
        <div key={`${reason.node} ${reason.cause}`}>
          <p className="data font-medium first-letter:uppercase">{reason.why}</p>
          <p className="data text-xs text-ink-2">{reason.do} <span className="font-mono text-2xs text-ink-3">{reason.cause}</span></p>
        </div>
      ))}
    </section>
  );
}

function Output({ details, execution }: { details: NodeDetails; execution: Shown }) {
  if (details.output === null) return <p className="text-ink-3">{hasEnded(details.status) ? "It has no output." : "There is no output yet."}</p>;
  return <Document name={`${execution.workflow}-${details.id}`} label="Output" value={details.output} />;
}

export function Document({ name, label, value }: { name: string; label: string; value: unknown }) {
  const [text] = useState(() => ({ of: value, text: JSON.stringify(value, null, 2) }));
  const whole = text.of === value ? text.text : JSON.stringify(value, null, 2);
  return (
    <section className="flex flex-col gap-1.5">
      <header className="flex items-center gap-1">
        <h3 className="text-xs font-medium text-ink-3">{label}</h3>
        <span className="num ml-auto text-2xs text-ink-3">{bytes(whole.length)}</span>
        <CopyButton text={whole} label={`Copy: ${label}`} />
        <Button look="quiet" small title="Download" aria-label={`Download: ${label}`} onClick={() => download(`${name}.json`, whole)}><Download className="size-3.5" /></Button>
      </header>
      <Json value={value} label={label} />
    </section>
  );
}

function WholePanel({ execution, onSelect }: Props) {
  const failed = execution.nodes.filter((node) => node.status === "FAILED");
  const waiting = execution.nodes.filter((node) => node.status === "RUNNING" || node.status === "RETRYING" || node.status === "QUEUED");
  return (
    <div tabIndex={0} role="group" aria-label="About the execution" className="flex min-h-0 flex-1 flex-col gap-5 overflow-y-auto p-4">
      {execution.error && <ErrorBox error={execution.error} />}
      <Neighbours name="Failed" nodes={failed} onSelect={onSelect} />
      <Neighbours name="At work" nodes={waiting} onSelect={onSelect} />
      {!hasEnded(execution.status) && <WhyBox execution={execution} node={null} mark={execution.status} />}
      {execution.output !== null && <Document name={`${execution.workflow}-output`} label="Output" value={execution.output} />}
      <Document name={`${execution.workflow}-input`} label="Input" value={execution.input_params} />
      <p className="flex items-center gap-1 text-xs text-ink-3"><Chevron className="size-3" />Choose a node to see its config, output, attempts and logs.</p>
    </div>
  );
}
