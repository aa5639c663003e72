/* What is drawn of a node, and of a group of alike ones. From afar that is its colour alone. */
import type { Node, NodeProps } from "@xyflow/react";
import { createContext, memo, type ReactNode, useContext } from "react";
import { look, NODE_STATUSES, StateIcon } from "../parts/State";
import { ms, span, useNow } from "../parts/time";
import type { Cluster } from "./clusters";
import type { GraphNode } from "./structure";

type NodeData = {
  node: GraphNode;
  isChosen: boolean;
  isCritical: boolean;
  hasProblem: boolean;
  onSelect: (id: string | undefined) => void;
};
type ClusterData = { cluster: Cluster; counts: string; isChosen: boolean; onOpen: (id: string) => void };
export type Drawn = Node<NodeData, "one"> | Node<ClusterData, "many">;

export const Far = createContext(false);

const One = memo(function One({ data }: NodeProps<Node<NodeData, "one">>) {
  const { node, isChosen, isCritical, hasProblem, onSelect } = data;
  const tone = node.status ? look(node.status).text : hasProblem ? "text-bad" : "text-idle";
  const isQuiet = node.status === "PENDING" || node.status === "SKIPPED";
  const marks = `${isChosen ? "is-chosen" : ""} ${isQuiet ? "is-quiet" : ""} ${hasProblem ? "has-problem" : ""}`;
  return (
    <Box
      className={`${tone} ${marks}`}
      label={`${node.id}${node.status ? `, ${look(node.status).word}` : ""}`}
      isPressed={isChosen}
      onClick={() => onSelect(node.id)}
    >
      {node.status && <StateIcon status={node.status} className="size-4" turns />}
      <span className="graph-label">
        <span className="flex items-center gap-1.5">
          <span className="truncate font-medium text-ink">{node.id}</span>
          {hasProblem && <span className="sr-only">has a problem</span>}
          {isCritical && <span title="On the critical path" className="size-1.5 shrink-0 rotate-45 bg-accent" />}
        </span>
        <span className="flex justify-between gap-2 text-2xs text-ink-3">
          <span className="truncate">{node.handler}</span>
          <Took node={node} />
        </span>
      </span>
    </Box>
  );
});

interface BoxProps {
  className: string;
  label: string;
  isPressed?: boolean;
  onClick: () => void;
  children: ReactNode;
}

function Box({ className, label, isPressed, onClick, children }: BoxProps) {
  const isFar = useContext(Far);
  return (
    <button
      type="button"
      title={isFar ? label : undefined}
      aria-label={isFar ? label : undefined}
      aria-pressed={isPressed}
      onClick={onClick}
      className={`graph-node ${isFar ? "is-far" : ""} ${className}`}
    >
      {!isFar && children}
    </button>
  );
}

function Took({ node }: { node: GraphNode }) {
  const started = ms(node.started_at);
  const isRunning = node.status === "RUNNING";
  const now = useNow(500, isRunning);
  if (node.status === "RETRYING") {
    return <span className="shrink-0 text-retrying">attempt {(node.attempt ?? 0) + 1} next</span>;
  }
  if (started === null || (!isRunning && !node.finished_at)) return null;
  return (
    <span className="num shrink-0">
      {(node.attempt ?? 1) > 1 && <span className="text-retrying">×{node.attempt} </span>}
      {span((isRunning ? now : ms(node.finished_at)!) - started)}
    </span>
  );
}

/** As a text, so that two of them are easily compared. */
export function countsOf(statuses: (string | undefined)[]): string {
  const counts = new Map<string | undefined, number>();
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1);
  return NODE_STATUSES.flatMap((status) => (counts.has(status) ? `${status}:${counts.get(status)}` : [])).join(" ");
}

const Many = memo(function Many({ data }: NodeProps<Node<ClusterData, "many">>) {
  const { cluster, counts, isChosen, onOpen } = data;
  const total = cluster.members.length;
  const shown = (counts ? counts.split(" ") : []).map((part) => {
    const [status = "", count] = part.split(":");
    return { status, count: Number(count) };
  });
  const first = shown[0]?.status; // the most urgent
  return (
    <Box
      className={`is-cluster ${first ? look(first).text : "text-idle"} ${isChosen ? "is-chosen" : ""}`}
      label={`${cluster.name}, ${total} nodes. Show them`}
      onClick={() => onOpen(cluster.id)}
    >
      <span className="graph-label">
        <span className="flex justify-between gap-2">
          <span className="truncate font-medium text-ink">{cluster.name}</span>
          <span className="num text-ink-2">×{total}</span>
        </span>
        <span className="my-0.5 flex h-1 overflow-hidden rounded-full bg-hover">
          {[...shown].reverse().map(({ status, count }) => (
            <span
              key={status}
              className={`bg-current ${look(status).text} ${status === "PENDING" ? "opacity-25" : ""}`}
              style={{ width: `${(100 * count) / total}%` }}
            />
          ))}
        </span>
        <span className="flex gap-2 text-2xs text-ink-3">
          {shown.slice(0, 4).map(({ status, count }) => (
            <span key={status} className="num inline-flex items-center gap-0.5">
              <StateIcon status={status} className="size-2.5" />
              {count}
            </span>
          ))}
        </span>
      </span>
    </Box>
  );
});

export const NODE_TYPES = { one: One, many: Many };
