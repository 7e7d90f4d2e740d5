"use strict";
// Draws the points of the page and shows the one that is picked: by a click, by the
// radio buttons of the table, or step by step along the best trade-offs.
(function () {
  const root = document.documentElement;
  const front = JSON.parse(document.getElementById("front-data").textContent);
  const figure = document.getElementById("front");
  const steps = { fairer: -1, sharper: 1 };
  let picked = front.picked;

  function color(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  // The same values with colours in place of their names.
  function painted(value) {
    if (Array.isArray(value)) return value.map(painted);
    if (value && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([key, part]) => [key, painted(part)])
      );
    }
    return typeof value === "string" && value.startsWith("--") ? color(value) : value;
  }

  function axis(title, range, format) {
    return {
      title: { text: title, standoff: 8 }, range: range, tickformat: format,
      gridcolor: color("--line"), linecolor: color("--ink"), zeroline: false,
      fixedrange: true, automargin: true,
    };
  }

  function ring() {
    const place = front.points[picked];
    return {
      x: [place.violation], y: [place.accuracy], mode: "markers", name: "picked",
      hoverinfo: "skip", showlegend: false, marker: {
        size: 20, symbol: "circle-open", color: color("--ink"), line: { width: 2.5 },
      },
    };
  }

  function draw() {
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 13, color: color("--ink") },
      margin: { l: 56, r: 12, t: 8, b: 48 }, hovermode: "closest", height: 430,
      legend: { orientation: "h", y: -0.2, yanchor: "top", x: 0 },
      hoverlabel: { bgcolor: color("--panel"), font: { color: color("--ink") } },
      xaxis: axis(front.titles.violation, front.violation, "~g"),
      yaxis: axis(front.titles.accuracy, front.accuracy, ".1%"),
    };
    // Two points picked in quick succession are two clicks, not a double click.
    const options = {
      displayModeBar: false, responsive: true, doubleClick: false, doubleClickDelay: 1,
    };
    Plotly.react(figure, [...painted(front.traces), ring()], layout, options);
  }

  function show() {
    document.querySelectorAll("[data-point]").forEach((part) => {
      part.hidden = Number(part.dataset.point) !== picked;
    });
    document.querySelectorAll("input[name=point]").forEach((button) => {
      button.checked = Number(button.value) === picked;
      button.closest("tr").classList.toggle("picked", button.checked);
    });
    const here = place();
    for (const [name, step] of Object.entries(steps)) {
      const next = here + step;
      document.getElementById(name).disabled = next < 0 || next >= front.front.length;
    }
  }

  // Where the picked point stands on the front; the nearest of it if it is not there.
  function place() {
    const at = front.front.indexOf(picked);
    if (at >= 0) return at;
    const violation = front.points[picked].violation;
    const distance = (k) => Math.abs(front.points[k].violation - violation);
    const nearest = [...front.front].sort((a, b) => distance(a) - distance(b))[0];
    return front.front.indexOf(nearest);
  }

  function pick(number) {
    picked = number;
    show();
    draw();
  }

  root.classList.add("scripted");
  draw();
  show();
  figure.on("plotly_click", (event) => {
    const clicked = event.points.find((point) => Number.isInteger(point.customdata));
    if (clicked) pick(clicked.customdata);
  });
  document.querySelectorAll("input[name=point]").forEach((button) => {
    button.addEventListener("change", () => pick(Number(button.value)));
  });
  for (const [name, step] of Object.entries(steps)) {
    document.getElementById(name).addEventListener("click", () => {
      const next = front.front[place() + step];
      if (next !== undefined) pick(next);
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
