/* The graph. Structure and places are worked out once; a change of state touches only the nodes that changed. */
import {
  Background,
  getViewportForBounds,
  ReactFlow,
  ReactFlowProvider,
  useStore as useFlow,
  useReactFlow,
} from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { Button } from "../parts/controls";
import { Fit, Plus } from "../parts/icons";
import { Edges } from "./Edges";
import { FarNodes, nodeAt } from "./FarNodes";
import { countsOf, type Drawn, Far, NODE_TYPES } from "./GraphNodes";
import "./graph.css";
import type { Pane } from "./layout";
import { type GraphNode, HEIGHT, type Structure, useStructure, WIDTH } from "./structure";

interface Props {
  nodes: GraphNode[];
  critical?: Set<string>;
  chosen?: string;
  problems?: Set<string>;
  onSelect: (id: string | undefined) => void;
}

const CLUSTERED_FROM = 60;
const LARGE_FROM = 200; // only what is in sight is in the page, and from afar nothing but a picture
const FAR = 0.42; // below this zoom nobody can read a label
const [SMALLEST, LARGEST] = [0.03, 2];
const NONE: Drawn[] = [];

export default function Graph(props: Props) {
  return (
    <ReactFlowProvider>
      <Canvas {...props} />
    </ReactFlowProvider>
  );
}

function Canvas({ nodes, critical, chosen, problems, onSelect }: Props) {
  const [isGrouping, setGrouping] = useState<boolean | null>(null);
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const groups = isGrouping ?? nodes.length > CLUSTERED_FROM;
  const pane = usePane();
  const structure = useStructure(nodes, groups, opened, pane);
  const open = useRef((id: string) => setOpened((old) => new Set([...old, id]))).current;
  const drawn = useDrawn(nodes, structure, { critical, chosen, problems, onSelect, open });
  const isFar = useFlow((state) => state.transform[2] < FAR);
  const isLarge = drawn.length > LARGE_FROM;
  const isPicture = isLarge && isFar;
  const flow = useReactFlow();
  const pick = ({ clientX: x, clientY: y }: MouseEvent) => {
    const hit = isPicture ? nodeAt(drawn, flow.screenToFlowPosition({ x, y })) : undefined;
    if (hit?.type === "many") open(hit.id);
    else onSelect(hit?.id);
  };
  const group = (isOn: boolean) => {
    setOpened(new Set());
    setGrouping(isOn);
  };
  return (
    <Far value={isFar}>
      <ReactFlow
        nodes={isPicture ? NONE : drawn}
        nodeTypes={NODE_TYPES}
        nodesDraggable={false}
        nodesConnectable={false}
        nodesFocusable={false}
        elementsSelectable={false}
        onlyRenderVisibleElements={isLarge}
        onPaneClick={(event) => pick(event.nativeEvent)}
        minZoom={SMALLEST}
        maxZoom={LARGEST}
        proOptions={{ hideAttribution: true }}
      >
        <Background gap={20} size={1} color="var(--color-line)" />
        {isPicture && <FarNodes drawn={drawn} />}
        <Edges structure={structure} chosen={chosen} critical={critical} />
        <Camera structure={structure} chosen={chosen} />
        <Tools structure={structure}>
          {structure.canGroup && (
            <Button small aria-pressed={groups} onClick={() => group(!groups)}>
              {groups ? "Show all nodes" : "Group alike nodes"}
            </Button>
          )}
          {groups && opened.size > 0 && (
            <Button small onClick={() => setOpened(new Set())}>
              Close groups
            </Button>
          )}
        </Tools>
      </ReactFlow>
    </Far>
  );
}

/** The size of the pane in coarse steps, so that a graph is not laid out anew for every pixel. */
function usePane(): Pane {
  const width = useFlow((state) => Math.ceil((state.width || 800) / 200) * 200);
  const height = useFlow((state) => Math.ceil((state.height || 600) / 200) * 200);
  return useMemo(() => ({ width, height }), [width, height]);
}

interface Around extends Pick<Props, "critical" | "chosen" | "problems" | "onSelect"> {
  open: (id: string) => void;
}
type Kept = Map<string, { mark: unknown[]; drawn: Drawn }>;

/** Keeps the objects of nodes that did not change, which is what the canvas compares. */
function useDrawn(nodes: GraphNode[], structure: Structure, around: Around): Drawn[] {
  const { critical, chosen, problems, onSelect, open } = around;
  const kept = useRef<Kept>(new Map());
  const select = useRef(onSelect);
  select.current = onSelect;
  const stableSelect = useRef((id: string | undefined) => select.current(id)).current;
  return useMemo(() => {
    const known = new Map(nodes.map((node) => [node.id, node]));
    const owner = chosen === undefined ? undefined : structure.ownerOf(chosen);
    const next: Kept = new Map();
    const keep = (id: string, mark: unknown[], make: () => Drawn) => {
      const old = kept.current.get(id);
      const entry = old?.mark.every((part, at) => part === mark[at]) ? old : { mark, drawn: make() };
      next.set(id, entry);
      return entry.drawn;
    };
    const all = structure.shapes.flatMap(({ id, height }): Drawn[] => {
      const position = structure.places.get(id)!;
      const place = { id, position, width: WIDTH, height, initialWidth: WIDTH, initialHeight: height };
      const cluster = structure.clusters.get(id);
      if (cluster) {
        const counts = countsOf(cluster.members.map((member) => known.get(member)?.status));
        const data = { cluster, counts, isChosen: owner === id, onOpen: open };
        return [keep(id, [cluster, counts, data.isChosen, position], () => ({ ...place, type: "many", data }))];
      }
      const node = known.get(id);
      if (!node) return [];
      const flags = { isChosen: chosen === id, isCritical: !!critical?.has(id), hasProblem: !!problems?.has(id) };
      const data = { node, ...flags, onSelect: stableSelect };
      return [keep(id, [node, ...Object.values(flags), position], () => ({ ...place, type: "one", data }))];
    });
    kept.current = next;
    return all;
  }, [nodes, structure, chosen, critical, problems, open, stableSelect]);
}

/** Looks at the whole graph when its structure changes, and brings the chosen node into sight. */
function Camera({ structure, chosen }: { structure: Structure; chosen: string | undefined }) {
  const flow = useReactFlow();
  const width = useFlow((state) => state.width);
  const height = useFlow((state) => state.height);
  const isThere = width > 0 && height > 0;
  const { places } = structure;
  const showWhole = useShowWhole(structure);
  // biome-ignore lint/correctness/useExhaustiveDependencies: not when only the pane has changed
  useEffect(() => {
    if (isThere && places.size) requestAnimationFrame(() => showWhole());
  }, [places, isThere]);
  useEffect(() => {
    const place = chosen === undefined ? undefined : places.get(structure.ownerOf(chosen));
    if (!place || !width) return;
    const { x, y, zoom } = flow.getViewport();
    const left = place.x * zoom + x;
    const top = place.y * zoom + y;
    const isInside = left > 0 && top > 0 && left + WIDTH * zoom < width && top + HEIGHT * zoom < height;
    if (isInside && zoom >= FAR) return;
    const middle = [place.x + WIDTH / 2, place.y + HEIGHT / 2] as const;
    void flow.setCenter(...middle, { zoom: Math.max(zoom, 0.8), duration: 200 });
  }, [chosen, structure, places, flow, width, height]);
  return null;
}

function useShowWhole({ shapes, places }: Structure): (duration?: number) => void {
  const flow = useReactFlow();
  const width = useFlow((state) => state.width);
  const height = useFlow((state) => state.height);
  return (duration = 0) => {
    const boxes = shapes.map((shape) => ({ ...places.get(shape.id)!, ...shape }));
    const [left, top] = [Math.min(...boxes.map(({ x }) => x)), Math.min(...boxes.map(({ y }) => y))];
    const [right, bottom] = [
      Math.max(...boxes.map((box) => box.x + box.width)),
      Math.max(...boxes.map((box) => box.y + box.height)),
    ];
    const bounds = { x: left, y: top, width: right - left, height: bottom - top };
    void flow.setViewport(getViewportForBounds(bounds, width, height, SMALLEST, 1.15, 0.12), { duration });
  };
}

function Tools({ structure, children }: { structure: Structure; children: ReactNode }) {
  const flow = useReactFlow();
  const showWhole = useShowWhole(structure);
  return (
    <div className="absolute bottom-3 left-3 z-10 flex gap-1">
      <Button small aria-label="Zoom in" onClick={() => void flow.zoomIn({ duration: 120 })}>
        <Plus className="size-3.5" />
      </Button>
      <Button small aria-label="Zoom out" onClick={() => void flow.zoomOut({ duration: 120 })}>
        <span aria-hidden="true" className="w-3.5">
          −
        </span>
      </Button>
      <Button small aria-label="Show the whole graph" onClick={() => showWhole(200)}>
        <Fit className="size-3.5" />
      </Button>
      {children}
    </div>
  );
}
