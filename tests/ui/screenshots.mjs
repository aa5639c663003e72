/* Pictures of every screen for the docs, in light and dark: `make screenshots` writes them anew. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { seed } from "./demo.mjs";
import { shrunk } from "./png.mjs";
import { launch, loaded, newPage, ROOT, Server } from "./server.mjs";

const FOLDER = process.env.SCREENSHOTS ?? join(ROOT, "docs/images");
const WIDE = { width: 1280, height: 800 };
const NARROW = { width: 390, height: 844 };

/** By the name of the file: where it is, what to do there first, and what to wait for. */
const SCREENS = ({ order, large, waiting, failed, letter }) => ({
  executions: { path: "/executions", seen: "nightly-report" },
  graph: { path: `/executions/${order}?node=charge`, seen: "Retry from here" },
  timeline: { path: `/executions/${order}?view=timeline&node=price&tab=attempts`, seen: "attempt 3" },
  "event-log": { path: `/executions/${order}?view=log&node=charge&tab=logs`, seen: "worked_seconds" },
  config: { path: `/executions/${order}?node=charge&tab=config`, seen: "Whole config" },
  conversation: { path: `/executions/${order}?node=mail&tab=conversation`, seen: "All tokens" },
  waiting: { path: `/executions/${waiting}?node=send`, seen: "Waits for approve" },
  failed: { path: `/executions/${failed}?node=book`, seen: "the ledger of" },
  large: { path: `/executions/${large}`, seen: "completed" },
  workflows: { path: "/workflows", seen: "approval" },
  workflow: { path: "/workflows/order?version=2&against=1", seen: "From v1 to v2" },
  editor: { path: "/edit?workflow=order&version=2", seen: "Valid", act: mistake },
  "run-form": { path: "/workflows/order?run=true", seen: "How many things" },
  "dead-letters": { path: `/dead-letters?letter=${letter}`, seen: "was given" },
  "edit-and-retry": {
    path: `/edit?execution=${failed}&letter=${letter}`,
    seen: "Valid",
    act: (page) => page.getByRole("button", { name: "Run…" }).click(),
  },
  search: { path: "/executions", seen: "nightly-report", act: search },
  "narrow-executions": { path: "/executions", seen: "nightly-report", viewport: NARROW },
  "narrow-graph": { path: `/executions/${order}?node=charge`, seen: "Retry from here", viewport: NARROW },
  "narrow-timeline": { path: `/executions/${order}?view=timeline`, seen: "critical path", viewport: NARROW },
  "narrow-dead-letters": { path: "/dead-letters", seen: "the ledger of", viewport: NARROW },
  workers: { path: "/workers", seen: "Alive", act: busy }, // the last one: what it starts is in all lists
});

async function mistake(page) {
  await page.getByLabel(/^Definition, as YAML/).click();
  await page.keyboard.press("Control+Home");
  await page.keyboard.type("owner: me\n");
  await page.getByRole("list", { name: "Problems" }).getByText("owner").waitFor();
}

/** Something happens while one looks, so that the plots have something to show. */
async function busy(page, server) {
  for (let turn = 0; turn < 14; turn++) {
    await Promise.all(
      Array.from({ length: 1 + (turn % 3) }, () =>
        server.call("POST", "/v1/executions", { workflow: "nightly-report" }),
      ),
    );
    await page.waitForTimeout(700);
  }
  await page.getByRole("img", { name: /p50 \d/ }).waitFor();
}

async function search(page) {
  await page.keyboard.press("Control+k");
  await page.keyboard.type("or");
  await page.getByRole("listbox").getByRole("option", { name: /order/ }).first().waitFor();
}

async function take(browser, server, name, { path, seen, act, viewport = WIDE }, colorScheme) {
  const page = await newPage(browser, { viewport, colorScheme, reducedMotion: "reduce" });
  await page.goto(`${server.url}/#${path}`);
  await page.locator("body").getByText(seen).filter({ visible: true }).first().waitFor();
  await loaded(page);
  await act?.(page, server);
  await page.waitForTimeout(600); // the graph moves into sight
  const picture = shrunk(await page.screenshot({ type: "png" }));
  writeFileSync(join(FOLDER, `${name}-${colorScheme}.png`), picture);
  console.log(`${name}-${colorScheme}.png ${Math.round(picture.length / 1024)} KB`);
  await page.context().close();
  return picture.length;
}

mkdirSync(FOLDER, { recursive: true });
const [server, browser] = await Promise.all([Server.started(), launch()]);
try {
  const screens = SCREENS(await seed(server));
  const wanted = Object.entries(screens).filter(
    ([name]) => !process.env.ONLY || process.env.ONLY.split(",").includes(name),
  );
  let total = 0;
  for (const [name, screen] of wanted)
    for (const scheme of ["light", "dark"]) total += await take(browser, server, name, screen, scheme);
  console.log(`${Math.round(total / 1024)} KB in all`);
} finally {
  await browser.close();
  await server.remove();
}
