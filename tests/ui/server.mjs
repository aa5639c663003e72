/* A server of its own for the tests: `headrace dev` in a scratch folder, on a port that the system chose, and a browser. */
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const require = createRequire(new URL("../../ui/package.json", import.meta.url));
const { chromium } = require("playwright-core");
export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
export const AXE = require.resolve("axe-core/axe.min.js");

function freePort() {
  return new Promise((done) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}

export class Server {
  constructor(port) {
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    this.home = mkdtempSync(join(tmpdir(), "headrace-ui-"));
  }

  static async started(env = {}) {
    const server = new Server(await freePort());
    await server.start(env);
    return server;
  }

  async start(env = {}) {
    const options = ["dev", "--port", String(this.port), "--handlers", "tests.ui.handlers"];
    this.log = "";
    this.process = spawn(join(ROOT, ".venv/bin/headrace"), options, {
      cwd: ROOT,
      env: {
        ...process.env,
        HEADRACE_HOME: this.home,
        PYTHONPATH: ROOT,
        WORKER_GRACEFUL_SHUTDOWN_TIMEOUT: "0.5",
        ...env,
      },
    });
    for (const stream of [this.process.stdout, this.process.stderr]) stream.on("data", (text) => (this.log += text));
    this.exited = new Promise((done) => this.process.once("exit", done));
    for (;;) {
      if (this.process.exitCode !== null) throw new Error(`headrace dev ended:\n${this.log}`);
      const answer = await fetch(`${this.url}/readyz`).catch(() => null);
      if (answer?.ok) break;
      await new Promise((done) => setTimeout(done, 200));
    }
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.exited;
  }

  async remove() {
    await this.stop();
    rmSync(this.home, { recursive: true, force: true });
  }

  /** Opens a gate, or repairs what was broken. */
  touch(name) {
    writeFileSync(join(this.home, name), "");
  }

  async call(method, path, body) {
    const headers = body === undefined ? {} : { "Content-Type": "application/json" };
    const answer = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text);
    return text && JSON.parse(text);
  }

  async run(definition, input_params = {}) {
    return (await this.call("POST", "/v1/executions", { definition, input_params })).execution_id;
  }

  /** Resolves when it has ended, whatever came of it. */
  async ended(id) {
    for (;;) {
      const { status } = await this.call("GET", `/v1/executions/${id}`);
      if (status !== "RUNNING" && status !== "PENDING") return status;
      await new Promise((done) => setTimeout(done, 100));
    }
  }
}

export function launch() {
  if (!existsSync(CHROMIUM)) throw new Error(`no Chromium at ${CHROMIUM}: install it, or say where it is by CHROMIUM`);
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}

/** A page that notes what must never happen: errors, dialogs, violations of the policy. */
export async function newPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("dialog", (dialog) => {
    page.faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("console", (message) => /Content Security Policy/i.test(message.text()) && page.faults.push(message.text()));
  return page;
}

/** Everything that the page asked for is there. */
export function loaded(page) {
  return page.waitForFunction(() => !document.body.textContent.includes("Loading "));
}
