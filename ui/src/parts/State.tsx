/* The states of nodes and executions: each has a colour, a shape and a word. */
import type { ReactNode } from "react";
import type { ExecutionStatus, NodeStatus } from "../api/client";

export type Status = NodeStatus | ExecutionStatus | "ABANDONED";

interface Look {
  word: string;
  text: string; // the colour, as classes
  shape: ReactNode;
}

const ring = <circle cx="7" cy="7" r="5.500" fill="none" stroke="currentColor" strokeWidth="1.500" />;
const disc = <circle cx="7" cy="7" r="6.250" fill="currentColor" />;
const mark = {
  fill: "none",
  stroke: "var(--color-page)",
  strokeWidth: 1.7,
  strokeLinecap: "round",
  strokeLinejoin: "round",
} as const;

const LOOKS: Record<Status, Look> = {
  PENDING: {
    word: "Pending",
    text: "text-idle",
    shape: (
      <circle
        cx="7"
        cy="7"
        r="5.500"
        fill="none"
        stroke="currentColor"
        strokeWidth="1.500"
        strokeDasharray="2.200 2.120"
      />
    ),
  },
  QUEUED: {
    word: "Queued",
    text: "text-queued",
    shape: (
      <>
        {ring}
        <path d="M7 4v3.200l2 1.300" fill="none" stroke="currentColor" strokeWidth="1.500" strokeLinecap="round" />
      </>
    ),
  },
  RUNNING: {
    word: "Running",
    text: "text-running",
    shape: (
      <>
        <circle cx="7" cy="7" r="5.500" fill="none" stroke="currentColor" strokeOpacity=".3" strokeWidth="1.800" />
        <path
          d="M7 1.500A5.500 5.500 0 0 1 12.500 7"
          fill="none"
          stroke="currentColor"
          strokeWidth="1.800"
          strokeLinecap="round"
        />
      </>
    ),
  },
  RETRYING: {
    word: "Retrying",
    text: "text-retrying",
    shape: (
      <path
        d="M12.200 7a5.200 5.200 0 1 1-1.600-3.750M12.300 1.300v2.600H9.700"
        fill="none"
        stroke="currentColor"
        strokeWidth="1.600"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    ),
  },
  COMPLETED: {
    word: "Completed",
    text: "text-good",
    shape: (
      <>
        {disc}
        <path d="m4.300 7.200 1.900 1.900 3.600-4" {...mark} />
      </>
    ),
  },
  FAILED: {
    word: "Failed",
    text: "text-bad",
    shape: (
      <>
        <path d="M4.300.9h5.400l3.400 3.400v5.400l-3.400 3.400H4.300L.9 9.700V4.300z" fill="currentColor" />
        <path d="m4.900 4.900 4.200 4.200m0-4.200L4.900 9.100" {...mark} />
      </>
    ),
  },
  SKIPPED: {
    word: "Skipped",
    text: "text-idle",
    shape: (
      <>
        {ring}
        <path d="M4.500 7h5" fill="none" stroke="currentColor" strokeWidth="1.600" strokeLinecap="round" />
      </>
    ),
  },
  CANCELLED: {
    word: "Cancelled",
    text: "text-idle",
    shape: (
      <>
        <rect x="1" y="1" width="12" height="12" rx="3" fill="currentColor" />
        <path d="m4.900 4.900 4.200 4.200m0-4.200L4.900 9.100" {...mark} />
      </>
    ),
  },
  ABANDONED: {
    word: "Abandoned",
    text: "text-retrying",
    shape: (
      <>
        {ring}
        <path
          d="M4.500 9.500 9.500 4.500"
          fill="none"
          stroke="currentColor"
          strokeWidth="1.600"
          strokeLinecap="round"
        />
      </>
    ),
  },
};

const UNKNOWN: Look = { word: "Unknown", text: "text-idle", shape: ring };

export const NODE_STATUSES: NodeStatus[] = [
  "RUNNING",
  "RETRYING",
  "QUEUED",
  "PENDING",
  "FAILED",
  "CANCELLED",
  "SKIPPED",
  "COMPLETED",
];
export const EXECUTION_STATUSES: ExecutionStatus[] = ["RUNNING", "FAILED", "COMPLETED", "CANCELLED", "PENDING"];

export function look(status: string): Look {
  return LOOKS[status as Status] ?? UNKNOWN;
}

export function hasEnded(status: string): boolean {
  return status === "COMPLETED" || status === "FAILED" || status === "CANCELLED" || status === "SKIPPED";
}

interface Shown {
  status: string;
  className?: string;
  turns?: boolean; // while it runs. Not in lists: many that turn are restless, and cost a layer each
}

export function StateIcon({ status, className = "size-3.5", turns }: Shown) {
  const { word, text, shape } = look(status);
  const motion = turns && status === "RUNNING" ? "animate-spin-slow" : "";
  return (
    <svg viewBox="0 0 14 14" role="img" aria-label={word} className={`shrink-0 ${text} ${motion} ${className}`}>
      {shape}
    </svg>
  );
}

export function State({ status, className = "", turns }: Shown) {
  const { word, text } = look(status);
  return (
    <span className={`inline-flex items-center gap-1.5 font-medium whitespace-nowrap ${text} ${className}`}>
      <span aria-hidden="true" className="contents">
        <StateIcon status={status} turns={turns} />
      </span>
      {word}
    </span>
  );
}
