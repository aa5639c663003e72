/* All workflows, by name. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { api, data } from "../api/client";
import { Button, Empty, FIELD, Loading, Trouble } from "../parts/controls";
import { Play } from "../parts/icons";
import { age, full, ms, useNow } from "../parts/time";
import { useKeys } from "../shell/keys";
import { HowToStart } from "./HowToStart";
import { NewWorkflow } from "./NewWorkflow";

const COLUMNS =
  "grid grid-cols-[minmax(0,1fr)_5rem_7rem_9rem] items-center gap-x-3 px-4 max-md:grid-cols-[minmax(0,1fr)_3rem_auto]";

export default function WorkflowsPage() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  const navigate = useNavigate();
  const now = useNow(10_000);
  const list = useInfiniteQuery({
    queryKey: ["workflows", "pages"],
    initialPageParam: "",
    queryFn: ({ pageParam }) =>
      data(api.GET("/v1/workflows", { params: { query: { limit: 200, cursor: pageParam } } })),
    getNextPageParam: (page) => page.next_cursor,
  });
  const items = (list.data?.pages ?? [])
    .flatMap((page) => page.items)
    .filter((item) => item.name.includes(text.trim().toLowerCase()));
  const step = (by: number) => setAt(Math.max(0, Math.min(items.length - 1, at + by)));
  useKeys({
    "/": () => field.current?.focus(),
    j: () => step(1),
    k: () => step(-1),
    Enter: () => items[at] && void navigate({ to: "/workflows/$name", params: { name: items[at].name }, search: {} }),
  });
  return (
    <div className="flex h-full flex-col">
      <header className="flex items-center gap-3 px-4 pt-3 pb-2">
        <h1 className="text-lg font-semibold tracking-tight">Workflows</h1>
        <input
          ref={field}
          type="search"
          aria-label="Search workflows"
          placeholder="Search"
          value={text}
          onChange={(event) => setText(event.target.value)}
          className={`${FIELD} w-48 min-w-0 max-md:flex-1`}
        />
        <NewWorkflow />
      </header>
      {list.error && <Trouble error={list.error} onRetry={() => void list.refetch()} />}
      {list.isPending && <Loading what="workflows" />}
      {list.data &&
        !items.length &&
        (text ? (
          <Empty title="No workflow has this name" />
        ) : (
          <Empty title="There are no workflows yet">
            <p>A workflow is stored when it is first submitted:</p>
            <HowToStart />
          </Empty>
        ))}
      {items.length > 0 && (
        <>
          <div className={`${COLUMNS} h-7 border-y bg-subtle text-2xs font-medium text-ink-3`}>
            <span>Name</span>
            <span>Version</span>
            <span className="max-md:hidden">Changed</span>
            <span />
          </div>
          <ul className="min-h-0 flex-1 overflow-y-auto">
            {items.map((item, index) => (
              <li
                key={item.name}
                className={`${COLUMNS} relative h-9.5 border-b hover:bg-subtle ${index === at ? "bg-hover shadow-[inset_2px_0_var(--color-accent)]" : ""}`}
              >
                <Link
                  to="/workflows/$name"
                  params={{ name: item.name }}
                  search={{}}
                  className="truncate font-medium after:absolute after:inset-0"
                >
                  {item.name}
                </Link>
                <span className="num text-xs text-ink-2">v{item.version}</span>
                <time
                  dateTime={item.created_at}
                  title={full(ms(item.created_at)!)}
                  className="num text-xs text-ink-3 max-md:hidden"
                >
                  {age(now - ms(item.created_at)!)}
                </time>
                <span className="relative z-1 flex justify-end gap-1">
                  <Link
                    to="/executions"
                    search={{ workflow: item.name }}
                    className="rounded px-1.5 py-0.5 text-xs text-ink-2 hover:bg-hover hover:text-ink max-md:hidden"
                  >
                    Executions
                  </Link>
                  <Link
                    to="/workflows/$name"
                    params={{ name: item.name }}
                    search={{ run: true }}
                    aria-label={`Run ${item.name}`}
                    className="rounded p-1 text-ink-2 hover:bg-hover hover:text-ink"
                  >
                    <Play className="size-3.5" />
                  </Link>
                </span>
              </li>
            ))}
            {list.hasNextPage && (
              <li className="p-3 text-center">
                <Button disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
                  More
                </Button>
              </li>
            )}
          </ul>
        </>
      )}
    </div>
  );
}
