// Line plots as SVG 1.1: panels side by side, each with axes, ticks and a
// legend. Knows nothing of what is plotted.
#ifndef INLAY_EXAMPLES_INLAY_SVG_PLOT_H_
#define INLAY_EXAMPLES_INLAY_SVG_PLOT_H_

#include <string>
#include <vector>

namespace inlay::cli {

struct PlotPoint {
  double x = 0,
         y = 0;       // drawn from 0 on; a point that is not finite is left out
  std::string label;  // beside the point; may be empty
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;  // joined in this order
  bool marks = true;              // a dot at each point
};

struct PlotPanel {
  std::string title, x_label, y_label;
  std::vector<PlotSeries> series;
};

// An axis from 0 to at least `highest` (> 0, finite) in 5 to 10 round steps.
struct PlotAxis {
  double step = 1;
  int num_steps = 1;
  double end() const { return step * num_steps; }
};
PlotAxis MakeAxis(double highest);

std::string SvgPlot(const std::string& title,
                    const std::vector<PlotPanel>& panels);

}  // namespace inlay::cli

#endif  // INLAY_EXAMPLES_INLAY_SVG_PLOT_H_
