/* All executions, live: filters, rows, and what one can do with many of them at once. */
import { getRouteApi } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { Empty, Loading, Trouble } from "../parts/controls";
import type { ListSearch } from "../router";
import { useKeys } from "../shell/keys";
import { HowToStart } from "../workflows/HowToStart";
import { NewWorkflow } from "../workflows/NewWorkflow";
import { BulkBar } from "./BulkBar";
import { Filters } from "./Filters";
import { useFeed } from "./feed";
import { Rows } from "./Rows";

const route = getRouteApi("/executions");
export default function ExecutionsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const feed = useFeed(search);
  const items = feed.items ?? [];
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [at, setAt] = useState<string | null>(null);
  const place = items.findIndex((item) => item.execution_id === at);
  const lastPick = useRef<string | null>(null);
  const field = useRef<HTMLInputElement>(null);

  const step = (by: number) =>
    setAt(items[Math.max(0, Math.min(items.length - 1, place < 0 ? 0 : place + by))]?.execution_id ?? null);
  const pick = (id: string, isRange = false) => {
    const from = items.findIndex((item) => item.execution_id === lastPick.current);
    const to = items.findIndex((item) => item.execution_id === id);
    const ids =
      isRange && from >= 0
        ? items.slice(Math.min(from, to), Math.max(from, to) + 1).map((item) => item.execution_id)
        : [id];
    const isOn = !picked.has(id);
    lastPick.current = id;
    setPicked((old) => {
      const next = new Set(old);
      for (const each of ids) isOn ? next.add(each) : next.delete(each);
      return next;
    });
  };
  useKeys({
    "/": () => field.current?.focus(),
    j: () => step(1),
    k: () => step(-1),
    x: () => at && pick(at),
    Enter: () => at && void navigate({ to: "/executions/$id", params: { id: at }, search: {} }),
    Escape: () => {
      setPicked(new Set());
      setAt(null);
    },
  });

  return (
    <div className="flex h-full flex-col">
      <header className="flex items-center gap-3 px-4 pt-3 pb-1">
        <h1 className="text-lg font-semibold tracking-tight">Executions</h1>
        <NewWorkflow />
      </header>
      <Filters search={search} field={field} />
      {feed.problem && feed.problem.status !== 401 && (
        <Trouble error={Object.assign(new Error(feed.problem.message), feed.problem)} />
      )}
      {feed.items === null && !feed.problem && <Loading what="executions" />}
      {feed.items?.length === 0 && <Nothing search={search} />}
      {items.length > 0 && (
        <Rows
          items={items}
          picked={picked}
          at={at}
          place={place}
          onPick={pick}
          onPickAll={() => setPicked(picked.size ? new Set() : new Set(items.map((item) => item.execution_id)))}
          feed={feed}
        />
      )}
      {picked.size > 0 && (
        <BulkBar items={items.filter((item) => picked.has(item.execution_id))} onClear={() => setPicked(new Set())} />
      )}
    </div>
  );
}

function Nothing({ search }: { search: ListSearch }) {
  if (search.status || search.workflow || search.q || search.since)
    return <Empty title="Nothing fits these filters">Widen them, or clear them.</Empty>;
  return (
    <Empty title="Nothing has run yet">
      <p>Start a workflow from a terminal, and it appears here at once:</p>
      <HowToStart />
    </Empty>
  );
}
