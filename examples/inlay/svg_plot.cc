#include "examples/inlay/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace inlay::cli {
namespace {

// Pixels.
constexpr double kPanelWidth = 460, kHeight = 400, kTop = 70, kBottom = 50;
constexpr double kLeft = 70, kRight = 20;
constexpr double kPlotWidth = kPanelWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
// Told apart by people who see few colours too (Okabe and Ito).
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73",
                                    "#cc79a7", "#e69f00", "#56b4e9"};

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

// Control characters have no place in XML, not even escaped.
std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

std::string LineMark(double x1, double y1, double x2, double y2,
                     const char* colour) {
  return "<line x1=\"" + Number(x1) + "\" y1=\"" + Number(y1) + "\" x2=\"" +
         Number(x2) + "\" y2=\"" + Number(y2) + "\" stroke=\"" + colour +
         "\"/>\n";
}

std::string Words(double x, double y, const std::string& text,
                  const char* anchor, const std::string& more = "") {
  return "<text x=\"" + Number(x) + "\" y=\"" + Number(y) +
         "\" text-anchor=\"" + anchor + "\"" + more + ">" + Escape(text) +
         "</text>\n";
}

bool Drawn(const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) && point.x >= 0 &&
         point.y >= 0;
}

class Panel {
 public:
  Panel(const PlotPanel& panel, double left) : panel_(panel), left_(left) {
    double x = 0, y = 0;
    for (const PlotSeries& series : panel.series) {
      for (const PlotPoint& point : series.points) {
        if (!Drawn(point)) continue;
        x = std::max(x, point.x);
        y = std::max(y, point.y);
      }
    }
    x_ = MakeAxis(x);
    y_ = MakeAxis(y);
  }

  std::string Draw() const {
    std::string svg = "<g>\n" + Axes();
    for (size_t i = 0; i < panel_.series.size(); ++i) {
      svg += Series(panel_.series[i], i);
    }
    return svg + "</g>\n";
  }

 private:
  double X(double value) const {
    return left_ + kLeft + kPlotWidth * value / x_.end();
  }
  double Y(double value) const {
    return kTop + kPlotHeight * (1 - value / y_.end());
  }

  std::string Axes() const {
    std::string svg;
    for (int i = 0; i <= x_.num_steps; ++i) {
      const double value = i * x_.step;
      svg += LineMark(X(value), Y(0), X(value), Y(0) + 5, "#444");
      svg += Words(X(value), Y(0) + 18, Number(value), "middle");
    }
    for (int i = 0; i <= y_.num_steps; ++i) {
      const double value = i * y_.step;
      svg +=
          LineMark(X(0), Y(value), X(x_.end()), Y(value), i ? "#ddd" : "#444");
      svg += LineMark(X(0) - 5, Y(value), X(0), Y(value), "#444");
      svg += Words(X(0) - 8, Y(value) + 4, Number(value), "end");
    }
    svg += LineMark(X(0), Y(0), X(0), Y(y_.end()), "#444");
    const double middle = left_ + kLeft + kPlotWidth / 2;
    svg += Words(middle, kTop - 10, panel_.title, "middle",
                 " font-weight=\"bold\"");
    svg += Words(middle, kHeight - 10, panel_.x_label, "middle");
    const double x = left_ + 16, y = kTop + kPlotHeight / 2;
    return svg + Words(x, y, panel_.y_label, "middle",
                       " transform=\"rotate(-90 " + Number(x) + " " +
                           Number(y) + ")\"");
  }

  std::string Series(const PlotSeries& series, size_t index) const {
    const std::string colour = kColours[index % std::size(kColours)];
    std::string line, marks;
    for (const PlotPoint& point : series.points) {
      if (!Drawn(point)) continue;
      const double x = X(point.x), y = Y(point.y);
      line += (line.empty() ? "" : " ") + Number(x) + "," + Number(y);
      if (series.marks) {
        marks += "<circle cx=\"" + Number(x) + "\" cy=\"" + Number(y) +
                 "\" r=\"3\" fill=\"" + colour + "\"/>\n";
      }
      if (!point.label.empty()) {
        marks += Words(x + 5, y - 5, point.label, "start",
                       " font-size=\"10\" fill=\"" + colour + "\"");
      }
    }
    const double row = kTop + 16 + 16 * static_cast<double>(index);
    const double left = left_ + kLeft + 10;
    return "<polyline points=\"" + line + "\" fill=\"none\" stroke=\"" +
           colour + "\" stroke-width=\"2\"/>\n" + marks + "<rect x=\"" +
           Number(left) + "\" y=\"" + Number(row - 9) +
           "\" width=\"10\" height=\"10\" fill=\"" + colour + "\"/>\n" +
           Words(left + 16, row, series.name, "start");
  }

  const PlotPanel& panel_;
  const double left_;
  PlotAxis x_, y_;
};

}  // namespace

PlotAxis MakeAxis(double highest) {
  if (!std::isfinite(highest) || highest <= 0) highest = 1;
  const double power = std::pow(10, std::floor(std::log10(highest)));
  // Steps of a fifth, a half or the whole of the power of ten below.
  for (const double part : {0.1, 0.2, 0.5, 1.0}) {
    const PlotAxis axis = {
        part * power,
        static_cast<int>(std::ceil(highest / (part * power) * (1 - 1e-9)))};
    if (axis.num_steps <= 10) return axis;
  }
  return {power, 10};
}

std::string SvgPlot(const std::string& title,
                    const std::vector<PlotPanel>& panels) {
  const double width =
      kPanelWidth * static_cast<double>(std::max<size_t>(panels.size(), 1));
  const std::string size = Number(width) + " " + Number(kHeight);
  std::string svg =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
      Number(width) + "\" height=\"" + Number(kHeight) + "\" viewBox=\"0 0 " +
      size + "\" font-family=\"sans-serif\" font-size=\"12\">\n" +
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
      Words(width / 2, 26, title, "middle", " font-size=\"16\"");
  for (size_t i = 0; i < panels.size(); ++i) {
    svg += Panel(panels[i], kPanelWidth * static_cast<double>(i)).Draw();
  }
  return svg + "</svg>\n";
}

}  // namespace inlay::cli
