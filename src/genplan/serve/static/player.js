// Playback of episodes: one, or two side by side, with the planned states beside what happened.

import { ACTIONS, DIRECTIONS } from "./draw.js";
import { withCode } from "./maze.js";

const $ = (id) => document.getElementById(id);

export class Player {
  constructor({ onstep }) {
    this.onstep = onstep;
    this.speed = 6; // steps per second
    this.clear();
  }

  clear() {
    this.pause();
    Object.assign(this, { requests: [], episodes: [], maze: null, step: 0 });
  }

  get loaded() {
    return this.episodes.length > 0;
  }

  get last() {
    return Math.max(0, ...this.episodes.map((episode) => episode.steps.length));
  }

  load(requests, episodes, maze) {
    this.pause();
    Object.assign(this, { requests, episodes, maze, step: 0 });
    $("step").max = this.last;
    this.seek(0);
  }

  seek(step) {
    this.step = Math.min(Math.max(step, 0), this.last);
    $("step").value = this.step;
    this.onstep();
  }

  move(by) {
    this.pause();
    this.seek(this.step + by);
  }

  play() {
    clearTimeout(this.timer);
    if (this.step >= this.last) this.seek(0);
    $("play").textContent = "Pause";
    const next = () => {
      this.seek(this.step + 1);
      if (this.step >= this.last) this.pause();
      else this.timer = setTimeout(next, 1000 / this.speed);
    };
    this.timer = setTimeout(next, 1000 / this.speed);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    $("play").textContent = "Play";
  }

  toggle() {
    if (this.timer) this.pause();
    else this.play();
  }

  // What an episode's maze shows at the current step, and its caption.
  scene(index) {
    const episode = this.episodes[index];
    if (!episode) return null;
    const done = Math.min(this.step, episode.steps.length), over = this.step >= episode.steps.length;
    const executed = episode.steps.slice(0, done), now = executed[done - 1], next = episode.steps[done];
    let rows = this.maze.rows.map(withoutAgent);
    for (const { changes } of executed) for (const { position: [x, y], code } of changes) rows = withCode(rows, x, y, code);
    const pose = now ? now.pose : episode.start;
    const plan = episode.plans[(next ?? now)?.plan ?? 0];
    const planStep = executed.filter((step) => next && step.plan === next.plan).length;
    const deviates = now?.expected?.some((value, k) => value !== pose[k]);
    return {
      content: {
        rows, pose, states: over || !plan ? [] : [pose, ...plan.states.slice(planStep + 1)],
        goals: over || !plan ? [] : plan.goals, expected: deviates ? now.expected : null,
        executed: over || !plan ? [] : plan.executed.slice(planStep),
        arrival: over || !plan || plan.arrival === null ? null : plan.arrival - planStep,
      },
      caption: over ? outcome(episode) : caption(done, next, now, deviates),
    };
  }
}

function withoutAgent(row) {
  return row.split(/(..)/).map((code) => (DIRECTIONS.includes(code) ? ".." : code)).join("");
}

function outcome({ success, steps, expert_steps: expertSteps }) {
  const expert = expertSteps === null ? "" : `, the expert needs ${expertSteps}`;
  return `${success ? "solved" : "not solved"} after ${steps.length} steps${expert}`;
}

function caption(done, next, now, deviates) {
  const carrying = now?.carrying ? `, carrying the ${now.carrying}` : "";
  return `step ${done}: ${ACTIONS[next.action][1]}${carrying}${deviates ? ", not in the planned state" : ""}`;
}
