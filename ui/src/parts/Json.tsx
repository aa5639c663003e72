/* JSON as a tree. Only what is open is in the page, long texts and lists are cut, and everything is text. */
import { useState } from "react";
import { CopyButton } from "./controls";
import { Chevron } from "./icons";
import { plural, visible } from "./text";

const FIRST_ITEMS = 100;
const LONGEST_TEXT = 600;
const OPEN_ITEMS = 24; // how much an open branch may hold to be open from the beginning

export function Json({ value, label }: { value: unknown; label: string }) {
  return (
    <div
      role="group"
      aria-label={label}
      className="overflow-x-auto rounded-md border bg-subtle py-1.5 pr-2 pl-1 font-mono text-xs leading-5"
    >
      <Value value={value} depth={0} />
    </div>
  );
}

function Value({ name, value, depth }: { name?: string; value: unknown; depth: number }) {
  if (value !== null && typeof value === "object") return <Branch name={name} value={value} depth={depth} />;
  return (
    <div className="group flex items-start pl-4">
      <span className="min-w-0">
        {name !== undefined && <Name name={name} />}
        <Leaf value={value} />
      </span>
      {typeof value === "string" && value.length > 20 && (
        <span className="-my-0.5 opacity-0 group-focus-within:opacity-100 group-hover:opacity-100">
          <CopyButton text={value} label={`Copy ${name ?? "text"}`} />
        </span>
      )}
    </div>
  );
}

function Branch({ name, value, depth }: { name?: string; value: object; depth: number }) {
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  const [isOpen, setOpen] = useState(depth === 0 || (depth < 4 && entries.length <= OPEN_ITEMS));
  const [shown, setShown] = useState(FIRST_ITEMS);
  const [left, right] = isList ? "[]" : "{}";
  if (!entries.length)
    return (
      <div className="pl-4">
        {name !== undefined && <Name name={name} />}
        <span className="text-ink-3">
          {left}
          {right}
        </span>
      </div>
    );
  return (
    <div>
      <button
        type="button"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
        className="flex items-center rounded text-left hover:bg-hover"
      >
        <Chevron className={`size-4 p-0.5 text-ink-3 ${isOpen ? "rotate-90" : ""}`} />
        {name !== undefined && <Name name={name} />}
        <span className="text-ink-3">
          {left}
          {!isOpen && ` ${plural(entries.length, isList ? "item" : "field")} ${right}`}
        </span>
      </button>
      {isOpen && (
        <>
          <div className="ml-2 border-l pl-2">
            {entries.slice(0, shown).map(([key, item]) => (
              <Value key={key} name={isList ? undefined : key} value={item} depth={depth + 1} />
            ))}
            {entries.length > shown && (
              <button
                type="button"
                onClick={() => setShown(shown + FIRST_ITEMS * 5)}
                className="ml-4 text-accent hover:underline"
              >
                {(entries.length - shown).toLocaleString("en")} more…
              </button>
            )}
          </div>
          <div className="pl-4 text-ink-3">{right}</div>
        </>
      )}
    </div>
  );
}

function Name({ name }: { name: string }) {
  return (
    <>
      <span className="data text-ink-2">{visible(name)}</span>
      <span className="whitespace-pre text-ink-3">: </span>
    </>
  );
}

function Leaf({ value }: { value: unknown }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== "string") {
    return <span className={value === null ? "text-ink-3" : "text-queued"}>{String(value)}</span>;
  }
  const text = isWhole ? value : value.slice(0, LONGEST_TEXT);
  return (
    <span className="data whitespace-pre-wrap text-good">
      {visible(JSON.stringify(text)).replaceAll("\\n", "\\n\n").replace(/\n"$/, '"')}
      {text.length < value.length && (
        <button type="button" onClick={() => setWhole(true)} className="ml-1 font-sans text-accent hover:underline">
          all {value.length.toLocaleString("en")} characters
        </button>
      )}
    </span>
  );
}
