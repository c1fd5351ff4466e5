"use strict";
// Draws the charts of a report from the numbers that lie in the page.
{
  const data = JSON.parse(document.getElementById("numbers").textContent);
  for (const [place, charts] of Object.entries(data.charts)) {
    const host = document.getElementById(place);
    if (charts.some((chart) => chart.lines.length > 1)) host.before(EnvfleetCharts.legend(data.names));
    for (const chart of charts) {
      const figure = EnvfleetCharts.figure(chart, data.names, place);
      host.append(figure.host);
      figure.show(chart, data.names);
    }
  }
}
