// The page "State stores" and its card on Airflow's dashboard. Airflow imports this module, once, and takes from
// `globalThis` the component that has the name it knows from the plugin (plugins/state_stores.py).

import { Card } from "./card.js";
import { StateStores } from "./page.js";
import { guarded } from "./parts.js";

const style = document.createElement("link");
style.rel = "stylesheet";
style.href = new URL("style.css", import.meta.url).href;
document.head.append(style);

globalThis["Stores"] = guarded(StateStores);
globalThis["State stores card"] = guarded(Card);
