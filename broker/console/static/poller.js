// One task, again and again: while the tab is looked at, one run at a time, with pauses in between.

export class Poller {
  /** `run(signal)` does it once, and handles its own errors. */
  constructor(run, pauseMs) {
    this._run = run;
    this._pauseMs = pauseMs;
    this._timer = null;
    this._running = null;
    this._held = false;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) clearTimeout(this._timer);
      else if (this._aborter) this.soon();
    });
  }

  /** Run now, then again and again until `stop`. What runs already is given up. */
  start() {
    this.stop();
    this._aborter = new AbortController();
    return this.soon();
  }

  stop() {
    clearTimeout(this._timer);
    this._aborter?.abort();
    this._aborter = null;
    this._running = null;
  }

  /** Do something else, with no run under way or beginning meanwhile. */
  async alone(task) {
    clearTimeout(this._timer);
    await this._running;
    this._held = true;
    try {
      return await task();
    } finally {
      this._held = false;
    }
  }

  /** Run now; a run that is under way is waited for, since it may have looked before a change. */
  async soon() {
    clearTimeout(this._timer);
    const aborter = this._aborter;
    await this._running;
    if (this._held || !aborter || aborter !== this._aborter || this._running) return this._running;
    this._running = this._once(aborter);
    return this._running;
  }

  async _once(aborter) {
    try {
      await this._run(aborter.signal);
    } finally {
      if (aborter === this._aborter) {
        this._running = null;
        clearTimeout(this._timer);
        if (!document.hidden) this._timer = setTimeout(() => this.soon(), this._pauseMs);
      }
    }
  }
}
