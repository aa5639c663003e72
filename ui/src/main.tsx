import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Problem } from "./api/client";
import { healed } from "./api/connection";
import { keyNeeded } from "./api/key";
import { router } from "./router";
import { applyTheme } from "./shell/theme";
import "./styles.css";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2000,
      retry: (times, error) => times < 2 && !(error instanceof Problem && error.status >= 400 && error.status < 500),
    },
  },
});

applyTheme();
healed.subscribe(() => void queries.invalidateQueries());
keyNeeded.subscribe(() => keyNeeded.get() === null && void queries.invalidateQueries());

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
