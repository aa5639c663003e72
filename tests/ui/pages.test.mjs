/* What holds for every page: nothing hostile comes to life, everybody can use it, it fits a telephone, it is small. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AXE, loaded, newPage } from "./server.mjs";
import { definition, stage } from "./stage.mjs";

const here = stage();
const { open, state, button, write } = here;

const EVIL = `"><img src=x onerror=alert(1)><script>alert(2)</script>{ {7*7}}\u202Egnp.\u2066javascript:alert(3)`;

test("hostile text is text in every field, and a megabyte does not hurt", async () => {
  const { page, server } = here;
  const inputs = {
    [EVIL]: { type: "string", default: EVIL, description: EVIL },
    choice: { enum: [EVIL], default: EVIL, description: EVIL },
  };
  const config = {
    text: EVIL,
    [EVIL]: EVIL,
    big: "x".repeat(900_000),
    list: Array.from({ length: 15_000 }, (_, at) => at),
  };
  const hostile = {
    ...definition(
      "hostile",
      ["say", "say", config],
      ["ask", "llm_service", { model: "echo", system: EVIL, prompt: EVIL }],
      ["fail", "repairable", { name: "x", words: EVIL }, ["say"]],
    ),
    description: EVIL,
    inputs,
  };
  const id = await server.run(hostile, { [EVIL]: EVIL });
  assert.equal(await server.ended(id), "FAILED");
  const [letter] = (await server.call("GET", "/v1/dlq?workflow=hostile")).items;
  const there = () =>
    page
      .locator("main")
      .getByText(/img src|hostile/)
      .filter({ visible: true })
      .first()
      .waitFor();

  for (const [view, tab, ...nodes] of [
    ["graph", "config", "say", "ask"],
    ["timeline", "output", "say", "ask"],
    ["log", "logs", "say"],
    ["graph", "attempts", "fail"],
    ["graph", "conversation", "ask"],
    ["graph", "summary", "fail"],
  ]) {
    for (const chosen of nodes) {
      await open(`/executions/${id}?view=${view}&node=${chosen}&tab=${tab}`);
      await page
        .getByRole("tabpanel")
        .getByText(/img src/)
        .first()
        .waitFor();
    }
  }
  await open(`/executions/${id}?node=say&tab=output`);
  await button("all 900,000 characters").click(); // the whole of it
  for (const path of [
    "/executions",
    `/executions?q=${encodeURIComponent(EVIL.slice(0, 40))}`,
    `/executions/${id}`,
    `/dead-letters?letter=${letter.id}`,
    "/workflows",
    "/workflows/hostile",
    "/workflows/hostile?run=true",
    "/edit?workflow=hostile&version=1",
    `/edit?execution=${id}&letter=${letter.id}`,
  ]) {
    await open(path);
    await there();
  }
  for (const path of [
    `/executions/${encodeURIComponent(EVIL)}`,
    `/workflows/${encodeURIComponent(EVIL)}`,
    `/edit?workflow=${encodeURIComponent(EVIL)}`,
  ]) {
    await open(path);
    await page.getByRole("alert").first().waitFor();
  }
  assert.equal(await page.locator("img[src='x'], main script").count(), 0);
});

test("a definition with hostile ids is drawn while it is written", async () => {
  const { page } = here;
  await open("/edit");
  await page.getByText(/^Valid/).waitFor();
  await write(
    `name: x\nnodes:\n  - {id: '(${EVIL.replaceAll("'", "''")}[', handler: say}\n  - {id: b, handler: say, dependencies: [b, c, nobody]}\n  - {id: c, handler: say, dependencies: [b]}\n`,
  );
  await page.locator(".graph-node", { hasText: "img src" }).click(); // the editor goes to its line
  await page.getByRole("list", { name: "Problems" }).getByRole("button").first().click();
});

test("two thousand nodes", async () => {
  const { page, server } = here;
  const nodes = [
    ["plan", "say"],
    ...Array.from({ length: 999 }, (_, at) => [`fetch_${at}`, "say", {}, ["plan"]]),
    ...Array.from({ length: 999 }, (_, at) => [
      `read_${at}`,
      at === 7 ? "gate" : "say",
      at === 7 ? { name: "never" } : {},
      [`fetch_${at}`],
    ]),
  ];
  const id = await server.run(
    definition("wide", ...nodes, ["gather", "say", {}, nodes.slice(1000).map(([node]) => node)]),
  );
  await open(`/executions/${id}`);
  await page.getByText(/1998\s*completed/).waitFor();
  await page.locator(".graph-node", { hasText: "×998" }).first().waitFor();
  await button("Show all nodes").click();
  await page.locator("canvas").waitFor(); // from afar it is a picture
  const { x, y, width, height } = await page.locator(".react-flow__pane").boundingBox();
  const isChosen = () => page.getByRole("complementary", { name: /^Node/ }).waitFor({ timeout: 1000 });
  for (let step = 0; ; step++) {
    await page.mouse.click(x + width * 0.3 + 2 * step, y + height / 2 + 2 * step); // it may be between two boxes
    if (
      await isChosen().then(
        () => true,
        () => step > 20,
      )
    )
      break;
  }
  await page.locator(".graph-node.is-chosen").waitFor(); // and the graph has come nearer
  await page.keyboard.press("2");
  await page.locator(".react-flow").waitFor({ state: "detached" });
  await page.getByRole("button", { pressed: true, name: /^Completed/ }).waitFor(); // it comes to the chosen one's row
  await page.keyboard.press("3");
  await page.getByPlaceholder("Search events").fill("read_7 running");
  await button(/^\d.* Running read_7\b/).click();
  await page.getByRole("heading", { name: "read_7" }).waitFor();
  await button("Cancel").click();
  await state("Cancelled");
});

test("nothing serious for axe, nothing wider than a telephone", async () => {
  const { server, browser } = here;
  const id = await server.run(
    definition(
      "seen",
      ["say", "say", { text: "hello" }],
      ["ask", "llm_service", { model: "echo", prompt: "{{ say.text }}" }, ["say"]],
      ["fail", "repairable", { name: "x", words: "a long word".repeat(30) }, ["ask"]],
    ),
  );
  await server.ended(id);
  const [letter] = (await server.call("GET", "/v1/dlq?workflow=seen")).items;
  const paths = [
    "/executions",
    `/executions/${id}`,
    `/executions/${id}?node=fail`,
    `/executions/${id}?node=ask&tab=config`,
    `/executions/${id}?view=timeline&node=ask&tab=conversation`,
    `/executions/${id}?view=log&node=fail&tab=attempts`,
    "/workflows",
    "/workflows/seen?run=true",
    "/edit",
    `/edit?execution=${id}&letter=${letter.id}`,
    `/dead-letters?letter=${letter.id}`,
    "/workers",
  ];
  const looks = [{ colorScheme: "light" }, { colorScheme: "dark", viewport: { width: 390, height: 844 } }];
  for (const look of looks) {
    const looked = await newPage(browser, { ...look, bypassCSP: true });
    for (const path of paths) {
      await looked.goto("about:blank");
      await looked.goto(`${server.url}/#${path}`);
      await looked.getByRole("heading").first().waitFor();
      await loaded(looked);
      await looked.addScriptTag({ path: AXE });
      const { violations } = await looked.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
      assert.deepEqual(
        serious.map(({ id: rule, nodes }) => `${path} ${look.colorScheme}: ${rule} ${nodes[0].html}`),
        [],
      );
      const [width, shown] = await looked.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(width <= shown, `${path} is ${width} px wide on ${shown}`);
    }
    assert.deepEqual(looked.faults, []);
    await looked.context().close();
  }
});

test("the first page needs at most 300 KB, packed", async () => {
  const { page } = here;
  const sizes = new Map();
  page.on("response", async (answer) => {
    if (/\.(js|css)$/.test(answer.url())) sizes.set(answer.url(), Number(answer.headers()["content-length"]));
  });
  await open("/executions");
  await page.getByRole("heading", { name: "Executions" }).waitFor();
  await page.waitForLoadState("load");
  const total = [...sizes.values()].reduce((sum, size) => sum + size, 0);
  assert.ok(total > 50_000 && total < 300 * 1024, `${total} bytes in ${sizes.size} files`);
});
