/* Where the nodes of a graph stand. Small graphs are laid out by dagre; large ones by levels, in linear time. */
import dagre from "@dagrejs/dagre";
import { childrenOf, levelsOf } from "./kin";

export interface Shape {
  id: string;
  dependencies: string[];
  width: number;
  height: number;
}
export type Places = Map<string, { x: number; y: number }>;
export type Pane = { width: number; height: number };
export type Direction = "LR" | "TB";
export interface Point {
  x: number;
  y: number;
}
export interface Plan {
  places: Places;
  routes: Map<string, Point[]>; // by "parent child": the bends that keep an edge clear of other nodes
  direction: Direction;
}

const MOST_FOR_DAGRE = 160;
const BETWEEN_LEVELS = 44;
const BETWEEN_NODES = 14;
const SWEEPS = 4;
const FEWEST_ROWS = 16;
const CELL_HEIGHT = 54; // of the tallest box

/** A small graph runs in the direction in which it is larger on a pane of this shape. */
export function layOut(shapes: Shape[], pane: Pane): Plan {
  if (shapes.length > MOST_FOR_DAGRE) return { places: byLevels(shapes, pane), routes: new Map(), direction: "LR" };
  const plans = (["LR", "TB"] as const).map((direction) => ({ ...byDagre(shapes, direction), direction }));
  const [across, down] = plans.map(({ places }) => zoomOf(shapes, places, pane)) as [number, number];
  return across >= Math.min(down, 1) ? plans[0]! : plans[1]!;
}

function zoomOf(shapes: Shape[], places: Places, pane: Pane): number {
  const right = Math.max(...shapes.map((shape) => places.get(shape.id)!.x + shape.width));
  const bottom = Math.max(...shapes.map((shape) => places.get(shape.id)!.y + shape.height));
  return Math.min(pane.width / right, pane.height / bottom);
}

function byDagre(shapes: Shape[], direction: Direction): Omit<Plan, "direction"> {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: direction, nodesep: BETWEEN_NODES, ranksep: BETWEEN_LEVELS, ranker: "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  const known = new Set(shapes.map((shape) => shape.id));
  for (const { id, width, height } of shapes) graph.setNode(id, { width, height });
  for (const { id, dependencies } of shapes)
    for (const parent of dependencies) if (known.has(parent) && parent !== id) graph.setEdge(parent, id);
  dagre.layout(graph);
  const places: Places = new Map();
  for (const { id, width, height } of shapes) {
    const { x, y } = graph.node(id) as Point;
    places.set(id, { x: x - width / 2, y: y - height / 2 });
  }
  const routes = new Map<string, Point[]>();
  for (const edge of graph.edges()) {
    const { points } = graph.edge(edge) as { points: Point[] };
    if (points.length > 3) routes.set(`${edge.v} ${edge.w}`, points.slice(1, -1)); // three: neighbouring levels, no bends
  }
  return { places, routes };
}

function byLevels(shapes: Shape[], pane: Pane): Places {
  return placed(ordered(columnsOf(shapes), childrenOf(shapes)), pane);
}

function columnsOf(shapes: Shape[]): Shape[][] {
  const levels = levelsOf(shapes);
  const columns: Shape[][] = [];
  for (const shape of shapes) {
    const level = levels.get(shape.id)!;
    columns[level] ??= [];
    columns[level].push(shape);
  }
  return columns;
}

/** Each node comes near to its neighbours, by turns to those before it and those behind it. */
function ordered(columns: Shape[][], children: Map<string, string[]>): Shape[][] {
  const middle = new Map<string, number>();
  const settle = (column: Shape[]) => {
    for (const [place, shape] of column.entries()) middle.set(shape.id, (place + 0.5) / column.length);
  };
  const sortBy = (column: Shape[], near: (shape: Shape) => string[]) => {
    const wish = new Map(
      column.map((shape) => {
        const some = near(shape).flatMap((id) => middle.get(id) ?? []);
        return [shape.id, some.length ? some.reduce((a, b) => a + b, 0) / some.length : middle.get(shape.id)!];
      }),
    );
    column.sort((a, b) => wish.get(a.id)! - wish.get(b.id)!);
    settle(column);
  };
  columns.forEach(settle);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const isForth = sweep % 2 === 0;
    const near = (shape: Shape) => (isForth ? shape.dependencies : (children.get(shape.id) ?? []));
    for (const column of isForth ? columns : columns.toReversed()) sortBy(column, near);
  }
  return columns;
}

/** From left to right. A wide level is a block, not a tower; a long way is folded like the lines of a text. */
function placed(columns: Shape[][], pane: Pane): Places {
  const blocks = columns.map((column) => {
    const rows = Math.max(FEWEST_ROWS, Math.ceil(Math.sqrt(column.length * 3)));
    const [width, height] = [column[0]!.width + BETWEEN_NODES, CELL_HEIGHT + BETWEEN_NODES];
    const across = Math.ceil(column.length / rows) * width + BETWEEN_LEVELS * 2;
    return { column, rows, width, height, across, down: Math.min(rows, column.length) * height };
  });
  const wide = blocks.reduce((sum, block) => sum + block.across, 0);
  const tall = Math.max(...blocks.map((block) => block.down)) + BETWEEN_LEVELS * 2;
  const lines = Math.max(1, Math.round(Math.sqrt(wide / tall / (pane.width / pane.height))));
  const places: Places = new Map();
  let [x, line] = [0, 0];
  for (const { column, rows, width, height, across, down } of blocks) {
    if (x > 0 && x + across > (wide / lines) * 1.02) [x, line] = [0, line + 1];
    for (const [place, { id }] of column.entries()) {
      const top = line * tall + (tall - down) / 2;
      places.set(id, { x: x + Math.floor(place / rows) * width, y: top + (place % rows) * height });
    }
    x += across;
  }
  return places;
}
