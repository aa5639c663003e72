/* Why something does not run: in the words of the server while it waits, and by what failed before it afterwards. */
import { useQuery } from "@tanstack/react-query";
import { api, data } from "../api/client";
import { ancestorsOf } from "./kin";
import type { Live, LiveNode } from "./live";
import { Neighbours } from "./Neighbours";

type Shown = NonNullable<Live["execution"]>;

/** Asked again while it waits. */
export function Why({ execution, node, mark }: { execution: Shown; node: string | null; mark: string }) {
  const { execution_id } = execution;
  const why = useQuery({
    queryKey: ["why", execution_id, mark],
    queryFn: () => data(api.GET("/v1/executions/{execution_id}/why", { params: { path: { execution_id } } })),
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
          <p className="data text-xs text-ink-2">
            {reason.do} <span className="font-mono text-2xs text-ink-3">{reason.cause}</span>
          </p>
        </div>
      ))}
    </section>
  );
}

/** What a skipped node would have needed. */
export function Skipped({
  execution,
  node,
  onSelect,
}: {
  execution: Shown;
  node: LiveNode;
  onSelect: (id: string) => void;
}) {
  const before = ancestorsOf(node.id, execution.nodes);
  const failed = execution.nodes.filter(({ id, status }) => status === "FAILED" && before.has(id));
  const cause = execution.status === "CANCELLED" ? "The execution was cancelled" : "The execution failed";
  return (
    <section aria-label="Why it did not run" className="flex flex-col gap-2 rounded-md border bg-subtle px-3 py-2">
      <p className="font-medium">
        {failed.length ? "It needs what has failed before it." : `${cause} before its turn.`}
      </p>
      <Neighbours name="Failed before it" nodes={failed} onSelect={onSelect} />
    </section>
  );
}
