/* The graph. Structure and places are worked out once; a change of state touches only the nodes that changed. */
import { Background, BaseEdge, type Edge, type EdgeProps, getBezierPath, Handle, type Node, type NodeProps, Position, ReactFlow, ReactFlowProvider, useReactFlow, useStore as useFlow } from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import { Button } from "../parts/controls";
import { Fit, Plus } from "../parts/icons";
import { look, NODE_STATUSES, StateIcon } from "../parts/State";
import { ms, span, useNow } from "../parts/time";
import { type Cluster, clustersOf } from "./clusters";
import { type Direction, layOut, type Places, type Point, type Shape } from "./layout";
import "./graph.css";

export interface GraphNode {
  id: string;
  handler: string;
  dependencies: string[];
  status?: string; // none: a definition that does not run
  attempt?: number;
  started_at?: string | null;
  finished_at?: string | null;
}

interface Props {
  nodes: GraphNode[];
  critical?: Set<string>;
  chosen?: string;
  problems?: Set<string>;
  onSelect: (id: string | undefined) => void;
}

const WIDTH = 168;
const HEIGHT = 42;
const CLUSTER_HEIGHT = 54;
const CLUSTERED_FROM = 60;
const FAR = 0.42; // below this zoom nobody can read a label

type NodeData = { node: GraphNode; isChosen: boolean; isCritical: boolean; hasProblem: boolean; direction: Direction; onSelect: Props["onSelect"] };
type ClusterData = { cluster: Cluster; counts: string; isChosen: boolean; direction: Direction; onOpen: (id: string) => void };
type Drawn = Node<NodeData, "one"> | Node<ClusterData, "many">;

export default function Graph(props: Props) {
  return <ReactFlowProvider><Canvas {...props} /></ReactFlowProvider>;
}

function Canvas({ nodes, critical, chosen, problems, onSelect }: Props) {
  const [isGrouping, setGrouping] = useState<boolean | null>(null);
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const groups = isGrouping ?? nodes.length > CLUSTERED_FROM;
  const pane = usePane();
  const structure = useStructure(nodes, groups, opened, pane);
  const open = useRef((id: string) => setOpened((old) => new Set([...old, id]))).current;
  const drawn = useDrawn(nodes, structure, { critical, chosen, problems, onSelect, open });
  const edges = useMemo(() => edgesOf(structure, chosen, critical), [structure, chosen, critical]);
  const canGroup = structure.canGroup;

  return (
    <ReactFlow
      nodes={drawn}
      edges={edges}
      nodeTypes={NODE_TYPES}
      edgeTypes={EDGE_TYPES}
      nodesDraggable={false}
      nodesConnectable={false}
      nodesFocusable={false}
      edgesFocusable={false}
      elementsSelectable={false}
      onlyRenderVisibleElements={drawn.length > 200}
      onPaneClick={() => onSelect(undefined)}
      minZoom={0.03}
      maxZoom={2}
      proOptions={{ hideAttribution: true }}
    >
      <Background gap={20} size={1} color="var(--color-line)" />
      <Camera places={structure.places} chosen={structure.ownerOf(chosen)} />
      <Tools>
        {canGroup && (
          <Button small aria-pressed={groups} onClick={() => (setOpened(new Set()), setGrouping(!groups))}>
            {groups ? "Show all nodes" : "Group alike nodes"}
          </Button>
        )}
        {groups && opened.size > 0 && <Button small onClick={() => setOpened(new Set())}>Close groups</Button>}
      </Tools>
    </ReactFlow>
  );
}

type Pane = { width: number; height: number };

/** The size of the pane in coarse steps, so that a graph is not laid out anew for every pixel. */
function usePane(): Pane {
  const width = useFlow((state) => Math.ceil((state.width || 800) / 200) * 200);
  const height = useFlow((state) => Math.ceil((state.height || 600) / 200) * 200);
  return useMemo(() => ({ width, height }), [width, height]);
}

interface Structure {
  shapes: Shape[];
  clusters: Map<string, Cluster>;
  places: Places;
  routes: Map<string, Point[]>;
  direction: Direction;
  ownerOf: (id: string | undefined) => string | undefined;
  canGroup: boolean;
}

/** Depends on ids and dependencies alone, so it stays as it is while states change. */
function useStructure(nodes: GraphNode[], groups: boolean, opened: ReadonlySet<string>, pane: Pane): Structure {
  const signature = useMemo(() => nodes.map((node) => `${node.id}:${node.handler}:${node.dependencies.join()}`).join("\n"), [nodes]);
  return useMemo(() => {
    const found = clustersOf(nodes);
    const clusters = new Map((groups ? found : []).filter((cluster) => !opened.has(cluster.id)).map((cluster) => [cluster.id, cluster]));
    const owners = new Map([...clusters.values()].flatMap((cluster) => cluster.members.map((id) => [id, cluster.id] as const)));
    const parents = new Map<string, Set<string>>();
    for (const node of nodes) {
      const own = owners.get(node.id) ?? node.id;
      const set = parents.get(own) ?? new Set();
      for (const parent of node.dependencies) set.add(owners.get(parent) ?? parent);
      set.delete(own);
      parents.set(own, set);
    }
    const shapes = [...parents].map(([id, some]) => ({ id, dependencies: [...some].filter((each) => parents.has(each)), width: WIDTH, height: clusters.has(id) ? CLUSTER_HEIGHT : HEIGHT }));
    return { shapes, clusters, ...layOut(shapes, pane), ownerOf: (id) => (id === undefined ? undefined : (owners.get(id) ?? id)), canGroup: found.length > 0 };
    // the signature stands for the nodes
  }, [signature, groups, opened, pane]);
}

interface Around extends Pick<Props, "critical" | "chosen" | "problems" | "onSelect"> {
  open: (id: string) => void;
}

/** Keeps the objects of nodes that did not change, which is what the canvas compares. */
function useDrawn(nodes: GraphNode[], structure: Structure, { critical, chosen, problems, onSelect, open }: Around): Drawn[] {
  const kept = useRef(new Map<string, { mark: unknown[]; drawn: Drawn }>());
  const select = useRef(onSelect);
  select.current = onSelect;
  const stableSelect = useRef((id: string | undefined) => select.current(id)).current;
  return useMemo(() => {
    const known = new Map(nodes.map((node) => [node.id, node]));
    const { direction } = structure;
    const owner = structure.ownerOf(chosen);
    const next = new Map<string, { mark: unknown[]; drawn: Drawn }>();
    const keep = (id: string, mark: unknown[], make: () => Drawn) => {
      const old = kept.current.get(id);
      const entry = old && old.mark.every((part, at) => part === mark[at]) ? old : { mark, drawn: make() };
      next.set(id, entry);
      return entry.drawn;
    };
    const all = structure.shapes.flatMap(({ id, height }): Drawn[] => {
      const position = structure.places.get(id)!;
      const size = { width: WIDTH, height, initialWidth: WIDTH, initialHeight: height };
      const cluster = structure.clusters.get(id);
      if (cluster) {
        const counts = countsOf(cluster.members.map((member) => known.get(member)?.status));
        const isChosen = owner === id;
        return [keep(id, [cluster, counts, isChosen, position], () => ({ id, type: "many", position, ...size, data: { cluster, counts, isChosen, direction, onOpen: open } }))];
      }
      const node = known.get(id);
      if (!node) return [];
      const flags = { isChosen: chosen === id, isCritical: !!critical?.has(id), hasProblem: !!problems?.has(id) };
      return [keep(id, [node, flags.isChosen, flags.isCritical, flags.hasProblem, position], () => ({ id, type: "one", position, ...size, data: { node, ...flags, direction, onSelect: stableSelect } }))];
    });
    kept.current = next;
    return all;
  }, [nodes, structure, chosen, critical, problems, open, stableSelect]);
}

function countsOf(statuses: (string | undefined)[]): string {
  return NODE_STATUSES.map((status) => `${status}:${statuses.filter((each) => each === status).length}`).join(" ");
}

function edgesOf(structure: Structure, chosen: string | undefined, critical: Set<string> | undefined): RoutedEdge[] {
  const owner = structure.ownerOf(chosen);
  const marked = new Set([...(critical ?? [])].map(structure.ownerOf));
  return structure.shapes.flatMap((shape) =>
    shape.dependencies.map((parent) => {
      const isNear = shape.id === owner || parent === owner;
      const isCritical = marked.has(parent) && marked.has(shape.id);
      const id = `${parent} ${shape.id}`;
      return { id, type: "routed", data: { bends: structure.routes.get(id), direction: structure.direction }, source: parent, target: shape.id, className: isNear ? "edge-near" : isCritical ? "edge-critical" : undefined, zIndex: isNear ? 1 : 0 };
    }),
  );
}

const One = memo(function One({ data }: NodeProps<Node<NodeData, "one">>) {
  const { node, isChosen, isCritical, hasProblem, direction, onSelect } = data;
  const tone = node.status ? look(node.status).text : hasProblem ? "text-bad" : "text-idle";
  const isQuiet = node.status === "PENDING" || node.status === "SKIPPED";
  return (
    <>
      <Handle type="target" position={direction === "LR" ? Position.Left : Position.Top} isConnectable={false} />
      <button
        type="button"
        aria-pressed={isChosen}
        onClick={() => onSelect(node.id)}
        className={`graph-node ${tone} ${isChosen ? "is-chosen" : ""} ${isQuiet ? "is-quiet" : ""} ${hasProblem ? "has-problem" : ""}`}
      >
        {node.status && <StateIcon status={node.status} className="size-4" />}
        <span className="graph-label">
          <span className="flex items-center gap-1.5">
            <span className="truncate font-medium text-ink">{node.id}</span>
            {hasProblem && <span className="sr-only">has a problem</span>}
            {isCritical && <span title="On the critical path" className="size-1.5 shrink-0 rotate-45 bg-accent" />}
          </span>
          <span className="flex justify-between gap-2 text-2xs text-ink-3">
            <span className="truncate">{node.handler}</span>
            <Took node={node} />
          </span>
        </span>
      </button>
      <Handle type="source" position={direction === "LR" ? Position.Right : Position.Bottom} isConnectable={false} />
    </>
  );
});

function Took({ node }: { node: GraphNode }) {
  const started = ms(node.started_at);
  const isRunning = node.status === "RUNNING";
  const now = useNow(500, isRunning);
  if (node.status === "RETRYING") return <span className="shrink-0 text-retrying">attempt {(node.attempt ?? 0) + 1} next</span>;
  if (started === null || (!isRunning && !node.finished_at)) return null;
  return (
    <span className="num shrink-0">
      {(node.attempt ?? 1) > 1 && <span className="text-retrying">×{node.attempt} </span>}
      {span((isRunning ? now : ms(node.finished_at)!) - started)}
    </span>
  );
}

const Many = memo(function Many({ data }: NodeProps<Node<ClusterData, "many">>) {
  const { cluster, counts, isChosen, direction, onOpen } = data;
  const total = cluster.members.length;
  const shown = counts.split(" ").map((part) => part.split(":") as [string, string]).map(([status, count]) => ({ status, count: Number(count) })).filter(({ count }) => count);
  const worst = shown[0]?.status;
  return (
    <>
      <Handle type="target" position={direction === "LR" ? Position.Left : Position.Top} isConnectable={false} />
      <button type="button" title="Show its nodes" onClick={() => onOpen(cluster.id)} className={`graph-node is-cluster ${worst ? look(worst).text : "text-idle"} ${isChosen ? "is-chosen" : ""}`}>
        <span className="graph-label">
          <span className="flex justify-between gap-2"><span className="truncate font-medium text-ink">{cluster.name}</span><span className="num text-ink-2">×{total}</span></span>
          <span className="my-0.5 flex h-1 overflow-hidden rounded-full bg-hover">
            {[...shown].reverse().map(({ status, count }) => <span key={status} className={`bg-current ${look(status).text} ${status === "PENDING" ? "opacity-25" : ""}`} style={{ width: `${(100 * count) / total}%` }} />)}
          </span>
          <span className="flex gap-2 text-2xs text-ink-3">
            {shown.slice(0, 4).map(({ status, count }) => <span key={status} className="num inline-flex items-center gap-0.5"><StateIcon status={status} className="size-2.5" />{count}</span>)}
          </span>
        </span>
      </button>
      <Handle type="source" position={direction === "LR" ? Position.Right : Position.Bottom} isConnectable={false} />
    </>
  );
});

type RoutedEdge = Edge<{ bends?: Point[]; direction: Direction }, "routed">;

/** Through the bends that the layout gave it, each piece a curve that leaves and arrives along the direction of the graph. */
const Routed = memo(function Routed(edge: EdgeProps<RoutedEdge>) {
  const { sourceX, sourceY, targetX, targetY, data } = edge;
  if (!data?.bends) return <BaseEdge path={getBezierPath(edge)[0]} interactionWidth={0} />;
  const points = [{ x: sourceX, y: sourceY }, ...data.bends, { x: targetX, y: targetY }];
  const path = points.slice(1).map((to, at) => {
    const from = points[at]!;
    const [middleX, middleY] = [(from.x + to.x) / 2, (from.y + to.y) / 2];
    return data.direction === "LR" ? `C${middleX},${from.y} ${middleX},${to.y} ${to.x},${to.y}` : `C${from.x},${middleY} ${to.x},${middleY} ${to.x},${to.y}`;
  });
  return <BaseEdge path={`M${sourceX},${sourceY}${path.join("")}`} interactionWidth={0} />;
});

const NODE_TYPES = { one: One, many: Many };
const EDGE_TYPES = { routed: Routed };

/** Looks at the whole graph when its structure changes, and brings the chosen node into sight. */
function Camera({ places, chosen }: { places: Structure["places"]; chosen: string | undefined }) {
  const flow = useReactFlow();
  const width = useFlow((state) => state.width);
  const height = useFlow((state) => state.height);
  const isFar = useFlow((state) => state.transform[2] < FAR);
  const root = useFlow((state) => state.domNode);
  useEffect(() => {
    if (width && height) requestAnimationFrame(() => void flow.fitView({ padding: 0.12, maxZoom: 1.15 }));
  }, [places, flow, width > 0 && height > 0]);
  useEffect(() => void root?.toggleAttribute("data-far", isFar), [root, isFar]);
  useEffect(() => {
    const place = chosen === undefined ? undefined : places.get(chosen);
    if (!place || !width) return;
    const { x, y, zoom } = flow.getViewport();
    const left = place.x * zoom + x;
    const top = place.y * zoom + y;
    const isSeen = left > 0 && top > 0 && left + WIDTH * zoom < width && top + HEIGHT * zoom < height && zoom >= FAR;
    if (!isSeen) void flow.setCenter(place.x + WIDTH / 2, place.y + HEIGHT / 2, { zoom: Math.max(zoom, 0.8), duration: 200 });
  }, [chosen, places, flow, width, height]);
  return null;
}

function Tools({ children }: { children: React.ReactNode }) {
  const flow = useReactFlow();
  return (
    <div className="absolute bottom-3 left-3 z-10 flex gap-1">
      <Button small aria-label="Zoom in" onClick={() => void flow.zoomIn({ duration: 120 })}><Plus className="size-3.5" /></Button>
      <Button small aria-label="Zoom out" onClick={() => void flow.zoomOut({ duration: 120 })}><span aria-hidden="true" className="w-3.5">−</span></Button>
      <Button small aria-label="Show the whole graph" onClick={() => void flow.fitView({ padding: 0.12, maxZoom: 1.15, duration: 200 })}><Fit className="size-3.5" /></Button>
      {children}
    </div>
  );
}
