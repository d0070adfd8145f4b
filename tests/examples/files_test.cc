// What the command writes to files: tables and plots, from values that are
// ordinary and from some that are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "examples/inlay/csv.h"
#include "examples/inlay/svg_plot.h"
#include "tests/examples/xml.h"

namespace inlay {
namespace {

using cli::Json;
using ::testing::ElementsAre;

TEST(XmlTest, KnowsWhatIsNoXml) {
  EXPECT_TRUE(ParseXml("<a b=\"1\"><c/>x &lt; y</a>\n"));
  for (const char* text : {"", "x", "<a>", "<a></b>", "<a/><b/>", "<a b=1/>",
                           "<a b=\"1\" b=\"2\"/>", "<a>&</a>", "<a b=\"<\"/>",
                           "<a/>x", "<a>\x01</a>"}) {
    EXPECT_FALSE(ParseXml(text)) << text;
  }
}

TEST(CsvTest, QuotesWhatMustBe) {
  EXPECT_EQ(cli::CsvLine({}), "\n");
  EXPECT_EQ(cli::CsvLine({"a", "", "1.5"}), "a,,1.5\n");
  EXPECT_EQ(cli::CsvLine({"a,b", "c\"d", "e\nf", "g h"}),
            "\"a,b\",\"c\"\"d\",\"e\nf\",g h\n");
}

TEST(CsvTest, ColumnsAreThoseOfTheFirstRow) {
  EXPECT_EQ(cli::CsvTable({}), "");
  const Json first = {
      {"name", "x, y"}, {"none", nullptr}, {"ms", {{"p50", 1.5}, {"p99", 2}}}};
  const Json second = {{"ms", {{"p99", 4}}}, {"other", 5}, {"name", "z"}};
  EXPECT_EQ(cli::CsvTable({first, second}),
            "name,none,ms_p50,ms_p99\n\"x, y\",,1.5,2\nz,,,4\n");
}

TEST(PlotAxisTest, IsRoundAndReachesTheHighest) {
  for (double highest = 1e-9; highest < 1e12; highest *= 1.0371) {
    const cli::PlotAxis axis = cli::MakeAxis(highest);
    EXPECT_GE(axis.end(), highest * (1 - 1e-6));
    EXPECT_LE(axis.end(), highest * 1.3);
    EXPECT_GE(axis.num_steps, 4) << highest;
    EXPECT_LE(axis.num_steps, 10) << highest;
    const double digit =
        axis.step / std::pow(10, std::floor(std::log10(axis.step) + 1e-9));
    EXPECT_TRUE(std::abs(digit - 1) < 1e-6 || std::abs(digit - 2) < 1e-6 ||
                std::abs(digit - 5) < 1e-6)
        << axis.step;
  }
  for (const double odd : {0., -1., HUGE_VAL, std::nan("")}) {
    EXPECT_GT(cli::MakeAxis(odd).end(), 0);
  }
}

struct Drawing {
  std::vector<XmlElement> elements;
  std::vector<XmlElement> Named(const std::string& name) const {
    std::vector<XmlElement> named;
    for (const XmlElement& element : elements) {
      if (element.name == name) named.push_back(element);
    }
    return named;
  }
};

// Well-formed, and everything lies within the picture.
Drawing Draw(const std::string& title,
             const std::vector<cli::PlotPanel>& panels) {
  const auto elements = ParseXml(cli::SvgPlot(title, panels));
  EXPECT_TRUE(elements.has_value());
  if (!elements.has_value()) return {};
  const double width = (*elements)[0].Number("width");
  const double height = (*elements)[0].Number("height");
  EXPECT_EQ((*elements)[0].name, "svg");
  for (const XmlElement& element : *elements) {
    for (const char* name : {"x", "x1", "x2", "cx", "y", "y1", "y2", "cy"}) {
      if (element.attributes.count(name) == 0) continue;
      const double value = element.Number(name);
      EXPECT_GE(value, 0) << element.name << " " << name;
      EXPECT_LE(value, name[0] == 'x' || name[1] == 'x' ? width : height);
    }
  }
  return {*elements};
}

cli::PlotPanel Panel() {
  return {"latency",
          "tok/s",
          "ms",
          {{"p50", {{100, 2, "1"}, {180, 3, "2"}, {240, 5, "4"}}},
           {"p99", {{100, 4, "1"}, {180, 7, "2"}, {240, 19, "4"}}}}};
}

TEST(SvgPlotTest, DrawsEveryPointWhereItBelongs) {
  const Drawing drawing = Draw("a title", {Panel(), Panel()});
  EXPECT_EQ(drawing.Named("polyline").size(), 4u);
  const auto points = drawing.Named("circle");
  ASSERT_EQ(points.size(), 12u);
  // Linear in both directions, from an origin that the ticks agree on.
  const double x_scale =
      (points[2].Number("cx") - points[0].Number("cx")) / 140;
  EXPECT_GT(x_scale, 0);
  EXPECT_NEAR(points[1].Number("cx"), points[0].Number("cx") + 80 * x_scale,
              0.01);
  const double y_scale = (points[0].Number("cy") - points[5].Number("cy")) / 17;
  EXPECT_GT(y_scale, 0);
  EXPECT_NEAR(points[0].Number("cy") - points[2].Number("cy"), 3 * y_scale,
              0.01);
  const double origin_x = points[0].Number("cx") - 100 * x_scale;
  const double origin_y = points[0].Number("cy") + 2 * y_scale;
  bool x_tick = false, y_tick = false;
  for (const XmlElement& text : drawing.Named("text")) {
    if (text.text == "50" &&
        std::abs(text.Number("x") - origin_x - 50 * x_scale) < 0.1) {
      x_tick = true;
    }
    // Beside its line, 4 pixels below the middle of the digits.
    if (text.text == "10" &&
        std::abs(text.Number("y") - 4 - origin_y + 10 * y_scale) < 0.1) {
      y_tick = true;
    }
  }
  EXPECT_TRUE(x_tick);
  EXPECT_TRUE(y_tick);
}

TEST(SvgPlotTest, SaysWhatIsWhat) {
  const Drawing drawing = Draw("R&D <\"1\">\x02", {Panel()});
  std::vector<std::string> texts;
  for (const XmlElement& text : drawing.Named("text")) {
    texts.push_back(text.text);
  }
  EXPECT_EQ(texts[0], "R&D <\"1\"> ");
  for (const char* text : {"latency", "tok/s", "ms", "p50", "p99", "4"}) {
    EXPECT_THAT(texts, ::testing::Contains(text));
  }
}

TEST(SvgPlotTest, WhatCannotBeDrawnIsLeftOut) {
  Draw("", {});
  Draw("", {{"", "", "", {}}});
  EXPECT_EQ(Draw("", {{"", "", "", {{"none", {}}}}}).Named("circle").size(),
            0u);
  const double inf = std::numeric_limits<double>::infinity();
  const Drawing odd = Draw("", {{"",
                                 "",
                                 "",
                                 {{"s",
                                   {{NAN, 1, ""},
                                    {1, inf, ""},
                                    {-1, 1, ""},
                                    {0, 0, ""},
                                    {1e300, 1e-300, ""}}}}}});
  EXPECT_EQ(odd.Named("circle").size(), 2u);
  EXPECT_EQ(
      Draw("", {{"", "", "", {{"one", {{5, 5, ""}}}}}}).Named("circle").size(),
      1u);
}

}  // namespace
}  // namespace inlay
