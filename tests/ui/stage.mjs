/* What every test here stands on: one server and one browser for a file, a fresh page for each test, and no faults. */
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach } from "node:test";
import { launch, newPage, Server } from "./server.mjs";

export function stage() {
  const here = {};
  before(async () => {
    [here.server, here.browser] = await Promise.all([Server.started(), launch()]);
  });
  after(async () => {
    await here.browser?.close();
    await here.server?.remove();
  });
  beforeEach(async () => {
    here.page = await newPage(here.browser);
  });
  afterEach(async () => {
    const { faults } = here.page;
    await here.page.context().close();
    assert.deepEqual(faults, []);
  });
  here.open = (path) => here.page.goto(`${here.server.url}/#${path}`);
  here.state = (word) => here.page.locator("main header").first().getByText(word, { exact: true }).waitFor();
  here.node = (name) => here.page.locator(".graph-node", { hasText: name });
  here.button = (name) => here.page.getByRole("button", { name, exact: typeof name === "string" });
  /** Instead of all that the editor holds. */
  here.write = async (text) => {
    await here.page.getByLabel(/^Definition, as YAML/).click();
    await here.page.keyboard.press("Control+a");
    await here.page.keyboard.press("Backspace");
    await here.page.keyboard.insertText(text);
  };
  here.inspector = () => here.page.getByRole("complementary");
  return here;
}

/** Nodes as [id, handler, config, dependencies]. */
export function definition(name, ...nodes) {
  return {
    name,
    nodes: nodes.map(([id, handler, config = {}, dependencies = []]) => ({ id, handler, config, dependencies })),
  };
}
