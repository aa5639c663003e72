/* What the server says about a definition while it is being written. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, data, type ErrorItem, Problem } from "../api/client";

const PAUSE_MS = 300;
export const NO_PROBLEMS: ErrorItem[] = [];

/** A text goes to the server as it is written, so that problems have lines. */
export function asYaml(text: string) {
  return {
    body: text as never,
    bodySerializer: (body: unknown) => body as string,
    headers: { "Content-Type": "application/yaml" },
  };
}

/** The text as it is when nobody has typed for a moment. */
export function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

export function useProblems(text: string) {
  return useQuery({
    queryKey: ["validate", text],
    staleTime: 10_000,
    placeholderData: (old) => old,
    queryFn: async (): Promise<{ problems: ErrorItem[]; count: number }> => {
      try {
        const { nodes } = await data(api.POST("/v1/validate", asYaml(text)));
        return { problems: NO_PROBLEMS, count: nodes };
      } catch (error) {
        if (!(error instanceof Problem) || (error.status !== 422 && error.status !== 400)) throw error;
        const problems = error.errors.length ? error.errors : [{ loc: [], msg: error.message, code: error.code }];
        return { problems, count: 0 };
      }
    },
  });
}
