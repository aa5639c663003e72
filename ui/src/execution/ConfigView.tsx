/* The config of a node as it was written beside what the worker got, with links to the nodes that values came from. */
import { useQuery } from "@tanstack/react-query";
import { api, data, type NodeDetails } from "../api/client";
import { Document } from "../parts/Document";
import { Json } from "../parts/Json";
import { visible } from "../parts/text";
import { ancestorsOf } from "./kin";
import type { Live } from "./live";
import { pieces } from "./references";

interface Props {
  execution: NonNullable<Live["execution"]>;
  details: NodeDetails;
  onSelect: (id: string) => void;
}

interface Written {
  id: string;
  config?: Record<string, unknown>;
}

export function ConfigView({ execution, details, onSelect }: Props) {
  const { workflow, version } = execution;
  const definition = useQuery({
    queryKey: ["definition", workflow, version],
    enabled: version !== null,
    staleTime: Infinity, // a version never changes
    queryFn: () =>
      data(
        api.GET("/v1/workflows/{name}/versions/{version}", {
          params: { path: { name: workflow, version: String(version) } },
        }),
      ),
  });
  const nodes = (definition.data?.definition.nodes ?? []) as Written[];
  const written = nodes.find((node) => node.id === details.id)?.config ?? {};
  const known = ancestorsOf(details.id, execution.nodes);
  const templated = Object.entries(written).filter(([, value]) => hasTemplate(value));
  if (!Object.keys(written).length && !Object.keys(details.config ?? {}).length)
    return <p className="text-ink-3">This node has no config.</p>;
  return (
    <div className="flex flex-col gap-5">
      {details.config === null && (
        <p className="rounded-md border bg-subtle px-3 py-2 text-ink-2">
          It cannot be rendered yet: an output that it reads is not there.
        </p>
      )}
      {templated.map(([key, template]) => (
        <section key={key}>
          <h3 className="data mb-1 font-mono text-xs font-semibold">{visible(key)}</h3>
          <div className="overflow-hidden rounded-md border">
            <div className="data border-b bg-subtle px-2.5 py-1.5 font-mono text-xs whitespace-pre-wrap text-ink-2">
              <Template value={template} known={known} onSelect={onSelect} />
            </div>
            {details.config && key in details.config && (
              <div className="p-1.5">
                <Json value={details.config[key]} label={`${key}, resolved`} />
              </div>
            )}
          </div>
        </section>
      ))}
      {details.config && (
        <Document
          name={`${workflow}-${details.id}-config`}
          label={templated.length ? "Whole config, as the worker gets it" : "Config"}
          value={details.config}
        />
      )}
    </div>
  );
}

function hasTemplate(value: unknown): boolean {
  if (typeof value === "string") return value.includes("{{") || value.includes("{%");
  return value !== null && typeof value === "object" && Object.values(value).some(hasTemplate);
}

function Template({ value, known, onSelect }: { value: unknown; known: Set<string>; onSelect: (id: string) => void }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return pieces(text, known).map((piece, at) =>
    piece.node ? (
      <button
        key={at}
        type="button"
        title={`Output of ${piece.node}`}
        onClick={() => onSelect(piece.node!)}
        className="rounded-sm bg-accent-soft px-0.5 font-medium text-accent hover:underline"
      >
        {piece.text}
      </button>
    ) : (
      <span key={at}>{visible(piece.text)}</span>
    ),
  );
}
