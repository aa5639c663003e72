/* How times and spans are written, and a clock that components can watch. */
import { useEffect, useState } from "react";

export function ms(time: string | null | undefined): number | null {
  return time ? Date.parse(time) : null;
}

/** 640 ms, 4.2 s, 3 m 05 s, 2 h 10 m, 3 d 4 h */
export function span(milliseconds: number): string {
  const value = Math.max(0, milliseconds);
  if (value < 1000) return `${Math.round(value)} ms`;
  const seconds = value / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${pad(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} m`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** now, 12 s, 5 m, 3 h, 2 d: how long ago */
export function age(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

export function clock(milliseconds: number): string {
  return `${CLOCK.format(milliseconds)}.${String(milliseconds % 1000).padStart(3, "0")}`;
}

export function full(milliseconds: number): string {
  return `${DAY.format(milliseconds)}, ${clock(milliseconds)}`;
}

export function isToday(milliseconds: number): boolean {
  return new Date(milliseconds).toDateString() === new Date().toDateString();
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}

/** The time now, again and again while `isTicking`. */
export function useNow(everyMs: number, isTicking = true): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!isTicking) return;
    setNow(Date.now());
    const timer = setInterval(() => document.hidden || setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, isTicking]);
  return now;
}
