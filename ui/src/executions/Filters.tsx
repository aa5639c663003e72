/* The filters of the list. They are in the address, so that a list can be sent to somebody. */
import { getRouteApi } from "@tanstack/react-router";
import { type ReactNode, type RefObject, useEffect, useRef, useState } from "react";
import { Button, FIELD } from "../parts/controls";
import { Close, Search } from "../parts/icons";
import { EXECUTION_STATUSES, look, StateIcon } from "../parts/State";
import { type ListSearch, SINCE, type Since } from "../router";
import { WorkflowSelect } from "../workflows/WorkflowSelect";

const route = getRouteApi("/executions");
const SINCE_WORDS: Record<Since, string> = {
  "15m": "Last 15 minutes",
  "1h": "Last hour",
  "24h": "Last 24 hours",
  "7d": "Last 7 days",
};

export function Filters({ search, field }: { search: ListSearch; field: RefObject<HTMLInputElement | null> }) {
  const navigate = route.useNavigate();
  const [text, setText] = useState(search.q ?? "");
  const sent = useRef(search.q);
  const set = (change: ListSearch) =>
    void navigate({ search: (old: ListSearch) => ({ ...old, ...change }), replace: true });
  // biome-ignore lint/correctness/useExhaustiveDependencies: only what was typed
  useEffect(() => {
    if (text === (search.q ?? "")) return;
    const timer = setTimeout(() => {
      sent.current = text.trim() || undefined;
      set({ q: sent.current });
    }, 250);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    if (search.q !== sent.current) setText(search.q ?? ""); // the address was changed from elsewhere
    sent.current = search.q;
  }, [search.q]);
  const isFiltered = search.status || search.workflow || search.q || search.since;
  return (
    <div role="search" className="flex flex-wrap items-center gap-2 px-4 py-2">
      <div className="flex max-w-full overflow-x-auto rounded-md border bg-subtle p-0.5">
        <Chip isOn={!search.status} onClick={() => set({ status: undefined })}>
          All
        </Chip>
        {EXECUTION_STATUSES.map((status) => (
          <Chip key={status} isOn={search.status === status} onClick={() => set({ status })}>
            <StateIcon status={status} className="size-3" />
            {look(status).word}
          </Chip>
        ))}
      </div>
      <WorkflowSelect name={search.workflow} onChoose={(workflow) => set({ workflow })} />
      <select
        aria-label="Time"
        value={search.since ?? ""}
        onChange={(event) => set({ since: (event.target.value || undefined) as Since | undefined })}
        className={FIELD}
      >
        <option value="">Any time</option>
        {SINCE.map((since) => (
          <option key={since} value={since}>
            {SINCE_WORDS[since]}
          </option>
        ))}
      </select>
      <label className="relative min-w-40 flex-1 md:max-w-72">
        <span className="sr-only">Search by id, workflow or error</span>
        <Search className="pointer-events-none absolute top-2 left-2 size-3.5 text-ink-3" />
        <input
          ref={field}
          type="search"
          maxLength={200}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => event.key === "Escape" && field.current?.blur()}
          placeholder="Id, workflow or error"
          className={`${FIELD} w-full pl-7`}
        />
      </label>
      {isFiltered && (
        <Button
          look="quiet"
          onClick={() => {
            setText("");
            set({ status: undefined, workflow: undefined, q: undefined, since: undefined });
          }}
        >
          <Close className="size-3.5" />
          Clear
        </Button>
      )}
    </div>
  );
}

function Chip({ isOn, onClick, children }: { isOn: boolean; onClick: () => void; children: ReactNode }) {
  return (
    <button
      type="button"
      aria-pressed={isOn}
      onClick={onClick}
      className={`flex h-6 items-center gap-1.5 rounded-[5px] px-2 text-xs font-medium whitespace-nowrap ${isOn ? "bg-raised shadow-sm ring-1 ring-edge/60" : "text-ink-2 hover:text-ink"}`}
    >
      {children}
    </button>
  );
}
