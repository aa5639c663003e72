/* Where the nodes of a graph stand. Small graphs are laid out by dagre; large ones by levels, in linear time. */
import dagre from "@dagrejs/dagre";

export interface Shape {
  id: string;
  dependencies: string[];
  width: number;
  height: number;
}
export type Places = Map<string, { x: number; y: number }>;
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

/** A small graph runs in the direction in which it is larger on a pane of this shape. */
export function layOut(shapes: Shape[], pane: { width: number; height: number }): Plan {
  if (shapes.length > MOST_FOR_DAGRE) return { places: byLevels(shapes), routes: new Map(), direction: "LR" };
  const plans = (["LR", "TB"] as const).map((direction) => ({ ...byDagre(shapes, direction), direction }));
  const [across, down] = plans.map(({ places }) => zoomOf(shapes, places, pane)) as [number, number];
  return across >= Math.min(down, 1) ? plans[0]! : plans[1]!;
}

function zoomOf(shapes: Shape[], places: Places, pane: { width: number; height: number }): number {
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
  for (const { id, dependencies } of shapes) for (const parent of dependencies) if (known.has(parent) && parent !== id) graph.setEdge(parent, id);
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

/** The longest way from a root. What stands on a cycle (a definition that is being written may have one) is on level 0. */
export function levelsOf(shapes: Pick<Shape, "id" | "dependencies">[]): Map<string, number> {
  const children = new Map<string, string[]>();
  const waiting = new Map<string, number>();
  const levels = new Map(shapes.map((shape) => [shape.id, 0]));
  for (const { id, dependencies } of shapes) {
    const parents = dependencies.filter((parent) => levels.has(parent));
    waiting.set(id, parents.length);
    for (const parent of parents) children.set(parent, [...(children.get(parent) ?? []), id]);
  }
  const ready = shapes.filter((shape) => !waiting.get(shape.id)).map((shape) => shape.id);
  for (let at = 0; at < ready.length; at++) {
    const id = ready[at]!;
    for (const child of children.get(id) ?? []) {
      levels.set(child, Math.max(levels.get(child)!, levels.get(id)! + 1));
      waiting.set(child, waiting.get(child)! - 1);
      if (!waiting.get(child)) ready.push(child);
    }
  }
  return levels;
}

function byLevels(shapes: Shape[]): Places {
  const levels = levelsOf(shapes);
  const columns: Shape[][] = [];
  for (const shape of shapes) (columns[levels.get(shape.id)!] ??= []).push(shape);
  const middle = new Map<string, number>();
  const children = new Map<string, string[]>();
  for (const { id, dependencies } of shapes) for (const parent of dependencies) children.get(parent)?.push(id) ?? children.set(parent, [id]);

  const settle = (column: Shape[]) => {
    column.forEach((shape, place) => middle.set(shape.id, (place + 0.5) / column.length));
  };
  const sortBy = (column: Shape[], near: (shape: Shape) => string[]) => {
    const wish = new Map(column.map((shape) => {
      const some = near(shape).flatMap((id) => middle.get(id) ?? []);
      return [shape.id, some.length ? some.reduce((a, b) => a + b, 0) / some.length : middle.get(shape.id)!];
    }));
    column.sort((a, b) => wish.get(a.id)! - wish.get(b.id)!);
    settle(column);
  };
  columns.forEach(settle);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    if (sweep % 2 === 0) columns.forEach((column) => sortBy(column, (shape) => shape.dependencies));
    else [...columns].reverse().forEach((column) => sortBy(column, (shape) => children.get(shape.id) ?? []));
  }

  const places: Places = new Map();
  let x = 0;
  for (const column of columns) {
    const rows = Math.max(FEWEST_ROWS, Math.ceil(Math.sqrt(column.length * 3))); // a wide level is a block, not a tower
    const [width, height] = [Math.max(...column.map((shape) => shape.width)), Math.max(...column.map((shape) => shape.height))];
    const top = (-Math.min(rows, column.length) * (height + BETWEEN_NODES)) / 2;
    column.forEach((shape, place) => {
      places.set(shape.id, { x: x + Math.floor(place / rows) * (width + BETWEEN_NODES), y: top + (place % rows) * (height + BETWEEN_NODES) });
    });
    x += Math.ceil(column.length / rows) * (width + BETWEEN_NODES) + BETWEEN_LEVELS * 2;
  }
  return places;
}
