/* How quick the page is, by itself: `make speed-ui` prints it. The server here is a stand-in that sends exactly 200 changes
a second, so that the numbers are those of the page and not of an engine that shares the machine with it. */
import { createReadStream, existsSync, readdirSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { launch, newPage, ROOT } from "./server.mjs";

const STATIC = join(ROOT, "src/headrace/api/static");
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
const CHANGES_PER_SECOND = Number(process.env.RATE ?? 200);
const NODES = Number(process.env.NODES ?? 2000);
const SECONDS = Number(process.env.SECONDS ?? 8);
const ID = "01990000-0000-7000-8000-000000000001";

const now = () => new Date().toISOString();
const nodes = Array.from({ length: NODES }, (_, at) => ({
  id: `node_${at}`,
  handler: ["call_external_service", "llm_service", "say"][at % 3],
  status: "PENDING",
  attempt: 0,
  dependencies: at < 20 ? [] : [`node_${at - 20}`, ...(at % 7 ? [] : [`node_${at - 19}`])],
  queued_at: null,
  started_at: null,
  finished_at: null,
  error: null,
  reason: null,
}));
const item = (id, status = "RUNNING") => ({
  execution_id: id,
  workflow: "speed",
  version: 1,
  status,
  run: 1,
  error: null,
  created_at: now(),
  started_at: now(),
  finished_at: null,
  progress: { done: 3, total: 10, failed: 0 },
});

function send(answer, kind, data, id) {
  answer.write(`event: ${kind}\nid: 1-${id}\ndata: ${JSON.stringify(data)}\n\n`);
}

/** Calls `make` so often that it keeps the rate, however unpunctual the timer is. */
function steadily(answer, make) {
  const begun = performance.now();
  let sent = 0;
  const timer = setInterval(() => {
    const due = ((performance.now() - begun) / 1000) * CHANGES_PER_SECOND;
    while (sent < due) make(sent++);
  }, 5);
  answer.on("close", () => clearInterval(timer));
}

function followOne(answer) {
  send(answer, "snapshot", { ...item(ID), input_params: {}, output: null, nodes }, 0);
  const steps = ["QUEUED", "RUNNING", "COMPLETED"];
  steadily(answer, (n) => {
    const at = Math.floor(n / 60) * 20 + (n % 20);
    const status = steps[Math.floor(n / 20) % 3];
    const change = { id: `node_${at % NODES}`, status, attempt: 1, worker: "worker@speed" };
    send(answer, "change", { execution_id: ID, run: 1, at: now(), nodes: [change] }, n + 1);
  });
}

function followList(answer) {
  const idOf = (n) => `01990000-0000-7000-8000-${String(n).padStart(12, "0")}`;
  send(answer, "snapshot", { items: Array.from({ length: 100 }, (_, n) => item(idOf(99 - n))), gone: [] }, 0);
  steadily(answer, (n) =>
    send(
      answer,
      "change",
      { items: [item(idOf(n % 2 ? 100 + n : (n * 7) % 100), n % 2 ? "RUNNING" : "COMPLETED")], gone: [] },
      n + 1,
    ),
  );
}

function answerApi(path, answer) {
  const isStream = path.endsWith("/events");
  answer.writeHead(200, { "Content-Type": isStream ? "text/event-stream" : "application/json" });
  if (path === "/v1/executions/events") return followList(answer);
  if (isStream) return followOne(answer);
  answer.end(
    JSON.stringify({
      items: [],
      next_cursor: null,
      nodes: [],
      attempts: [],
      config: {},
      output: null,
      definition: { name: "speed", nodes: [] },
    }),
  );
}

const server = createServer((request, answer) => {
  const { pathname } = new URL(request.url, "http://speed");
  if (pathname.startsWith("/v1/")) return answerApi(pathname, answer);
  const file = join(STATIC, pathname === "/" ? "index.html" : pathname);
  if (!existsSync(file)) return answer.writeHead(404).end();
  const packed = existsSync(`${file}.gz`);
  answer.writeHead(200, {
    "Content-Type": TYPES[file.split(".").at(-1)],
    ...(packed ? { "Content-Encoding": "gzip" } : {}),
  });
  createReadStream(packed ? `${file}.gz` : file).pipe(answer);
});

async function measure(browser, url) {
  const page = await newPage(browser);
  const session = await page.context().newCDPSession(page);
  await page.goto(url);
  await page.getByRole("heading").first().waitFor();
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  await page.waitForTimeout(1000);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const system = await browser.newBrowserCDPSession();
  const [before, cpuBefore, begun] = [await metrics(session), await cpu(system), performance.now()];
  const frames = await page.evaluate(
    (seconds) =>
      new Promise((done) => {
        const begun = performance.now();
        let [count, longest, last] = [0, 0, begun];
        const step = (at) => {
          count++;
          longest = Math.max(longest, at - last);
          last = at;
          if (at - begun < seconds * 1000) requestAnimationFrame(step);
          else done({ perSecond: (count * 1000) / (at - begun), longest });
        };
        requestAnimationFrame(step);
      }),
    SECONDS,
  );
  const [after, cpuAfter, seconds] = [await metrics(session), await cpu(system), (performance.now() - begun) / 1000];
  const share = (name) => `${Math.round((100 * (after[name] - before[name])) / seconds)} %`;
  await page.context().close();
  return {
    "first paint ms": Math.round(paint),
    "frames/s": Number(frames.perSecond.toFixed(1)),
    "longest ms": Math.round(frames.longest),
    script: share("ScriptDuration"),
    style: share("RecalcStyleDuration"),
    layout: share("LayoutDuration"),
    "main thread": share("TaskDuration"),
    browser: `${Math.round((100 * (cpuAfter - cpuBefore)) / seconds)} %`,
  };
}

/** Seconds of all processes of the browser. */
async function cpu(system) {
  const { processInfo } = await system.send("SystemInfo.getProcessInfo");
  return processInfo.reduce((sum, { cpuTime }) => sum + cpuTime, 0);
}

async function metrics(session) {
  const { metrics: list } = await session.send("Performance.getMetrics");
  return Object.fromEntries(list.map(({ name, value }) => [name, value]));
}

server.listen(0, "127.0.0.1", async () => {
  const base = `http://127.0.0.1:${server.address().port}/#`;
  const browser = await launch();
  const views = {
    list: "/executions",
    graph: `/executions/${ID}`,
    timeline: `/executions/${ID}?view=timeline`,
    log: `/executions/${ID}?view=log`,
    inspector: `/executions/${ID}?view=log&node=node_40`,
  };
  const rows = {};
  for (const [name, path] of Object.entries(views)) rows[name] = await measure(browser, base + path);
  console.log(`${CHANGES_PER_SECOND} changes a second, ${NODES} nodes`);
  console.table(rows);
  const main = readdirSync(join(STATIC, "assets")).filter((name) => name.startsWith("index-") && name.endsWith(".gz"));
  console.log(
    `main bundle ${(main.reduce((sum, name) => sum + statSync(join(STATIC, "assets", name)).size, 0) / 1024).toFixed(0)} KB gzip`,
  );
  await browser.close();
  server.close();
  server.closeAllConnections();
});
