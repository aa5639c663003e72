/* What people do with the web UI, in a real browser against a real server. Everything waits for what it wants to see. */
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { AXE, launch, newPage, Server } from "./server.mjs";

let server, browser, page;
before(async () => {
  [server, browser] = await Promise.all([Server.started(), launch()]);
});
after(async () => {
  await browser?.close();
  await server?.remove();
});
beforeEach(async () => {
  page = await newPage(browser);
});
afterEach(async () => {
  const { faults } = page;
  await page.context().close();
  assert.deepEqual(faults, []);
});

const open = (path) => page.goto(`${server.url}/#${path}`);
const status = (word) => page.locator("main header").getByText(word, { exact: true }).waitFor();
const node = (name) => page.locator(".graph-node", { hasText: name });

function definition(name, ...nodes) {
  return { name, nodes: nodes.map(([id, handler, config = {}, dependencies = []]) => ({ id, handler, config, dependencies })) };
}

test("write a workflow, run it, read its output", async () => {
  await open("/executions");
  await page.getByText("Nothing has run yet").waitFor();
  await page.getByRole("link", { name: "write one here" }).click();
  await page.getByText("Valid, 2 nodes").waitFor();
  const editor = page.getByLabel(/^Definition, as YAML/);
  await editor.click();
  await page.keyboard.press("Control+End");
  const words = "a comment that is typed quickly, while the page is busy with checking and drawing";
  await page.keyboard.type(`\n# ${words}\n# ${words}`);
  assert.match(await editor.innerText(), new RegExp(`# ${words}\n# ${words}$`)); // nothing is lost or moved
  await page.keyboard.press("Control+Home");
  await page.keyboard.type("owner: me\n");
  await page.getByRole("list", { name: "Problems" }).getByText("owner").waitFor();
  for (let key = 0; key < "owner: me\n".length; key++) await page.keyboard.press("Backspace");
  await page.getByText("Valid, 2 nodes").waitFor();
  await page.getByRole("button", { name: "Run…" }).click();
  await page.getByLabel(/^name/).fill("Ada");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await status("Completed");
  await page.getByText('"Hello Ada"').waitFor();
});

test("watch it live, read an error, retry, see it complete", async () => {
  const id = await server.run(
    definition("order", ["wait", "gate", { name: "open-1" }], ["charge", "repairable", { name: "till-1", words: "the till is closed" }, ["wait"]], ["done", "output", { paid: "{{ charge.repaired }}" }, ["charge"]]),
  );
  await open(`/executions/${id}`);
  await node("wait").getByLabel("Running").waitFor();
  await node("charge").getByLabel("Pending").waitFor();
  server.touch("open-1");
  await node("wait").getByLabel("Completed").waitFor();
  await node("charge").getByLabel("Failed").waitFor();
  await node("charge").click();
  await page.getByRole("complementary").getByText("the till is closed").waitFor();
  server.touch("till-1");
  await page.getByRole("button", { name: "Retry", exact: true }).click();
  await status("Completed");
  await node("done").click();
  await page.getByRole("tab", { name: "Config" }).click();
  await page.getByRole("button", { name: "charge", exact: true }).click(); // the value came from there
  await page.getByRole("heading", { name: "charge", exact: true }).waitFor();
});

test("cancel one, find it by a filter, retry it from the list", async () => {
  const id = await server.run(definition("endless", ["wait", "gate", { name: "never" }]));
  await open(`/executions/${id}`);
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await status("Cancelled");
  await open("/executions");
  await page.getByRole("button", { name: /Cancelled$/ }).click();
  await page.getByPlaceholder("Id, workflow or error").fill(id.slice(-12));
  const row = page.getByRole("listitem").filter({ hasText: "endless" });
  await row.waitFor();
  assert.match(page.url(), /status=CANCELLED/);
  await row.getByRole("checkbox").check();
  await page.getByRole("button", { name: "Retry 1" }).click();
  await row.waitFor({ state: "detached" }); // it runs, so it no longer fits the filter
  await page.getByRole("button", { name: "Clear", exact: true }).first().click();
  await page.getByRole("listitem").filter({ hasText: "endless" }).getByText("Running").waitFor();
});

test("requeue a dead letter", async () => {
  const id = await server.run(definition("letters", ["charge", "repairable", { name: "till-2", words: "no ink" }]));
  await open("/dead-letters?workflow=letters");
  await page.getByText("Fatal: no ink").waitFor();
  server.touch("till-2");
  await page.getByRole("button", { name: "Retry", exact: true }).click();
  await page.getByText("1 execution retried.").waitFor();
  await page.getByRole("heading", { name: "No dead letters" }).waitFor();
  await open(`/executions/${id}`);
  await status("Completed");
});

const EVIL = `"><img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}\u202Egnp.\u2066javascript:alert(3)`;

test("hostile text is text, and a megabyte does not hurt", async () => {
  const config = { text: EVIL, [EVIL]: EVIL, big: "x".repeat(400_000), list: Array.from({ length: 20_000 }, (_, at) => at) };
  const raw = JSON.parse(JSON.stringify(config).replaceAll("{{", "{ {"));
  const id = await server.run({ ...definition("hostile", ["say", "say", raw], ["fail", "repairable", { name: "x", words: EVIL.replaceAll("{{", "{ {") }, ["say"]]), description: EVIL });
  for (const [view, tab] of [["graph", "config"], ["timeline", "output"], ["log", "logs"], ["graph", "attempts"]]) {
    for (const chosen of ["say", "fail"]) {
      await open(`/executions/${id}?view=${view}&node=${chosen}&tab=${tab}`);
      await page.getByRole("tabpanel").getByText(/img src|attempt 1|no output|said nothing/).first().waitFor();
    }
  }
  for (const path of ["/executions", "/dead-letters", "/workflows/hostile", "/edit?workflow=hostile&version=1"]) {
    await open(path);
    await page.locator("main").getByText("hostile").filter({ visible: true }).first().waitFor();
  }
  assert.equal(await page.locator("img[src='x'], main script").count(), 0);
});

test("a lost connection is shown, and heals", async () => {
  await open("/executions");
  await page.getByRole("list", { name: "Executions" }).waitFor();
  await server.stop();
  await page.getByRole("alert").getByText("cannot be reached").waitFor();
  await server.start();
  await page.getByRole("alert").waitFor({ state: "detached" });
  await server.run(definition("afterwards", ["say", "say"]));
  await page.getByRole("link", { name: "afterwards" }).waitFor();
});

test("nothing serious for axe, in light and dark", async () => {
  const id = await server.run(definition("seen", ["say", "say", { text: "hello" }], ["done", "output", { text: "{{ say.text }}" }, ["say"]]));
  const paths = ["/executions", `/executions/${id}?node=done&tab=config`, `/executions/${id}?view=timeline`, `/executions/${id}?view=log`, "/workflows", "/workflows/seen?run=true", "/edit", "/dead-letters", "/workers"];
  for (const colorScheme of ["light", "dark"]) {
    const looked = await newPage(browser, { colorScheme, bypassCSP: true });
    for (const path of paths) {
      await looked.goto("about:blank");
      await looked.goto(`${server.url}/#${path}`);
      await looked.getByRole("heading").first().waitFor();
      await looked.waitForFunction(() => !document.body.innerText.includes("Loading "));
      await looked.addScriptTag({ path: AXE });
      const { violations } = await looked.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
      assert.deepEqual(serious.map(({ id: rule, nodes }) => `${path} ${colorScheme}: ${rule} ${nodes[0].html}`), []);
    }
    await looked.context().close();
  }
});

test("with keys set it asks for one, and keeps it in this tab alone", async () => {
  const guarded = await Server.started({ API_KEYS: "ui:run:secret-key-of-the-test-1234567890" });
  try {
    await page.goto(`${guarded.url}/#/workers`);
    await page.getByRole("dialog", { name: "API key" }).waitFor();
    await page.getByPlaceholder("hr_…").fill("secret-key-of-the-test-1234567890");
    await page.getByRole("button", { name: "Use this key" }).click();
    await page.getByText("Alive").waitFor();
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("secret-key")), false);
  } finally {
    await guarded.remove();
  }
});
