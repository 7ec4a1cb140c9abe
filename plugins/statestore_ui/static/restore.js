// The form of the DAG restore, filled in. Its fields are those of the DAG itself, so it never asks for others; it is
// sent to Airflow's own API, which checks it, with the rights of the user. (Airflow 3.3 cannot open its own form filled in.)

import { get, post } from "./data.js";
import { Notice, h, runPath } from "./parts.js";

const { useEffect, useRef, useState } = globalThis.React;
const { Link } = globalThis.ReactRouterDOM;

const types = (schema) => [schema.type].flat();

export function RestoreDialog({ fill, onClose, onStarted }) {
  const dialog = useRef(null);
  const [dag, setDag] = useState(null);
  const [values, setValues] = useState({});
  const [state, setState] = useState({});
  useEffect(() => {
    dialog.current.showModal();
    get("api/v2/dags/restore/details").then(
      (found) => {
        setDag(found);
        const fields = Object.entries(found.params ?? {});
        setValues(Object.fromEntries(fields.map(([name, param]) => [name, asText(fill[name] ?? param.value, param.schema)])));
      },
      (error) => setState({ error: error.message }),
    );
  }, []);
  const start = async (event) => {
    event.preventDefault();
    setState({ busy: true });
    try {
      const fields = Object.entries(dag.params).map(([name, param]) => [name, asValue(values[name], param.schema)]);
      const run = await post("api/v2/dags/restore/dagRuns", { logical_date: null, conf: Object.fromEntries(fields) });
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
    { className: "ss-root ss-dialog", ref: dialog, onClose, "aria-labelledby": "ss-restore-title" },
    h(
      "form",
      { onSubmit: start },
      h("h3", { id: "ss-restore-title" }, "Restore"),
      h("p", { className: "ss-muted" }, "Starts the DAG restore. Each store is built beside the live one and checked before it takes its place; what is whole is skipped."),
      dag?.is_paused && h(Notice, { title: "The DAG restore is paused." }, "The run will wait until somebody turns it on."),
      !dag && !state.error && h("p", null, "Reading the form …"),
      own.map(field),
      others.length > 0 && h("details", null, h("summary", null, "More"), others.map(field)),
      state.error && h(Notice, { level: "bad", title: "Not started." }, state.error),
      state.run && h(Notice, { level: "good", title: "Started." }, h(Link, { to: runPath(state.run) }, `Run ${state.run.dag_run_id}`)),
      h(
        "footer",
        null,
        h("button", { type: "button", className: "ss-button", onClick: () => dialog.current.close() }, state.run ? "Close" : "Cancel"),
        !state.run && h("button", { type: "submit", className: "ss-button ss-primary", disabled: !dag || state.busy }, "Start the restore"),
      ),
    ),
  );
}

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
