for (const [name, value] of data.facts) byId("facts").append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
for (const note of data.notes) byId("notes").append(make("li", {}, note));
const listening =
  "Listen makes one video heard, so that a click on another one compares two sounds in step. " +
  "Spectrograms have 80 bands, equally spaced in mel, low ones at the bottom, black at -80 dB.";
byId("playing-hint").textContent = [
  "Play, or the space key, starts a row's videos together; the slider's arrow keys go frame by frame.",
  "Bars below a video: tall where a step was computed, low where it was reused.",
  ...(data.hasSound ? [listening] : []),
  data.where,
].join(" ");
if (data.skipped.length) byId("skipped").textContent = `Not measured: ${data.skipped.join("; ")}.`;
buildSummary();
buildPlot();
byId("benchmarks").append(...data.benchmarks.map(buildBenchmark));
buildPrompts();
