// Progress of a run in the served folder.

import { fetchApi } from "./api.js";
import { chart } from "./draw.js";
import { $, findPlanner, refreshCatalogue, runTask, state } from "./page.js";
import { plan } from "./planning.js";

const POLL_MILLISECONDS = 5000;
let curves = {}, lastStep = -1;

export function followRun() {
  curves = {};
  lastStep = -1;
  return pollRun();
}

async function pollRun() {
  const name = $("training").value;
  $("use-run").hidden = true;
  if (!name) {
    $("curves").replaceChildren();
    $("progress").textContent = state.catalogue.runs.length ? "" : "There are no runs in the served folder.";
    return;
  }
  const after = Math.max(-1, ...Object.values(curves).flatMap((points) => points.map((p) => p[0])));
  let finished = false;
  try {
    const progress = await fetchApi(`api/run?name=${encodeURIComponent(name)}&after=${after}`);
    await refreshCatalogue();
    if (name !== $("training").value) return;
    showProgress(name, progress);
    // A new checkpoint makes a new plan.
    if (progress.step > lastStep && lastStep >= 0 && state.plan && $("planner").value === name) runTask($("plan"), plan);
    lastStep = progress.step;
    finished = progress.step >= progress.steps;
  } catch (error) {
    $("progress").textContent = error.message;
  }
  if (!finished) setTimeout(() => name === $("training").value && pollRun(), POLL_MILLISECONDS);
}

function showProgress(name, { curves: added, task, step, steps }) {
  for (const [curve, points] of Object.entries(added)) curves[curve] = [...(curves[curve] ?? []), ...points];
  $("progress").textContent = `${task}: step ${step} of ${steps}`;
  $("curves").replaceChildren(...Object.entries(curves).filter(([, points]) => points.length > 1).map(([title, points]) => chart(title, points)));
  $("use-run").hidden = !findPlanner(name)?.plays;
}
