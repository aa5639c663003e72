import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

// While the UI itself is being changed: `npm run dev` beside `headrace dev`. The host stays as the browser sends it,
// since the API takes requests of its own pages only.
const api = process.env.HEADRACE_SERVER ?? "http://127.0.0.1:8080";
const proxy = Object.fromEntries(["/v1", "/metrics", "/readyz"].map((path) => [path, { target: api }]));

/** Beside each large file a packed one: the server sends it as it is to browsers that take it. */
const pack: Plugin = {
  name: "pack",
  apply: "build",
  writeBundle({ dir = "" }) {
    for (const name of readdirSync(join(dir, "assets"))) {
      const content = readFileSync(join(dir, "assets", name));
      if (content.length > 2048) writeFileSync(join(dir, "assets", `${name}.gz`), gzipSync(content, { level: 9 }));
    }
  },
};

export default defineConfig({
  base: "./",
  plugins: [react(), tailwindcss(), pack],
  build: {
    outDir: "../src/headrace/api/static",
    emptyOutDir: true,
    target: ["chrome123", "firefox121", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { host: "127.0.0.1", proxy },
  preview: { host: "127.0.0.1", proxy },
});
