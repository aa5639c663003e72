/* What failed for good, grouped by what went wrong, with a way to set it right. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, data } from "../api/client";
import { Button, Empty, FIELD, Loading, Trouble } from "../parts/controls";
import { plural } from "../parts/text";
import { WorkflowSelect } from "../workflows/WorkflowSelect";
import { GroupCard } from "./GroupCard";
import { grouped } from "./groups";

const route = getRouteApi("/dead-letters");
const PAGE = 500;
const STATUSES = [
  ["", "Open"],
  ["RETRIED", "Retried"],
  ["DROPPED", "Dropped"],
  ["ALL", "All"],
] as const;

export default function LettersPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const list = useInfiniteQuery({
    queryKey: ["letters", search.status, search.workflow],
    refetchInterval: 5000,
    initialPageParam: "",
    queryFn: ({ pageParam }) =>
      data(
        api.GET("/v1/dlq", {
          params: {
            query: {
              limit: PAGE,
              cursor: pageParam,
              status: (search.status ?? "OPEN") as "OPEN",
              ...(search.workflow ? { workflow: search.workflow } : {}),
            },
          },
        }),
      ),
    getNextPageParam: (page) => page.next_cursor,
  });
  const letters = useMemo(() => (list.data?.pages ?? []).flatMap((page) => page.items), [list.data]);
  const groups = useMemo(() => grouped(letters), [letters]);
  const set = (change: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  return (
    <div className="flex h-full flex-col">
      <header className="flex flex-wrap items-center gap-2 px-4 pt-3 pb-2">
        <h1 className="mr-2 text-lg font-semibold tracking-tight">Dead letters</h1>
        <select
          aria-label="Status"
          value={search.status ?? ""}
          onChange={(event) => set({ status: event.target.value || undefined })}
          className={FIELD}
        >
          {STATUSES.map(([value, word]) => (
            <option key={value} value={value}>
              {word}
            </option>
          ))}
        </select>
        <WorkflowSelect name={search.workflow} onChoose={(workflow) => set({ workflow })} />
        {list.data && (
          <span className="num ml-auto text-xs text-ink-3">
            {plural(letters.length, "letter")}
            {list.hasNextPage && " so far"}, {plural(groups.length, "cause")}
          </span>
        )}
      </header>
      <div className="min-h-0 flex-1 overflow-y-auto border-t">
        {list.error && <Trouble error={list.error} onRetry={() => void list.refetch()} />}
        {list.isPending && <Loading what="dead letters" />}
        {list.data && !letters.length && (
          <Empty title="No dead letters">
            {search.status || search.workflow
              ? "None with these filters."
              : "Nothing has failed for good. What fails after all its retries, or cannot succeed, is kept here until somebody retries or drops it."}
          </Empty>
        )}
        {groups.map((group) => (
          <GroupCard key={group.key} group={group} chosen={search.letter} onChoose={(letter) => set({ letter })} />
        ))}
        {list.hasNextPage && (
          <p className="p-3 text-center">
            <Button disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
              Load more
            </Button>
          </p>
        )}
      </div>
    </div>
  );
}
