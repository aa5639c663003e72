/* One cause with its letters, to be retried or dropped together. */
import { useState } from "react";
import { Button, Dialog } from "../parts/controls";
import { Chevron, Retry, Trash } from "../parts/icons";
import { plural, visible } from "../parts/text";
import { age, ms, useNow } from "../parts/time";
import { useLetterActions } from "./actions";
import type { Group } from "./groups";
import { LetterRow } from "./LetterRow";

const SHOWN = 200;

interface Props {
  group: Group;
  chosen: string | undefined;
  onChoose: (letter: string | undefined) => void;
}

export function GroupCard({ group, chosen, onChoose }: Props) {
  const { letters } = group;
  const [isOpen, setOpen] = useState(letters.some((letter) => letter.id === chosen));
  const { retry, drop, dropped, isBusy } = useLetterActions();
  const [isDropping, setDropping] = useState(false);
  const open = letters.filter((letter) => letter.status === "OPEN").map((letter) => letter.id);
  const now = useNow(10_000);
  return (
    <section className="border-b">
      <div className="flex items-start gap-2 px-4 py-2.5 hover:bg-subtle max-md:flex-wrap">
        <button
          type="button"
          aria-expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
          className="flex min-w-0 flex-1 items-start gap-2 text-left max-md:basis-full"
        >
          <Chevron className={`mt-0.5 size-4 text-ink-3 ${isOpen ? "rotate-90" : ""}`} />
          <span className="num mt-px min-w-7 rounded-full bg-hover px-1.5 text-center text-xs leading-4.5 font-medium">
            {letters.length}
          </span>
          <span className="min-w-0">
            <span className="data line-clamp-2 font-medium">
              {visible(group.message.slice(0, 400)) || "No message"}
            </span>
            <span className="flex flex-wrap gap-x-3 text-xs text-ink-3">
              <span className="font-mono text-bad">{group.cause}</span>
              <span className="data">{group.place}</span>
              <time>{age(now - ms(letters[0]!.created_at)!)}</time>
            </span>
          </span>
        </button>
        {open.length > 0 && (
          <span className="flex gap-1.5 max-md:ml-auto">
            <Button small disabled={isBusy} onClick={() => retry.mutate(open)}>
              <Retry className="size-3.5" />
              Retry {open.length > 1 ? `all ${open.length}` : ""}
            </Button>
            <Button
              small
              look="danger"
              disabled={isBusy}
              onClick={() => (open.length > 1 ? setDropping(true) : drop.mutate(open))}
            >
              <Trash className="size-3.5" />
              {drop.isPending
                ? `Dropped ${dropped} of ${open.length}`
                : open.length > 1
                  ? `Drop all ${open.length}…`
                  : "Drop"}
            </Button>
          </span>
        )}
      </div>
      {isOpen && (
        <ul className="border-t bg-subtle">
          {letters.slice(0, SHOWN).map((letter) => (
            <LetterRow key={letter.id} letter={letter} isChosen={letter.id === chosen} onChoose={onChoose} />
          ))}
          {letters.length > SHOWN && (
            <li className="px-12 py-2 text-xs text-ink-3">and {letters.length - SHOWN} more like these</li>
          )}
        </ul>
      )}
      {isDropping && (
        <DropMany
          count={open.length}
          onClose={() => setDropping(false)}
          onDrop={() => {
            setDropping(false);
            drop.mutate(open);
          }}
        />
      )}
    </section>
  );
}

function DropMany({ count, onDrop, onClose }: { count: number; onDrop: () => void; onClose: () => void }) {
  return (
    <Dialog title={`Drop ${plural(count, "letter")}?`} onClose={onClose} className="max-w-md">
      <div className="flex flex-col gap-4 p-4">
        <p>They are set aside for good and can no longer be retried from here. Their executions stay as they are.</p>
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Keep them</Button>
          <Button look="danger" onClick={onDrop}>
            <Trash className="size-3.5" />
            Drop {count}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
