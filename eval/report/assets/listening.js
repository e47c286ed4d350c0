let heard = null; // the one video that is heard, and its button: {video, button}

// A button that lets a video be heard, its row played in step, and the spectrogram of its sound.
function buildSound(unit, video, player) {
  const name = data.variants[unit.variant].name;
  const button = make("button", { type: "button", class: "listen", "aria-pressed": "false", "aria-label": `listen to ${name}` }, "Listen");
  button.addEventListener("click", () => {
    if (heard?.video === video) return hush();
    hush();
    heard = { video, button };
    video.muted = false;
    button.setAttribute("aria-pressed", "true");
    if (playing !== player) player.play();
  });
  const sound = make("div", { class: "sound" }, button);
  if (unit.video.spectrogram) {
    const extent = `${unit.sound.seconds.toFixed(2)} s, 0 to ${unit.sound.rate / 2000} kHz`;
    const alt = `spectrogram of ${name}, ${extent}`;
    sound.append(make("img", { class: "spectrogram", src: unit.video.spectrogram, alt }), make("small", {}, extent));
  }
  return sound;
}

function hush() {
  if (!heard) return;
  heard.video.muted = true;
  heard.button.setAttribute("aria-pressed", "false");
  heard = null;
}
