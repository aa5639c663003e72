/* What people do with the web UI, in a real browser against a real server. Everything waits for what it wants to see. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Server } from "./server.mjs";
import { definition, stage } from "./stage.mjs";

const here = stage();
const { open, state, node, button, inspector, write } = here;

const ORDER = `name: order
nodes:
  - {id: wait, handler: gate, config: {name: open-1}}
  - {id: charge, handler: repairable, dependencies: [wait], config: {name: till-1, words: the till is closed}}
  - {id: done, handler: output, dependencies: [charge], config: {paid: "{{ charge.repaired }}"}}
`;

test("write a workflow, start it, watch it live, read an error, retry, see it complete", async () => {
  const { page, server } = here;
  await open("/executions");
  await page.getByText("Nothing has run yet").waitFor();
  await page.getByRole("link", { name: "write one here" }).click();
  await page.getByText("Valid, 2 nodes").waitFor();
  await write(ORDER);
  await page.getByText("Valid, 3 nodes").waitFor();
  await button("Save").click();
  await page.getByRole("complementary").getByRole("link", { name: "Pending" }).click();
  await button("Start").click();

  await node("wait").getByLabel("Running").waitFor();
  await node("charge").getByLabel("Pending").waitFor();
  await node("charge").click();
  await inspector().getByText("Waits for wait").waitFor(); // why it does not run
  server.touch("open-1");
  await node("wait").getByLabel("Completed").waitFor();
  await node("charge").getByLabel("Failed").waitFor();
  await inspector().getByText("the till is closed").waitFor();
  await node("done").click();
  await inspector().getByText("It needs what has failed before it").waitFor();

  server.touch("till-1");
  await button("Retry").click();
  await state("Completed");
  await page.getByRole("tab", { name: "Config" }).click();
  await button("charge").click(); // the value came from there
  await page.getByRole("heading", { name: "charge", exact: true }).waitFor();
});

test("nothing that is typed is lost, and problems stand at their lines", async () => {
  const { page } = here;
  await open("/edit");
  await page.getByText(/^Valid, \d nodes/).waitFor();
  const editor = page.getByLabel(/^Definition, as YAML/);
  await editor.click();
  await page.keyboard.press("Control+End");
  const words = "a comment that is typed quickly, while the page is busy with checking and drawing";
  await page.keyboard.type(`\n# ${words}\n# ${words}`);
  assert.match(await editor.innerText(), new RegExp(`# ${words}\n# ${words}$`));
  await page.keyboard.press("Control+Home");
  await page.keyboard.type("owner: me\n");
  const problem = page.getByRole("list", { name: "Problems" }).getByRole("button", { name: /owner/ });
  await problem.getByText("1:1").waitFor();
  await page.keyboard.press("Control+z");
  await problem.waitFor({ state: "detached" });
});

test("the run form has a field for each input, and says what the server has against a value", async () => {
  const { page, server } = here;
  const inputs = {
    city: { type: "string", default: "Berlin" },
    days: { type: "integer", default: 3, maximum: 7 },
    unit: { enum: ["C", "F"], default: "C" },
  };
  await server.run({
    ...definition("forecast", ["done", "output", { text: "{{ input.city }} {{ input.days }} {{ input.unit }}" }]),
    inputs,
  });
  await open("/workflows/forecast?run=true");
  await page.getByLabel(/^city/).fill("Rome");
  await page.getByLabel(/^days/).fill("9");
  await page.getByLabel(/^unit/).selectOption({ label: "F" });
  await button("Run").click();
  await page.getByLabel(/^days/).and(page.locator("[aria-invalid=true]")).fill("7");
  await button("Run").click();
  await state("Completed");
  await page.getByText('"Rome 7 F"').waitFor();
});

test("cancel one, find it by a filter, retry it from the list", async () => {
  const { page, server } = here;
  const id = await server.run(definition("endless", ["say", "say"], ["wait", "gate", { name: "never" }, ["say"]]));
  await open(`/executions/${id}`);
  await button("Cancel").click();
  await state("Cancelled");
  await open("/executions");
  await button(/Cancelled$/).click();
  await page.getByPlaceholder("Id, workflow or error").fill(id.slice(-12));
  const row = page.getByRole("listitem").filter({ hasText: "endless" });
  await row.waitFor();
  await page.waitForURL(new RegExp(`status=CANCELLED.*q=.*${id.slice(-12)}`));
  await row.getByRole("checkbox").check();
  await button("Retry 1").click();
  await row.waitFor({ state: "detached" }); // it runs, so it no longer fits the filter
  await button("Clear").first().click();
  await row.getByText("Running").waitFor();
  await row.getByText("1/2").waitFor(); // how far it is
  await row.getByRole("checkbox").check();
  await button("Cancel 1").click();
  await row.getByText("Cancelled").waitFor();
});

test("timeline and log show every attempt and wait, to those who watched and to those who come later", async () => {
  const { page, server } = here;
  const id = await server.run(
    definition(
      "stubborn",
      ["wait", "gate", { name: "open-2" }],
      ["busy", "step", { busy: 2, after: 0.1 }, ["wait"]],
      ["till", "repairable", { name: "till-3", words: "no" }, ["busy"]],
    ),
  );
  await open(`/executions/${id}?view=log`);
  await page.getByText("run 1 started").waitFor();
  server.touch("open-2");
  await state("Failed");
  server.touch("till-3");
  await button("Retry").click();
  await state("Completed");
  const told = async () => {
    await page.getByText("run 2 ended").waitFor();
    await page.getByText(/^2[13] events/).waitFor(); // 18 of the nodes; only who watched knows when run 1 began and ended
    const all = await page.getByRole("region", { name: "Event log" }).getByRole("listitem").allInnerTexts();
    return all.filter((text) => !text.includes("execution"));
  };
  const watched = await told();
  await page.reload();
  assert.equal(watched.length, 18);
  assert.deepEqual(await told(), watched);
  await page.keyboard.press("2");
  await page.getByText("kept from run 1").first().waitFor();
  await page.getByLabel("Run", { exact: true }).selectOption("1");
  const row = page.getByRole("button", { name: /busy/ });
  for (const attempt of ["attempt 1: failed", "attempt 2: failed", "attempt 3: completed"])
    await row.getByTitle(attempt).waitFor({ state: "attached" });
  assert.equal(await row.getByTitle(/for the next attempt/).count(), 2);
});

test("retry from a node on runs it and what is behind it again", async () => {
  const { page, server } = here;
  const id = await server.run(
    definition("again", ["first", "say"], ["second", "say", {}, ["first"]], ["third", "say", {}, ["second"]]),
  );
  assert.equal(await server.ended(id), "COMPLETED");
  await open(`/executions/${id}?node=second`);
  await button("Retry from here…").click();
  await page.getByText("runs second and the node behind it again").waitFor();
  await button("Start run 2").click();
  await page.getByText("Run 2 has started").waitFor();
  await page.getByRole("tab", { name: "Attempts 2" }).click();
  await state("Completed");
  await inspector().getByText("Run 2, attempt 1").waitFor();
  await page.keyboard.press("2");
  await page.getByRole("button", { name: /first.*kept from run 1/ }).waitFor();
});

test("requeue a dead letter; drop many, with their number", async () => {
  const { page, server } = here;
  const id = await server.run(definition("letters", ["charge", "repairable", { name: "till-2", words: "no ink" }]));
  await server.ended(id);
  await open("/dead-letters?workflow=letters");
  await page.getByText("Fatal: no ink").waitFor();
  server.touch("till-2");
  await button("Retry").click();
  await page.getByText("1 execution retried.").waitFor();
  await page.getByRole("heading", { name: "No dead letters" }).waitFor();
  await open(`/executions/${id}`);
  await state("Completed");

  const many = await Promise.all(
    ["1", "2", "3"].map((n) =>
      server.run(definition("lost", ["charge", "repairable", { name: "never", words: `order ${n} is lost` }])),
    ),
  );
  await Promise.all(many.map((each) => server.ended(each)));
  await open("/dead-letters?workflow=lost");
  await button("Drop all 3…").click(); // a number does not make another cause
  await button("Drop 3").click();
  await page.getByText("3 letters dropped").waitFor();
  await page.getByRole("heading", { name: "No dead letters" }).waitFor();
});

test("edit and retry a dead letter", async () => {
  const { page, server } = here;
  const broken = {
    ...definition("typo", ["charge", "repairable", { name: "till-with-a-typo", words: "no such till" }]),
    inputs: { by: { type: "string" } },
  };
  await server.ended(await server.run(broken, { by: "Ada" }));
  server.touch("till-4");
  await open("/dead-letters?workflow=typo");
  await page.getByText("Fatal: no such till").click();
  await page.getByText("run 1, attempt 1").click();
  await page.getByText("Edit and retry…").click();
  await page.getByText("Running it starts a new execution").waitFor();
  const editor = page.getByLabel(/^Definition, as YAML/);
  await page.getByText("Valid, 1 node").waitFor();
  const text = await editor.innerText();
  await write(text.replace("till-with-a-typo", "till-4"));
  await page.getByText("Valid, 1 node").waitFor();
  await button("Run…").click();
  assert.equal(await page.getByLabel(/^by/).inputValue(), "Ada");
  await page.getByLabel(/Drop the dead letter/).check();
  await button("Run").click();
  await page.getByText("The dead letter is dropped").waitFor(); // these words do not stay for long
  await state("Completed");
  await open("/dead-letters?workflow=typo");
  await page.getByRole("heading", { name: "No dead letters" }).waitFor();
});

test("versions are compared, and an address leads to what it says", async () => {
  const { page, server } = here;
  const id = await server.run(definition("evolving", ["done", "output", { text: "before" }]));
  await server.run(definition("evolving", ["done", "output", { text: "after" }]));
  await open("/workflows/evolving");
  await button("Compare").click();
  await page.getByText("text: before").waitFor();
  await page.getByText("text: after").waitFor();
  await server.ended(id);
  await open(`/executions/${id}?view=timeline&node=done&tab=output`);
  await page.getByRole("tabpanel").getByText('"before"').waitFor();
  const download = page.waitForEvent("download");
  await button("Download: Output").click();
  assert.equal((await download).suggestedFilename(), "evolving-done.json");
  await button("Copy as…").click();
  await page.getByText(`headrace why ${id}`).waitFor();
});

test("by keyboard alone", async () => {
  const { page, server } = here;
  const id = await server.run(definition("keys", ["first", "say"], ["second", "say", {}, ["first"]]));
  await server.ended(id);
  await open("/workers");
  await page.getByRole("heading", { name: "Workers & queues" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.type(id.slice(-12));
  await page.getByRole("option", { name: /keys/ }).waitFor();
  await page.keyboard.press("Enter");
  await node("first").waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.getByRole("heading", { name: "second", exact: true }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("e");
  await page.getByRole("list", { name: "Executions" }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("keys");
  await page.waitForURL(/q=keys/);
  await page.getByText("1 in all").waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await node("second").waitFor();
});

test("a lost connection is shown, and heals", async () => {
  const { page, server } = here;
  await open("/executions");
  await page.getByRole("list", { name: "Executions" }).waitFor();
  await server.stop();
  await page.getByRole("alert").getByText("cannot be reached").waitFor();
  await server.start();
  await page.getByRole("alert").waitFor({ state: "detached" });
  await server.run(definition("afterwards", ["say", "say"]));
  await page.getByRole("link", { name: "afterwards" }).waitFor();
});

test("with keys set it asks for one, and keeps it in this tab alone", async () => {
  const { page } = here;
  const guarded = await Server.started({ API_KEYS: "ui:run:secret-key-of-the-test-1234567890" });
  try {
    await page.goto(`${guarded.url}/#/workers`);
    await page.getByRole("dialog", { name: "API key" }).waitFor();
    await page.getByPlaceholder("hr_…").fill("secret-key-of-the-test-1234567890");
    await button("Use this key").click();
    await page.getByText("Alive").waitFor();
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("secret-key")), false);
  } finally {
    await guarded.remove();
  }
});
