/* The frame of every page: where one can go, what the connection does, and the dialogs that belong to no page. */
import { Link, Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { Suspense, useState } from "react";
import { connection } from "../api/connection";
import { apiKey } from "../api/key";
import { Button, Dialog, Loading } from "../parts/controls";
import { Auto, Executions, Key, Letters, Moon, Search, Sun, Workers, Workflows } from "../parts/icons";
import { useStore } from "../parts/store";
import { Toasts } from "../parts/toasts";
import { askForKey, KeyPrompt } from "./KeyPrompt";
import { SHORTCUTS, useKeys } from "./keys";
import { Palette } from "./Palette";
import { nextTheme, theme } from "./theme";

const PAGES = [
  { to: "/executions", name: "Executions", short: "Runs", Icon: Executions, key: "g e" },
  { to: "/workflows", name: "Workflows", short: "Workflows", Icon: Workflows, key: "g w" },
  { to: "/dead-letters", name: "Dead letters", short: "Letters", Icon: Letters, key: "g d" },
  { to: "/workers", name: "Workers & queues", short: "Workers", Icon: Workers, key: "g q" },
] as const;

const THEME_ICON = { system: Auto, light: Sun, dark: Moon };

export function Layout() {
  const navigate = useNavigate();
  const [isFinding, setFinding] = useState(false);
  const [isHelping, setHelping] = useState(false);
  useKeys({
    "mod+k": () => setFinding(true),
    "?": () => setHelping(true),
    t: nextTheme,
    ...Object.fromEntries(PAGES.map((page) => [page.key, () => void navigate({ to: page.to })])),
  });
  return (
    <div className="flex h-full max-md:flex-col">
      <a
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
        className="sr-only z-50 rounded bg-raised px-3 py-2 focus:not-sr-only focus:absolute"
      >
        Skip to the content
      </a>
      <Sidebar onFind={() => setFinding(true)} onHelp={() => setHelping(true)} />
      <div className="flex min-h-0 min-w-0 flex-1 flex-col">
        <Connection />
        <main id="main" tabIndex={-1} className="min-h-0 min-w-0 flex-1 outline-none">
          <Suspense fallback={<Loading what="the page" />}>
            <Outlet />
          </Suspense>
        </main>
      </div>
      <TabBar />
      {isFinding && <Palette pages={PAGES} onClose={() => setFinding(false)} />}
      {isHelping && <Help onClose={() => setHelping(false)} />}
      <KeyPrompt />
      <Toasts />
    </div>
  );
}

function useSection(): string {
  const path = useRouterState({ select: (state) => state.location.pathname });
  return path.startsWith("/edit") ? "/workflows" : `/${path.split("/")[1]}`;
}

function Sidebar({ onFind, onHelp }: { onFind: () => void; onHelp: () => void }) {
  const section = useSection();
  const chosen = useStore(theme);
  const ThemeIcon = THEME_ICON[chosen];
  return (
    <header className="flex w-50 shrink-0 flex-col border-r bg-subtle max-lg:w-13 max-md:w-full max-md:flex-row max-md:items-center max-md:border-r-0 max-md:border-b">
      <Link
        to="/executions"
        className="flex h-12 items-center gap-2.5 px-3.5 text-[0.9375rem] font-semibold tracking-tight"
      >
        <img src="./icon.svg" alt="" className="size-5.5" />
        <span className="max-lg:hidden max-md:inline">Headrace</span>
      </Link>
      <nav aria-label="Pages" className="flex flex-col gap-0.5 px-2 max-md:hidden">
        <button
          type="button"
          onClick={onFind}
          title="Search and commands"
          className="mb-2 flex h-7.5 items-center gap-2.5 rounded-md border bg-page px-2 text-ink-3 hover:border-edge"
        >
          <Search />
          <span className="max-lg:sr-only">Search…</span>
          <kbd aria-hidden="true" className="ml-auto font-sans text-2xs max-lg:hidden">
            ⌘K
          </kbd>
        </button>
        {PAGES.map(({ to, name, Icon }) => (
          <Link
            key={to}
            to={to}
            title={name}
            aria-current={section === to ? "page" : undefined}
            className={`flex h-7.5 items-center gap-2.5 rounded-md px-2 font-medium ${section === to ? "bg-hover text-ink" : "text-ink-2 hover:bg-hover hover:text-ink"}`}
          >
            <Icon />
            <span className="max-lg:sr-only">{name}</span>
          </Link>
        ))}
      </nav>
      <div className="mt-auto flex gap-0.5 p-2 max-lg:flex-col max-md:mt-0 max-md:ml-auto max-md:flex-row">
        <Button look="quiet" className="md:hidden" onClick={onFind} aria-label="Search and commands">
          <Search />
        </Button>
        <Button look="quiet" onClick={nextTheme} title={`Colours: ${chosen}`} aria-label={`Colours: ${chosen}. Change`}>
          <ThemeIcon />
        </Button>
        <Button
          look="quiet"
          onClick={askForKey}
          title={apiKey() ? "The API key of this tab" : "Give an API key"}
          aria-label="API key"
        >
          <Key className={`size-4 ${apiKey() ? "text-good" : ""}`} />
        </Button>
        <Button
          look="quiet"
          className="max-md:hidden"
          onClick={onHelp}
          title="Keyboard shortcuts"
          aria-label="Keyboard shortcuts"
        >
          ?
        </Button>
      </div>
    </header>
  );
}

function TabBar() {
  const section = useSection();
  return (
    <nav aria-label="Pages" className="grid grid-cols-4 border-t bg-subtle md:hidden">
      {PAGES.map(({ to, short, Icon }) => (
        <Link
          key={to}
          to={to}
          aria-current={section === to ? "page" : undefined}
          className={`flex flex-col items-center gap-0.5 py-1.5 text-2xs font-medium ${section === to ? "text-accent" : "text-ink-2"}`}
        >
          <Icon className="size-4.5" />
          {short}
        </Link>
      ))}
    </nav>
  );
}

function Connection() {
  const state = useStore(connection);
  if (state === "up") return null;
  return (
    <p
      role="alert"
      className="flex items-center gap-2 border-b border-retrying/40 bg-warn-soft px-4 py-1.5 text-retrying"
    >
      <span className="size-2 animate-pulse rounded-full bg-retrying" />
      The server cannot be reached. What you see may be old; this page goes on by itself when it is back.
    </p>
  );
}

function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl className="grid grid-cols-[auto_1fr] gap-x-6 gap-y-2 p-4">
        {SHORTCUTS.map(([key, what]) => (
          <div key={key} className="contents">
            <dt className="font-mono text-xs text-ink-2">{key}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
