// The page: starts, restores links, and connects its controls.

import { fetchApi } from "./api.js";
import { COLORS, html } from "./draw.js";
import { changeMission, loadMaze, setMaze, showTools } from "./editor.js";
import { fromLink } from "./link.js";
import {
  $, fillSelect, findPlanner, hasOption, OPTIONS, ORDERS, readNumber, refreshCatalogue, restoreFields, runTask, saveLink,
  setDefaults, showMessage, state,
} from "./page.js";
import { plan, repeatLast, run, toggleLandscape } from "./planning.js";
import { followRun } from "./training.js";
import { clearResults, player, show } from "./view.js";

function restoreLink() {
  const text = location.hash.slice(1), content = fromLink(text);
  if (!content) {
    if (text) showMessage("this link cannot be read; it may be cut off", true);
    return false;
  }
  restoreFields(content.fields);
  state.maxSteps = Number(content.maxSteps) || 400;
  $("mission").value = String(content.maze.mission ?? "");
  setMaze({ rows: content.maze.rows.map(String), mission: $("mission").value });
  return true;
}

async function copyLink() {
  saveLink();
  try {
    await navigator.clipboard.writeText(location.href);
    showMessage("the link is copied: it restores maze, planner and settings");
  } catch {
    showMessage("the address of this page is the link: it restores maze, planner and settings");
  }
}

function download(name, blob) {
  const address = URL.createObjectURL(blob);
  html("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function downloadJson() {
  const { maze, requests, episodes } = player;
  download("episode.json", new Blob([JSON.stringify({ maze, requests, episodes }, null, 1)], { type: "application/json" }));
}

async function downloadGif() {
  download("episode.gif", await fetchApi("api/gif", player.requests[0]));
}

function showVocabulary() {
  $("vocabulary").replaceChildren(...state.catalogue.vocabulary.map((word) => html("button", {
    type: "button", onclick: () => {
      $("mission").value = `${$("mission").value} ${word}`.trim().replace(" ,", ",");
      changeMission();
      $("mission").focus();
    },
  }, word)));
}

function listenToSettings(on) {
  on("task", "change", () => {
    const pretrained = `pretrained:${$("task").value}`;
    if (findPlanner(pretrained)) { $("planner").value = pretrained; setDefaults(); }
    runTask($("load-maze"), loadMaze);
  });
  on("load-maze", "click", (event) => runTask(event.target, loadMaze));
  on("mission", "change", changeMission);
  on("color", "change", showTools);
  on("planner", "change", () => { setDefaults(); clearResults(); show(); saveLink(); });
  on("compare", "change", () => { const repeat = repeatLast(); clearResults(); show(); saveLink(); repeat(); });
  for (const id of [...OPTIONS, "sample-seed"]) on(id, "change", () => { saveLink(); repeatLast()(); });
  for (const id of ["action-steps", "slip"]) on(id, "change", () => { saveLink(); if (player.loaded) runTask($("run"), run); });
  on("training", "focus", () => refreshCatalogue().catch(() => {}));
  on("training", "change", followRun);
  on("use-run", "click", () => {
    if (findPlanner($("training").value).plays === "PushT") {
      location.href = `pusht.html#${new URLSearchParams({ planner: $("training").value })}`;
      return;
    }
    $("planner").value = $("training").value;
    setDefaults();
    saveLink();
    runTask($("plan"), plan);
  });
}

function listenToActions(on) {
  on("plan", "click", (event) => runTask(event.target, plan));
  on("run", "click", (event) => runTask(event.target, run));
  on("landscape", "click", toggleLandscape);
  on("iteration", "input", () => { state.iteration = readNumber("iteration"); show(); });
  on("copy-link", "click", copyLink);
  on("gif", "click", (event) => runTask(event.target, downloadGif));
  on("json", "click", downloadJson);
  on("play", "click", () => player.toggle());
  on("back", "click", () => player.move(-1));
  on("forward", "click", () => player.move(1));
  on("speed", "input", () => { player.speed = readNumber("speed"); });
  on("step", "input", () => player.seek(readNumber("step")));
  window.addEventListener("hashchange", restoreLink);
}

async function init() {
  await refreshCatalogue();
  fillSelect($("task"), state.catalogue.tasks.map((task) => task.name));
  fillSelect($("order"), ORDERS);
  fillSelect($("color"), Object.keys(COLORS), (letter) => COLORS[letter][0]);
  showVocabulary();
  if (hasOption("planner", "pretrained:MazeS4G1")) $("planner").value = "pretrained:MazeS4G1";
  setDefaults();
  showTools();
  const on = (id, event, action) => $(id).addEventListener(event, action);
  listenToSettings(on);
  listenToActions(on);
  await followRun();
  if (!restoreLink()) await loadMaze();
  document.body.dataset.ready = "yes";
}

init().catch((error) => showMessage(error.message, true));
