const JUMP = 0.3; // seconds of drift from which on a video is moved instead of hastened
let playing = null; // one row at a time

// The videos of a row: loaded while the row is near the screen, and played in step.
class Player {
  constructor(units, frames, fps) {
    this.frames = frames;
    this.fps = fps;
    this.button = make("button", { type: "button", class: "play", "aria-pressed": "false" }, "▶ Play");
    this.slider = make("input", { type: "range", min: 0, max: Math.max(0, frames - 1), step: 1, value: 0, "aria-label": "frame" });
    this.label = make("span", { class: "frame" });
    this.sources = new Map(units.map((unit) => [this.makeVideo(unit), unit.video]));
    this.videos = [...this.sources.keys()];
    this.element = make("div", { class: "transport" }, this.button, this.slider, this.label);
    this.button.addEventListener("click", () => this.toggle());
    this.slider.addEventListener("input", () => this.seek(Number(this.slider.value)));
    this.showFrame(0);
  }

  makeVideo(unit) {
    const name = data.variants[unit.variant].name;
    const video = make("video", { loop: "", playsinline: "", preload: "auto", tabindex: "-1", "aria-label": name });
    video.muted = true;
    if (unit.video.poster) video.poster = unit.video.poster;
    if (unit.width < 200) video.classList.add("small");
    video.addEventListener("click", () => this.toggle());
    video.addEventListener("error", () => {
      if (video.hasAttribute("src")) video.replaceWith(make("p", { class: "absent" }, "the video cannot be shown"));
    });
    return video;
  }

  get shown() {
    return this.videos.filter((video) => video.isConnected && !video.closest("[hidden]"));
  }

  load() {
    for (const [video, source] of this.sources) {
      if (!video.hasAttribute("src")) video.src = source.embedded === undefined ? source.link : blobUrl(source.embedded);
    }
  }

  // Browsers allow a page few decoders at once.
  unload() {
    this.pause();
    if (this.videos.includes(heard?.video)) hush();
    for (const video of this.videos) {
      if (!video.hasAttribute("src")) continue;
      if (video.src.startsWith("blob:")) URL.revokeObjectURL(video.src);
      video.removeAttribute("src");
      video.load();
    }
    this.showFrame(0);
  }

  toggle() {
    playing === this ? this.pause() : this.play();
  }

  async play() {
    playing?.pause();
    playing = this;
    this.load();
    this.mark("❚❚ Pause", "true");
    const videos = this.shown;
    await Promise.all(videos.map(ready));
    if (playing !== this) return;
    const start = videos[0]?.currentTime ?? 0;
    for (const video of videos) video.currentTime = start;
    await Promise.allSettled(videos.map((video) => video.play()));
    const follow = () => {
      if (playing !== this) return;
      this.align();
      requestAnimationFrame(follow);
    };
    follow();
  }

  pause() {
    if (playing === this) playing = null;
    for (const video of this.videos) {
      video.pause();
      video.playbackRate = 1;
    }
    this.mark("▶ Play", "false");
  }

  mark(text, pressed) {
    this.button.textContent = text;
    this.button.setAttribute("aria-pressed", pressed);
  }

  seek(frame) {
    this.pause();
    this.load();
    // The middle of a frame, so that rounding cannot fall into its neighbour.
    for (const video of this.videos) video.currentTime = (frame + 0.5) / this.fps;
    this.showFrame(frame);
  }

  // The others follow the first video, a little faster or slower as long as they are close.
  align() {
    const [leader, ...others] = this.shown;
    if (!leader || !leader.duration) return;
    for (const video of others) {
      if (video.paused) video.play().catch(() => {});
      let drift = leader.currentTime - video.currentTime;
      drift -= Math.round(drift / leader.duration) * leader.duration;
      if (Math.abs(drift) > JUMP) video.currentTime = leader.currentTime;
      else video.playbackRate = Math.abs(drift) < 0.01 ? 1 : 1 + drift;
    }
    this.showFrame(Math.min(this.frames - 1, Math.floor(leader.currentTime * this.fps)));
  }

  showFrame(frame) {
    this.slider.value = frame;
    this.label.textContent = `${frame + 1} of ${this.frames}`;
  }
}

function ready(video) {
  if (video.readyState >= HTMLMediaElement.HAVE_FUTURE_DATA || video.error) return Promise.resolve();
  return new Promise((resolve) => {
    for (const event of ["canplay", "error", "emptied"]) video.addEventListener(event, resolve, { once: true });
  });
}

function blobUrl(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (character) => character.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], { type: "video/mp4" }));
}
