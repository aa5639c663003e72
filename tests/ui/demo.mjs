/* Executions as people have them: some done, some failed, some under way. For the screenshots. */
const retry = (more = {}) => ({ retry_config: { max_retries: 3, initial_delay: 0.3, jitter: false, ...more } });

const ORDER = {
  name: "order",
  description: "Check an order, take the money, send the parcel",
  inputs: {
    customer: { type: "string", default: "Ada", description: "Who ordered" },
    items: { type: "integer", default: 3, minimum: 1, description: "How many things" },
    priority: { enum: ["normal", "express"], default: "normal", description: "Express leaves the same day" },
  },
  nodes: [
    { id: "start", handler: "input" },
    {
      id: "stock",
      handler: "step",
      dependencies: ["start"],
      config: { seconds: 0.3, gives: { shelf: "B-17", left: 12 } },
    },
    {
      id: "price",
      handler: "step",
      dependencies: ["start"],
      config: {
        seconds: 0.5,
        busy: 2,
        after: 0.4,
        words: "the price list is being written",
        gives: { cents: 4200, currency: "EUR" },
      },
      ...retry(),
    },
    {
      id: "risk",
      handler: "llm_service",
      dependencies: ["start"],
      config: {
        model: "echo",
        system: "You check orders. Answer with one sentence.",
        prompt: "Is an order of {{ input.items }} things by {{ input.customer }} unusual?",
      },
    },
    {
      id: "charge",
      handler: "step",
      dependencies: ["stock", "price", "risk"],
      config: { seconds: 0.9, gives: { receipt: "R-2041" }, amount: "{{ price.cents }}", note: "{{ risk.text }}" },
    },
    {
      id: "label",
      handler: "step",
      dependencies: ["stock"],
      config: { seconds: 0.6, from: "{{ stock.shelf }}", gives: { label: "ZX-88" } },
    },
    {
      id: "parcel",
      handler: "step",
      dependencies: ["charge", "label"],
      config: { seconds: 0.4, gives: { parcel: "P-9" } },
    },
    {
      id: "mail",
      handler: "llm_service",
      dependencies: ["charge"],
      config: {
        model: "echo",
        prompt: "Thank {{ input.customer }} for {{ price.cents }} {{ price.currency }}, receipt {{ charge.receipt }}.",
      },
    },
    {
      id: "done",
      handler: "output",
      dependencies: ["parcel", "mail"],
      config: { parcel: "{{ parcel.parcel }}", mail: "{{ mail.text }}" },
    },
  ],
};

const NIGHTLY = {
  name: "nightly-report",
  description: "Numbers of the day, in words",
  nodes: [
    { id: "fetch", handler: "step", config: { seconds: 0.2, gives: { rows: 1204 } } },
    { id: "clean", handler: "step", dependencies: ["fetch"], config: { seconds: 0.3, gives: { rows: 1198 } } },
    {
      id: "words",
      handler: "llm_service",
      dependencies: ["clean"],
      config: { model: "echo", prompt: "{{ clean.rows }} orders today." },
    },
    { id: "done", handler: "output", dependencies: ["words"], config: { text: "{{ words.text }}" } },
  ],
};

const INVOICE = {
  name: "invoice",
  inputs: { month: { type: "string", default: "2026-11", description: "Which ledger" } },
  nodes: [
    { id: "read", handler: "step", config: { seconds: 0.1, gives: { total: 1280 } } },
    {
      id: "book",
      handler: "repairable",
      dependencies: ["read"],
      config: { name: "ledger-open", words: "the ledger of {{ input.month }} is closed", total: "{{ read.total }}" },
    },
    { id: "file", handler: "step", dependencies: ["book"], config: {} },
  ],
};

const IMPORT = {
  name: "import-customers",
  nodes: [
    { id: "load", handler: "repairable", config: { name: "source", words: "row 1: the column 'email' is missing" } },
  ],
};

/** A thousand pages in parallel, each through two steps, and one that gathers. */
function crawl(pages) {
  const nodes = [{ id: "plan", handler: "step", config: { gives: { pages } } }];
  for (let at = 0; at < pages; at++) {
    nodes.push({ id: `fetch_${at}`, handler: "step", dependencies: ["plan"], config: { seconds: 0.02 } });
    nodes.push({
      id: `read_${at}`,
      handler: at === 7 ? "gate" : "say",
      dependencies: [`fetch_${at}`],
      config: at === 7 ? { name: "never" } : { text: "…" },
    });
  }
  nodes.push({
    id: "gather",
    handler: "step",
    dependencies: Array.from({ length: pages }, (_, at) => `read_${at}`),
    config: {},
  });
  return { name: "crawl", description: "Every page of a site, then an index", nodes };
}

const WAITING = {
  name: "approval",
  description: "Waits for a person in the middle",
  nodes: [
    { id: "draft", handler: "llm_service", config: { model: "echo", prompt: "A letter to the council" } },
    { id: "approve", handler: "gate", dependencies: ["draft"], config: { name: "approved" } },
    { id: "send", handler: "step", dependencies: ["approve"], config: { seconds: 0.1 } },
    { id: "done", handler: "output", dependencies: ["send"], config: { text: "{{ draft.text }}" } },
  ],
};

/** Starts all of them, waits for those that end, and answers the ids that pages are shown of. */
export async function seed(server, { pages = 400 } = {}) {
  const ended = [];
  for (let at = 0; at < 3; at++) ended.push(await server.run(NIGHTLY));
  ended.push(
    await server.run({
      ...ORDER,
      nodes: ORDER.nodes
        .filter(({ id }) => id !== "label")
        .map((node) => ({ ...node, dependencies: node.dependencies?.filter((id) => id !== "label") })),
    }),
  );
  for (let at = 0; at < 4; at++) ended.push(await server.run(INVOICE));
  for (let at = 0; at < 2; at++) ended.push(await server.run(IMPORT));
  const stopped = await server.run({ ...WAITING, name: "endless" });
  await server.call("POST", `/v1/executions/${stopped}/cancel`);
  const order = await server.run(ORDER, { customer: "Grace", items: 2 });
  await Promise.all([...ended, stopped, order].map((id) => server.ended(id)));
  const large = await server.run(crawl(pages));
  const waiting = await server.run(WAITING);
  const { items } = await server.call("GET", "/v1/dlq?workflow=invoice");
  return { order, large, waiting, failed: items[0].execution_id, letter: items[0].id };
}
