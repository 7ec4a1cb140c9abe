// The store partitions that the table shows: asked for where they are looked at, a hundred at a time.

import { partitions } from "./data.js";

const { useCallback, useEffect, useRef, useState } = globalThis.React;

const PAGE = 100;
const TYPING_MS = 150;
const NOTHING = { total: 0, of: 0, levels: {}, pages: new Map(), loaded: false, error: null };

/**
 * Answers of one question, kept up to date: asked again when `version` is another one.
 *
 * `row(index)` is undefined until it has come; `look(first, last)` says which are looked at.
 */
export function usePartitions(question, version) {
  const [state, setState] = useState(NOTHING);
  const asked = JSON.stringify(question);
  const current = useRef({ asked, version });
  const seen = useRef([0, 0]);
  const pending = useRef(new Set());
  const load = useCallback(async (page, anew) => {
    const { asked, version } = current.current;
    const ours = () => current.current.asked === asked && current.current.version === version;
    if (pending.current.has(page)) return;
    pending.current.add(page);
    try {
      const found = await partitions(JSON.parse(asked), page * PAGE, PAGE);
      if (ours()) {
        setState((before) => {
          const pages = new Map(anew ? [] : before.pages).set(page, found.rows);
          return { total: found.total, of: found.of, levels: found.levels, pages, loaded: true, error: null };
        });
      }
    } catch (error) {
      if (ours()) setState((before) => ({ ...before, error: error.message }));
    } finally {
      if (ours()) pending.current.delete(page);
    }
  }, []);
  useEffect(() => {
    const typed = current.current.asked !== asked;
    if (typed) seen.current = [0, 0];
    current.current = { asked, version };
    pending.current = new Set();
    if (!version) return undefined;
    const timer = setTimeout(async () => {
      const [first, last] = seen.current.map((index) => Math.floor(index / PAGE));
      await load(first, true);
      for (let page = first + 1; page <= last; page++) load(page, false);
    }, typed ? TYPING_MS : 0);
    return () => clearTimeout(timer);
  }, [asked, version]);
  const look = useCallback(
    (first, last) => {
      seen.current = [first, Math.max(last - 1, first)];
      const [from, to] = seen.current.map((index) => Math.floor(index / PAGE));
      if (!state.loaded) return;
      for (let page = from; page <= to; page++) if (!state.pages.has(page)) load(page, false);
    },
    [state, load],
  );
  const row = (index) => state.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
  return { ...state, row, look };
}

/** One store partition by its label; undefined until it has come, null if there is none. */
export function usePartition(label, version) {
  const [found, setFound] = useState({ label: null, row: undefined });
  useEffect(() => {
    if (!label || !version) return undefined;
    let ended = false;
    const [application, ...rest] = label.split("/");
    const question = { application, store: rest.slice(0, -1).join("/"), task: rest.at(-1) ?? "" };
    partitions(question, 0, 1).then(
      (answer) => ended || setFound({ label, row: answer.rows[0] ?? null }),
      () => {}, // the table says what is wrong
    );
    return () => (ended = true);
  }, [label, version]);
  return found.label === label ? found.row : undefined;
}
