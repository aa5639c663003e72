/* Everything by name: pages, workflows, executions by id, and commands. */
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { api, data } from "../api/client";
import { Edit, Workflows } from "../parts/icons";
import { StateIcon } from "../parts/State";
import { nextTheme } from "./theme";

interface Entry {
  id: string;
  name: string;
  hint: string;
  icon?: ReactNode;
  run: () => void;
}

interface Props {
  pages: readonly {
    to: "/executions" | "/workflows" | "/dead-letters" | "/workers";
    name: string;
    Icon: (props: { className?: string }) => ReactNode;
  }[];
  onClose: () => void;
}

export function Palette({ pages, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const navigate = useNavigate();
  const wanted = text.trim().toLowerCase();
  const workflows = useQuery({
    queryKey: ["workflows"],
    queryFn: () => data(api.GET("/v1/workflows", { params: { query: { limit: 1000 } } })),
  });
  const found = useQuery({
    queryKey: ["executions", "palette", wanted],
    enabled: wanted.length >= 3,
    queryFn: () => data(api.GET("/v1/executions", { params: { query: { q: wanted, limit: 6 } } })),
  });
  useEffect(() => {
    if (!dialog.current?.open) dialog.current?.showModal();
  }, []);

  const entries: Entry[] = [
    ...pages.map(({ to, name, Icon }) => ({
      id: to,
      name,
      hint: "Page",
      icon: <Icon />,
      run: () => void navigate({ to }),
    })),
    {
      id: "new",
      name: "New workflow",
      hint: "Page",
      icon: <Edit />,
      run: () => void navigate({ to: "/edit", search: {} }),
    },
    { id: "theme", name: "Change colours", hint: "Command", run: nextTheme },
    ...(workflows.data?.items ?? []).map(({ name }) => ({
      id: `w ${name}`,
      name,
      hint: "Workflow",
      icon: <Workflows />,
      run: () => void navigate({ to: "/workflows/$name", params: { name }, search: {} }),
    })),
  ]
    .filter((entry) => entry.name.toLowerCase().includes(wanted))
    .slice(0, 12);
  for (const item of wanted.length >= 3 ? (found.data?.items ?? []) : []) {
    entries.push({
      id: item.execution_id,
      name: `${item.workflow} ${item.execution_id}`,
      hint: "Execution",
      icon: <StateIcon status={item.status} />,
      run: () => void navigate({ to: "/executions/$id", params: { id: item.execution_id }, search: {} }),
    });
  }
  const at = Math.min(chosen, entries.length - 1);

  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    dialog.current?.close();
    entry.run();
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.key === "ArrowDown") setChosen(Math.min(at + 1, entries.length - 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(at - 1, 0));
    else if (event.key === "Enter") run(entries[at]);
    else return;
    event.preventDefault();
  };

  return (
    <dialog
      ref={dialog}
      aria-label="Search and commands"
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && dialog.current.close()}
      className="mx-auto mt-[12vh] w-[calc(100vw-2rem)] max-w-xl overflow-hidden rounded-lg border border-edge bg-raised p-0 shadow-2xl"
    >
      <input
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={entries[at] ? `palette-${at}` : undefined}
        aria-label="Search pages, workflows and executions"
        placeholder="Search pages, workflows, executions…"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
        onKeyDown={onKeyDown}
        className="h-11 w-full border-b bg-transparent px-4 text-base outline-none placeholder:text-ink-3"
      />
      <ul id="palette-list" role="listbox" aria-label="Results" className="max-h-[50vh] overflow-y-auto p-1.5">
        {entries.map((entry, index) => (
          <li
            key={entry.id}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === at}
            onClick={() => run(entry)}
            onMouseMove={() => setChosen(index)}
            className={`flex h-8 cursor-pointer items-center gap-2.5 rounded-md px-2.5 ${index === at ? "bg-hover" : ""}`}
          >
            <span className="flex w-4 justify-center text-ink-3">{entry.icon}</span>
            <span className="data min-w-0 flex-1 truncate">{entry.name}</span>
            <span className="text-xs text-ink-3">{entry.hint}</span>
          </li>
        ))}
        {!entries.length && (
          <li role="option" aria-selected="false" aria-disabled="true" className="px-2.5 py-2 text-ink-3">
            Nothing found. Executions are found by id, workflow or error.
          </li>
        )}
      </ul>
    </dialog>
  );
}
