// The form of a DAG, filled in. Its fields are those of the DAG itself, so it never asks for others; it is sent to
// Airflow's own API, which checks it, with the rights of the user. (Airflow 3.3 cannot open its own form filled in.)

import { dagId, dagIds, get, post, restorable } from "./data.js";
import { Notice, h, many, number, runPath } from "./parts.js";

const { useEffect, useRef, useState } = globalThis.React;
const { Link } = globalThis.ReactRouterDOM;

const types = (schema) => [schema.type].flat();

const FORMS = {
  restore: { title: "Restore", start: "Start the restore", about: "Each new store is built beside the live one, checked, and swapped in. Healthy stores are skipped." },
  verify: { title: "Verify", start: "Start the verification", about: "Compares the stores of the application with their changelogs and changes nothing. If a restore helps, it starts one, but never of an application without a definition." },
  process: { title: "Process", start: "Start processing", about: "Reads the input up to its current end and brings the stores of the application up to date, exactly once." },
  rewrite: { title: "Rewrite", start: "Start the rewrite", about: "Shows the plan, and waits for approval before it writes. Stop the application first." },
};

/** The DAG of a job; an application may have one of its own for `process`. */
async function dagOf(job, application) {
  const shared = dagId(job, application);
  const own = `${shared}.${application}`;
  return (await dagIds()).includes(own) ? own : shared;
}

export function StartDialog({ dag: job, fill, onClose, onStarted }) {
  const dialog = useRef(null);
  const said = useRef(null);
  const [dag, setDag] = useState(null);
  const [values, setValues] = useState({});
  const [state, setState] = useState({});
  const form = FORMS[job];
  useEffect(() => {
    dialog.current.showModal();
    dagOf(job, fill.application)
      .then((id) => get(`api/v2/dags/${encodeURIComponent(id)}/details`))
      .then(
        (found) => {
          setDag(found);
          const fields = Object.entries(found.params ?? {});
          setValues(Object.fromEntries(fields.map(([name, param]) => [name, asText(fill[name] ?? param.value, param.schema)])));
        },
        (error) => setState({ error: error.message }),
      );
  }, []);
  useEffect(() => {
    if (state.run) said.current?.querySelector("a")?.focus();
  }, [state.run]);
  const start = async (event) => {
    event.preventDefault();
    setState({ busy: true });
    try {
      const fields = Object.entries(dag.params).map(([name, param]) => [name, asValue(values[name], param.schema)]);
      const run = await post(`api/v2/dags/${encodeURIComponent(dag.dag_id)}/dagRuns`, { logical_date: null, conf: Object.fromEntries(fields) });
      setState({ run });
      onStarted();
    } catch (error) {
      setState({ error: error.message });
    }
  };
  const fields = Object.entries(dag?.params ?? {});
  const own = fields.filter(([, param]) => !param.schema.section);
  const others = fields.filter(([, param]) => param.schema.section);
  const field = ([name, param]) =>
    h(Field, { key: name, name, param, value: values[name], onChange: (value) => setValues({ ...values, [name]: value }) });
  return h(
    "dialog",
    { className: "ss-root ss-dialog", ref: dialog, onClose, "aria-labelledby": "ss-start-title" },
    h(
      "form",
      { onSubmit: start },
      h("h3", { id: "ss-start-title" }, form.title),
      h("p", { className: "ss-muted" }, `Starts the DAG ${dag?.dag_id ?? job}. ${form.about}`),
      dag?.is_paused && h(Notice, { title: `The DAG ${dag.dag_id} is paused.` }, "The run waits until someone unpauses the DAG."),
      !dag && !state.error && h("p", null, "Reading the form …"),
      dag && job === "restore" && !state.run && h(Rebuilt, { values, params: dag.params }),
      // What was sent can be read, but not sent again by mistake.
      h("fieldset", { disabled: Boolean(state.run || state.busy) }, own.map(field), others.length > 0 && h("details", null, h("summary", null, "More"), others.map(field))),
      h(
        "footer",
        { ref: said },
        state.error && h(Notice, { level: "bad", title: "Not started." }, state.error),
        state.run && h(Notice, { level: "good", title: "Started." }, h(Link, { to: runPath(state.run) }, `Run ${state.run.dag_run_id}`), dag.is_paused && `. It waits: the DAG ${dag.dag_id} is paused.`),
        h("button", { type: "button", className: "ss-button", onClick: () => dialog.current.close() }, state.run ? "Close" : "Cancel"),
        !state.run && h("button", { type: "submit", className: "ss-button ss-primary", disabled: !dag || state.busy }, state.busy ? "Starting …" : form.start),
      ),
    ),
  );
}

/** How many store partitions the restore would rebuild, by the newest reports. */
function Rebuilt({ values, params }) {
  const [found, setFound] = useState(null);
  const [application, stores, partitions] = ["application", "stores", "partitions"].map((name) => asValue(values[name] ?? "", params[name].schema));
  const whole = (partitions ?? []).filter(Number.isInteger);
  const asked = JSON.stringify([application ?? "", stores ?? [], whole, values.force === true]);
  useEffect(() => {
    let ended = false;
    const timer = setTimeout(() => {
      restorable(...JSON.parse(asked)).then(
        (answer) => ended || setFound(answer),
        () => ended || setFound(null), // Airflow's own plan says it
      );
    }, TYPING_MS);
    return () => ((ended = true), clearTimeout(timer));
  }, [asked]);
  if (!found) return null;
  const { of, restored } = found;
  const others = values.force === true || of === restored ? "" : ` The other ${number(of - restored)} ${of - restored === 1 ? "was" : "were"} not found damaged or behind, and ${of - restored === 1 ? "is" : "are"} checked again first.`;
  return h("p", { role: "status", className: "ss-rebuilt" }, h("strong", null, `Restores ${number(restored)} of ${many(of, "store partition")}.`), others);
}

const TYPING_MS = 200;

function Field({ name, param, value, onChange }) {
  const { schema } = param;
  const title = schema.title ?? name;
  const text = param.description ?? schema.description ?? marked(schema.description_md);
  const id = `ss-field-${name}`;
  const about = text && h("small", { id: `${id}-about` }, text);
  const common = { name, id, disabled: value === undefined, "aria-label": title, "aria-describedby": about ? `${id}-about` : undefined };
  if (types(schema).includes("boolean")) {
    return h(
      "label",
      { className: "ss-field ss-check" },
      h("input", { ...common, type: "checkbox", checked: value === true, onChange: (event) => onChange(event.target.checked) }),
      h("span", null, title, about),
    );
  }
  const changed = { value: value ?? "", onChange: (event) => onChange(event.target.value) };
  const input = schema.enum
    ? h("select", { ...common, ...changed }, schema.enum.map((each) => h("option", { key: each, value: each }, schema.values_display?.[each] ?? each)))
    : h("input", { ...common, ...changed, type: "text", list: `${id}-list`, placeholder: types(schema).includes("array") ? "all" : "" });
  const suggested = schema.examples && h("datalist", { id: `${id}-list` }, schema.examples.map((each) => h("option", { key: each, value: each })));
  return h("label", { className: "ss-field" }, h("span", null, title), input, suggested, about);
}

/** The little of Markdown that descriptions have. */
function marked(text) {
  return text?.split(/(\*[^*]+\*|`[^`]+`)/).map((part, place) => {
    if (place % 2 === 0) return part;
    return h(part[0] === "`" ? "code" : "em", { key: place }, part.slice(1, -1));
  });
}

/** A value as it stands in a field; lists with commas. */
function asText(value, schema) {
  if (types(schema).includes("boolean")) return value === true;
  if (value === null || value === undefined) return "";
  return Array.isArray(value) ? value.join(", ") : String(value);
}

/** What a field says, as the DAG wants it; what is no number is sent as it is, and Airflow says so. */
function asValue(text, schema) {
  const wanted = types(schema);
  if (typeof text === "boolean") return text;
  if (wanted.includes("array")) {
    const items = text.split(/[,[\]\n]/).map((item) => item.trim()).filter(Boolean);
    return ["integer", "number"].includes(schema.items?.type) ? items.map(asNumber) : items;
  }
  if (text.trim() === "") return wanted.includes("null") ? null : text;
  return wanted.includes("integer") || (wanted.includes("number") && !wanted.includes("string")) ? asNumber(text) : text.trim();
}

const asNumber = (text) => (Number.isFinite(Number(text)) ? Number(text) : text);
