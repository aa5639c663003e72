/* One dead letter: which task it was, what went wrong, and what can be done about it. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, data, type Letter } from "../api/client";
import { Button, Trouble } from "../parts/controls";
import { Document } from "../parts/Document";
import { ErrorBox } from "../parts/ErrorBox";
import { Chevron, Edit, Retry, Trash } from "../parts/icons";
import { age, full, ms, useNow } from "../parts/time";
import { useLetterActions } from "./actions";

interface Props {
  letter: Letter;
  isChosen: boolean;
  onChoose: (letter: string | undefined) => void;
}

export function LetterRow({ letter, isChosen, onChoose }: Props) {
  const now = useNow(10_000);
  const created = ms(letter.created_at)!;
  return (
    <li className="border-b last:border-0">
      <div
        className={`flex flex-wrap items-center gap-x-3 py-1 pr-4 pl-10 max-md:pl-4 ${isChosen ? "bg-accent-soft" : "hover:bg-hover"}`}
      >
        <button
          type="button"
          aria-expanded={isChosen}
          onClick={() => onChoose(isChosen ? undefined : letter.id)}
          className="flex min-w-0 flex-1 items-center gap-3 text-left text-xs whitespace-nowrap"
        >
          <Chevron className={`size-3.5 text-ink-3 ${isChosen ? "rotate-90" : ""}`} />
          <span className="font-mono text-ink-2">…{letter.execution_id.slice(-12)}</span>
          <span className="num text-ink-3">
            run {letter.run}, attempt {letter.attempt}
          </span>
          {letter.status !== "OPEN" && <span className="text-ink-3">{letter.status.toLowerCase()}</span>}
          <time dateTime={letter.created_at} title={full(created)} className="num ml-auto text-ink-3 max-md:hidden">
            {age(now - created)}
          </time>
        </button>
        <Link
          to="/executions/$id"
          params={{ id: letter.execution_id }}
          search={{ node: letter.node }}
          className="text-xs text-accent hover:underline"
        >
          Execution
        </Link>
      </div>
      {isChosen && <Details letter={letter} />}
    </li>
  );
}

function Details({ letter }: { letter: Letter }) {
  const { retry, drop, isBusy } = useLetterActions();
  const details = useQuery({
    queryKey: ["letter", letter.id],
    queryFn: () => data(api.GET("/v1/dlq/{letter_id}", { params: { path: { letter_id: letter.id } } })),
  });
  const isOpen = letter.status === "OPEN";
  return (
    <div className="flex flex-col gap-3 border-t bg-page px-4 py-3 md:pl-16">
      <ErrorBox error={letter.error} />
      {details.error && <Trouble error={details.error} />}
      {details.data && (
        <Document
          name={`${letter.workflow}-${letter.node}-task`}
          label={`What ${details.data.task.handler} was given`}
          value={details.data.task.config ?? {}}
        />
      )}
      <div className="flex flex-wrap gap-2">
        {isOpen && (
          <Button look="primary" disabled={isBusy} onClick={() => retry.mutate([letter.id])}>
            <Retry className="size-3.5" />
            Retry
          </Button>
        )}
        <Link to="/edit" search={{ execution: letter.execution_id, letter: isOpen ? letter.id : undefined }}>
          <Button tabIndex={-1}>
            <Edit className="size-3.5" />
            Edit and retry…
          </Button>
        </Link>
        {isOpen && (
          <Button look="danger" disabled={isBusy} onClick={() => drop.mutate([letter.id])}>
            <Trash className="size-3.5" />
            Drop
          </Button>
        )}
      </div>
      <p className="text-xs text-ink-3">
        <b className="font-medium">Retry</b> is the next run of the same execution: what was completed keeps its output.{" "}
        <b className="font-medium">Edit and retry</b> opens the definition and the input in the editor; running them
        starts a new execution, and this letter can be dropped then. Dropping needs a key with the scope admin.
      </p>
    </div>
  );
}
