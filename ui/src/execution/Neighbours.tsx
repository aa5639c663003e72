/* Nodes by name, to go to. */
import { useState } from "react";
import { Button } from "../parts/controls";
import { StateIcon } from "../parts/State";
import type { LiveNode } from "./live";

const FEW = 12;

export function Neighbours({
  name,
  nodes,
  onSelect,
}: {
  name: string;
  nodes: LiveNode[];
  onSelect: (id: string) => void;
}) {
  const [isWhole, setWhole] = useState(false);
  if (!nodes.length) return null;
  const shown = isWhole ? nodes : nodes.slice(0, FEW);
  return (
    <section>
      <h3 className="mb-1 text-xs font-medium text-ink-3">{name}</h3>
      <ul className="flex flex-wrap gap-1">
        {shown.map((node) => (
          <li key={node.id}>
            <NodeLink node={node} onSelect={onSelect} />
          </li>
        ))}
        {nodes.length > shown.length && (
          <li>
            <Button look="quiet" small onClick={() => setWhole(true)}>
              {nodes.length - shown.length} more
            </Button>
          </li>
        )}
      </ul>
    </section>
  );
}

function NodeLink({ node, onSelect }: { node: Pick<LiveNode, "id" | "status">; onSelect: (id: string) => void }) {
  return (
    <button
      type="button"
      onClick={() => onSelect(node.id)}
      className="inline-flex h-6 items-center gap-1.5 rounded-md border bg-subtle px-1.5 font-mono text-xs hover:border-edge hover:bg-hover"
    >
      <StateIcon status={node.status} className="size-3" />
      {node.id}
    </button>
  );
}
