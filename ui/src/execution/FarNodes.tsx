/* A large graph from afar: each node is a box of its colour on one canvas, so thousands cost as little as a picture. */
import { useStore as useFlow } from "@xyflow/react";
import { useEffect, useRef } from "react";
import { look, NODE_STATUSES } from "../parts/State";
import { useStore } from "../parts/store";
import { theme } from "../shell/theme";
import type { Drawn } from "./GraphNodes";

const FAINT = 0.3;
const OUTLINE_PX = 3;
const SLACK = 8;

export function FarNodes({ drawn }: { drawn: Drawn[] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const colours = useRef<HTMLSpanElement>(null);
  const [x, y, zoom] = useFlow((state) => state.transform);
  const width = useFlow((state) => state.width);
  const height = useFlow((state) => state.height);
  const chosenTheme = useStore(theme);

  // biome-ignore lint/correctness/useExhaustiveDependencies: another theme has other colours
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || !colours.current) return;
    const toneOf = tones(colours.current);
    const scale = devicePixelRatio;
    context.canvas.width = width * scale; // this also wipes it
    context.canvas.height = height * scale;
    context.setTransform(zoom * scale, 0, 0, zoom * scale, x * scale, y * scale);
    for (const node of drawn) {
      const { status, isChosen } = stateOf(node);
      const box = [node.position.x, node.position.y, node.width!, node.height!] as const;
      context.globalAlpha = status === "PENDING" || status === "SKIPPED" ? FAINT : 1;
      context.fillStyle = toneOf(status);
      context.fillRect(...box);
      if (!isChosen) continue;
      context.globalAlpha = 1;
      context.strokeStyle = toneOf("chosen");
      context.lineWidth = OUTLINE_PX / zoom;
      context.strokeRect(...box);
    }
  }, [drawn, x, y, zoom, width, height, chosenTheme]);

  return (
    <>
      <span ref={colours} hidden>
        <span data-tone="chosen" className="text-accent" />
        {[...NODE_STATUSES, "problem", "plain"].map((status) => (
          <span key={status} data-tone={status} className={status === "problem" ? "text-bad" : look(status).text} />
        ))}
      </span>
      <canvas ref={canvas} aria-hidden="true" className="pointer-events-none absolute inset-0 z-5 size-full" />
    </>
  );
}

/** A canvas knows no variables of a style sheet, so the page is asked what they come to. */
function tones(colours: HTMLElement): (name: string) => string {
  const found = new Map(
    [...colours.querySelectorAll<HTMLElement>("[data-tone]")].map((one) => [
      one.dataset.tone,
      getComputedStyle(one).color,
    ]),
  );
  return (name) => found.get(name) ?? found.get("plain")!;
}

function stateOf(node: Drawn): { status: string; isChosen: boolean } {
  const { data } = node;
  if ("cluster" in data) return { status: data.counts.split(":")[0] ?? "plain", isChosen: data.isChosen }; // the most urgent
  return { status: data.node.status ?? (data.hasProblem ? "problem" : "plain"), isChosen: data.isChosen };
}

/** What is drawn there, or very near: from afar nobody meets a box exactly. */
export function nodeAt(drawn: Drawn[], { x, y }: { x: number; y: number }): Drawn | undefined {
  return drawn.find(({ position, width = 0, height = 0 }) => {
    const [right, down] = [x - position.x, y - position.y];
    return right >= -SLACK && down >= -SLACK && right <= width + SLACK && down <= height + SLACK;
  });
}
