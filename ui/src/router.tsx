/* Every page has an address behind the #: it works under any path, needs nothing of the server, and stays out of its logs. */
import {
  createHashHistory,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from "@tanstack/react-router";
import type { ExecutionStatus } from "./api/client";
import { Empty } from "./parts/controls";
import { EXECUTION_STATUSES } from "./parts/State";
import { Layout } from "./shell/Layout";

export interface ListSearch {
  status?: ExecutionStatus;
  workflow?: string;
  q?: string;
  since?: Since;
}
export const SINCE = ["15m", "1h", "24h", "7d"] as const;
export type Since = (typeof SINCE)[number];

export const VIEWS = ["graph", "timeline", "log"] as const;
export type View = (typeof VIEWS)[number];
export interface ExecutionSearch {
  view?: View;
  node?: string;
  tab?: string;
}
export interface WorkflowSearch {
  version?: number;
  against?: number;
  run?: boolean;
}

export interface EditorSearch {
  workflow?: string;
  version?: number;
  execution?: string; // begin with its definition and its input
  letter?: string; // the dead letter that it is about
}

function text(value: unknown): string | undefined {
  return typeof value === "string" && value ? value : typeof value === "number" ? String(value) : undefined;
}
function oneOf<T extends string>(values: readonly T[], value: unknown): T | undefined {
  return values.find((each) => each === value);
}
function whole(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && Number(value) > 0 ? Number(value) : undefined;
}

const root = createRootRoute({
  component: Layout,
  notFoundComponent: () => (
    <Empty title="There is no such page">
      <a className="text-accent underline" href="#/executions">
        All executions
      </a>
    </Empty>
  ),
});
const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/executions", replace: true });
  },
});
const executions = createRoute({
  getParentRoute: () => root,
  path: "/executions",
  validateSearch: (search: Record<string, unknown>): ListSearch => ({
    status: oneOf(EXECUTION_STATUSES, search.status),
    workflow: text(search.workflow),
    q: text(search.q),
    since: oneOf(SINCE, search.since),
  }),
  component: lazyRouteComponent(() => import("./executions/ExecutionsPage")),
});
const execution = createRoute({
  getParentRoute: () => root,
  path: "/executions/$id",
  validateSearch: (search: Record<string, unknown>): ExecutionSearch => ({
    view: oneOf(VIEWS, search.view),
    node: text(search.node),
    tab: text(search.tab),
  }),
  component: lazyRouteComponent(() => import("./execution/ExecutionPage")),
});
const workflows = createRoute({
  getParentRoute: () => root,
  path: "/workflows",
  component: lazyRouteComponent(() => import("./workflows/WorkflowsPage")),
});
const workflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/$name",
  validateSearch: (search: Record<string, unknown>): WorkflowSearch => ({
    version: whole(search.version),
    against: whole(search.against),
    run: search.run === true ? true : undefined,
  }),
  component: lazyRouteComponent(() => import("./workflows/WorkflowPage")),
});
const editor = createRoute({
  getParentRoute: () => root,
  path: "/edit",
  validateSearch: (search: Record<string, unknown>): EditorSearch => ({
    workflow: text(search.workflow),
    version: whole(search.version),
    execution: text(search.execution),
    letter: text(search.letter),
  }),
  component: lazyRouteComponent(() => import("./workflows/EditorPage")),
});
const letters = createRoute({
  getParentRoute: () => root,
  path: "/dead-letters",
  validateSearch: (search: Record<string, unknown>): { workflow?: string; status?: string; letter?: string } => ({
    workflow: text(search.workflow),
    status: oneOf(["RETRIED", "DROPPED", "ALL"], search.status),
    letter: text(search.letter),
  }),
  component: lazyRouteComponent(() => import("./letters/LettersPage")),
});
const workers = createRoute({
  getParentRoute: () => root,
  path: "/workers",
  component: lazyRouteComponent(() => import("./workers/WorkersPage")),
});

export const router = createRouter({
  routeTree: root.addChildren([home, executions, execution, workflows, workflow, editor, letters, workers]),
  history: createHashHistory(),
  defaultPreload: "intent",
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
