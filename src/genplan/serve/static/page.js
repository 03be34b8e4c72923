// What all parts of the page share: its state, messages, and the settings in its forms.

import { fetchApi } from "./api.js";
import { html } from "./draw.js";
import { toLink } from "./link.js";

export const $ = (id) => document.getElementById(id);
export const OPTIONS = ["iterations", "temperature", "order", "num-candidates"]; // of the sampler
export const ORDERS = ["random", "confidence", "margin", "near-to-far", "chain"];
const LINKED = ["task", "seed", "planner", "compare", ...OPTIONS, "action-steps", "slip", "sample-seed"];

export const state = {
  maze: { rows: ["######", "##>>##", "######"], mission: "" }, maxSteps: 400, catalogue: null,
  tool: "##", plan: null, comparedPlan: null, candidate: 0, iteration: 0, heat: null, goal: null,
  requestId: 0, // of the latest request; a response to an earlier one is dropped
};

export function showMessage(text, isError = false) {
  $("message").textContent = text;
  $("message").classList.toggle("bad", isError);
}

export async function runTask(button, task) {
  button.setAttribute("aria-busy", "true"); // not disabled: it would lose the focus
  try {
    await task();
  } catch (error) {
    showMessage(error.message, true);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

export function readNumber(id) {
  const text = $(id).value;
  return text === "" ? null : Number(text);
}

export function fieldName(id) {
  return id.replaceAll("-", "_");
}

export function findPlanner(name) {
  return state.catalogue.planners.find((planner) => planner.name === name);
}

// The planners that can be tried on this page: of mazes, or of PushT.
export function playable() {
  return state.catalogue.planners.filter((planner) => planner.plays === document.body.dataset.plays);
}

export function hasOption(id, value) {
  const { options } = $(id);
  return !options || [...options].some((option) => option.value === value);
}

export function fillSelect(select, values, label = (value) => value) {
  const { value: selected } = select, present = [...select.options].map((option) => option.value);
  if (present.join("\n") === values.join("\n")) return;
  select.replaceChildren(...values.map((value) => html("option", { value }, label(value))));
  if (values.includes(selected)) select.value = selected;
}

// Planners and runs as they are now: trainings start and advance while the page is open.
export async function refreshCatalogue() {
  state.catalogue = await fetchApi("api/catalogue");
  const names = playable().map((planner) => planner.name);
  fillSelect($("planner"), names);
  fillSelect($("compare"), ["", "expert", ...names], (name) => name || "nothing");
  fillSelect($("training"), ["", ...state.catalogue.runs], (name) => name || "choose a run to follow");
}

export function setDefaults() {
  const planner = findPlanner($("planner").value);
  for (const id of OPTIONS) {
    const value = planner?.defaults?.[fieldName(id)];
    $(id).disabled = value === null || value === undefined;
    $(id).value = typeof value === "number" ? Math.min(value, $(id).max) : (value ?? "");
  }
  $("action-steps").value = planner?.action_steps ?? 1;
  $("action-steps").max = planner?.horizon ?? 1;
}

export function saveLink() {
  const fields = Object.fromEntries(LINKED.map((id) => [id, $(id).value]));
  history.replaceState(null, "", `#${toLink({ maze: state.maze, maxSteps: state.maxSteps, fields })}`);
}

// The settings of a link; a message tells which of its planners are missing.
export function restoreFields(fields) {
  if (fields.compare === "bot") fields.compare = "expert"; // its name in earlier versions
  const missing = ["planner", "compare"].filter((id) => fields[id] && !hasOption(id, fields[id]));
  if (hasOption("planner", fields.planner)) $("planner").value = fields.planner;
  setDefaults();
  for (const [id, value] of Object.entries(fields)) if (LINKED.includes(id) && hasOption(id, value)) $(id).value = value;
  if (missing.length) showMessage(`the planner '${fields[missing[0]]}' of this link does not exist here; choose another`, true);
}
