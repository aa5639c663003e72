/* What one can do with dead letters, one or many. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, data } from "../api/client";
import { callEach } from "../api/many";
import { plural } from "../parts/text";
import { say, sayProblem } from "../parts/toasts";

const TOGETHER = 1000; // what one call takes

export function useLetterActions() {
  const queries = useQueryClient();
  const [dropped, setDropped] = useState(0);
  const onSettled = () => void queries.invalidateQueries({ queryKey: ["letters"] });
  const retry = useMutation({ mutationFn: retryAll, onError: sayProblem, onSettled });
  const drop = useMutation({
    mutationFn: (ids: string[]) => dropAll(ids, setDropped),
    onError: sayProblem,
    onSettled,
  });
  return { retry, drop, dropped, isBusy: retry.isPending || drop.isPending };
}

async function retryAll(ids: string[]): Promise<void> {
  let [retried, refused] = [0, 0];
  for (let at = 0; at < ids.length; at += TOGETHER) {
    const answer = await data(api.POST("/v1/dlq/retry", { body: { ids: ids.slice(at, at + TOGETHER) } }));
    retried += answer.retried.length;
    refused += answer.refused.length;
  }
  const but = refused ? `, ${refused} refused: their state does not allow it` : "";
  say(`${plural(retried, "execution")} retried${but}.`, refused > 0);
}

export function dropLetter(letter_id: string): Promise<unknown> {
  return api.DELETE("/v1/dlq/{letter_id}", { params: { path: { letter_id } } });
}

/** The first call says whether it is allowed at all. */
async function dropAll(ids: string[], onDone: (count: number) => void): Promise<void> {
  const [first, ...rest] = ids;
  if (!first) return;
  onDone(0);
  await dropLetter(first);
  onDone(1);
  const refused = await callEach(rest, dropLetter, (count) => onDone(count + 1));
  const but = refused ? `, ${refused} were settled by somebody else` : "";
  say(`${plural(ids.length - refused, "letter")} dropped${but}. The executions stay as they are.`);
}
