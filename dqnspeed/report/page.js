"use strict";
const plots = JSON.parse(document.getElementById("data").textContent);
const element = (plot) => document.getElementById(plot.name);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Colours of everything but the data, for light or dark.
function themed(plot) {
  const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line") };
  return {
    ...plot.layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--ink"), size: 12, family: getComputedStyle(document.body).fontFamily },
    hoverlabel: { align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--line"), activecolor: colour("--ink") },
    xaxis: { ...plot.layout.xaxis, ...axis },
    yaxis: { ...plot.layout.yaxis, ...axis },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
  };
}

const narrow = matchMedia("(max-width: 760px), (pointer: coarse)"); // the toolbar would cover the curves
const config = () => ({ responsive: true, displaylogo: false, displayModeBar: narrow.matches ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] });
const draw = () => plots.forEach((plot) => Plotly.react(element(plot), plot.data, themed(plot), config()));

for (const plot of plots) element(plot).classList.toggle("sideways", "height" in plot.layout);

// Light or dark: the system's choice, until the button is pressed.
const dark = matchMedia("(prefers-color-scheme: dark)");
const button = document.getElementById("theme");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
function paint() {
  button.textContent = isDark() ? "Light" : "Dark";
  draw();
}
button.hidden = false;
paint();
button.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  paint();
});
dark.addEventListener("change", paint);
narrow.addEventListener("change", draw);

// One checkbox shows or hides a rung in all plots.
const chosen = document.getElementById("rungs");
if (chosen) {
  const boxes = [...chosen.querySelectorAll("input")];
  const show = () => {
    const shown = new Set(boxes.filter((box) => box.checked).map((box) => Number(box.value)));
    for (const plot of plots)
      for (const trace of plot.data) trace.visible = trace.meta === null || shown.has(trace.meta);
    draw();
  };
  const all = (checked) => () => {
    for (const box of boxes) box.checked = checked;
    show();
  };
  chosen.hidden = false;
  chosen.addEventListener("change", show);
  document.getElementById("all").addEventListener("click", all(true));
  document.getElementById("none").addEventListener("click", all(false));
}

// Arrow keys move the hover label: left and right along a series, up and down to another series.
const said = document.getElementById("said");
const words = (html) => new DOMParser().parseFromString(html.replaceAll("<br>", ", "), "text/html").body.textContent;
for (const plot of plots) {
  const at = { trace: -1, point: 0 };
  element(plot).on("plotly_hover", (event) => {
    const { data, x, y, text } = event.points[0];
    said.textContent = words([data.name, `${x}, ${y}`, text].filter(Boolean).join("<br>"));
  });
  element(plot).addEventListener("blur", () => Plotly.Fx.unhover(element(plot)));
  element(plot).addEventListener("keydown", (event) => {
    const along = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
    const across = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0;
    const traces = plot.data.map((_, i) => i).filter((i) => plot.data[i].visible !== false && plot.data[i].hoverinfo !== "skip");
    if (!(along || across) || !traces.length) return;
    event.preventDefault();
    const now = Math.max(0, traces.indexOf(at.trace));
    at.trace = at.trace < 0 ? traces[traces.length - 1] : traces[(now + across + traces.length) % traces.length];
    const last = plot.data[at.trace].x.length - 1;
    at.point = Math.min(last, Math.max(0, at.point + along * Math.ceil((last + 1) / 60)));
    Plotly.Fx.hover(element(plot), [{ curveNumber: at.trace, pointNumber: at.point }]);
  });
}

// The server of watch=true serves this page only.
if (new URLSearchParams(location.search).has("token"))
  for (const link of document.querySelectorAll("figcaption a")) link.replaceWith(link.textContent);
