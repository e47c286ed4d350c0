for (const [name, value] of data.facts) byId("facts").append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
for (const note of data.notes) byId("notes").append(make("li", {}, note));
byId("playing-hint").textContent =
  "Play, or the space key, starts a row's videos together; the slider's arrow keys go frame by frame. " +
  `Bars below a video: tall where a step was computed, low where it was reused. ${data.where}`;
if (data.skipped.length) byId("skipped").textContent = `Not measured: ${data.skipped.join("; ")}.`;
buildSummary();
buildPlot();
byId("benchmarks").append(...data.benchmarks.map(buildBenchmark));
buildPrompts();
