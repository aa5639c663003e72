/* The chosen node in short: its state, its times, why it waits or was skipped, what stands around it. */
import type { ReactNode } from "react";
import { ErrorBox } from "../parts/ErrorBox";
import { hasEnded, State } from "../parts/State";
import { clock, full, isToday, ms, span, useNow } from "../parts/time";
import type { Live, LiveNode } from "./live";
import { Neighbours } from "./Neighbours";
import { RetryFromHere } from "./RetryFromHere";
import { Skipped, Why } from "./Why";

interface Props {
  execution: NonNullable<Live["execution"]>;
  node: LiveNode;
  onSelect: (id: string) => void;
  onTab: (tab: string) => void;
  again: () => void;
}

export function Summary({ execution, node, onSelect, onTab, again }: Props) {
  const isOver = hasEnded(execution.status);
  const parents = execution.nodes.filter((each) => node.dependencies.includes(each.id));
  const children = execution.nodes.filter((each) => each.dependencies.includes(node.id));
  const started = ms(node.started_at);
  const queued = ms(node.queued_at);
  const ended = ms(node.finished_at);
  const now = useNow(250, node.status === "RUNNING" || node.status === "QUEUED");
  return (
    <div className="flex flex-col gap-4">
      <dl className="grid grid-cols-[6rem_1fr] gap-y-1.5">
        <Row name="State">
          <State status={node.status} />
          {node.reason && <span className="text-ink-2"> · {node.reason.replaceAll("_", " ")}</span>}
        </Row>
        {node.attempt > 0 && <Row name="Attempt">{node.attempt}</Row>}
        {queued !== null && (
          <Row name="Queued">
            <Moment at={queued} />
          </Row>
        )}
        {queued !== null && (
          <Row name="Waited">
            <span className="num">{span((started ?? ended ?? now) - queued)}</span>
          </Row>
        )}
        {started !== null && (
          <Row name="Ran">
            <span className="num">{span((ended ?? now) - started)}</span>
          </Row>
        )}
        {ended !== null && (
          <Row name="Ended">
            <Moment at={ended} />
          </Row>
        )}
      </dl>
      {node.error && <ErrorBox error={node.error} />}
      {isOver && node.reason && <Skipped execution={execution} node={node} onSelect={onSelect} />}
      {!isOver && !hasEnded(node.status) && (
        <Why execution={execution} node={node.id} mark={`${node.status} ${node.attempt}`} />
      )}
      {node.status === "FAILED" && (
        <p className="text-xs text-ink-2">
          What it was given:{" "}
          <button type="button" className="text-accent hover:underline" onClick={() => onTab("config")}>
            Config
          </button>
          . What it said:{" "}
          <button type="button" className="text-accent hover:underline" onClick={() => onTab("logs")}>
            Logs
          </button>
          .
        </p>
      )}
      {isOver && <RetryFromHere execution={execution} node={node.id} again={again} />}
      <Neighbours name="Needs" nodes={parents} onSelect={onSelect} />
      <Neighbours name="Then" nodes={children} onSelect={onSelect} />
    </div>
  );
}

function Row({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt className="text-ink-3">{name}</dt>
      <dd className="min-w-0">{children}</dd>
    </>
  );
}

function Moment({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={full(at)} className="num">
      {isToday(at) ? clock(at) : full(at)}
    </time>
  );
}
