// Stop strings over pieces of text.
#include "core/sampling/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "memory/formatted_string.h"

namespace inlay {
namespace {

int32_t NextMatched(const std::string& text, const std::vector<int32_t>& border,
                    int32_t matched, char byte) {
  while (matched > 0 && text[matched] != byte) matched = border[matched];
  return text[matched] == byte ? matched + 1 : 0;
}

std::vector<int32_t> Borders(const std::string& text) {
  std::vector<int32_t> border(text.size() + 1, 0);
  for (size_t n = 2; n <= text.size(); ++n) {
    border[n] = NextMatched(text, border, border[n - 1], text[n - 1]);
  }
  return border;
}

}  // namespace

absl::StatusOr<StopMatcher> StopMatcher::Create(
    std::vector<std::string> stops) {
  if (stops.size() > kMaxStops) {
    return absl::InvalidArgumentError(FormattedString(
        "%d stop strings, allowed are at most %d", stops.size(), kMaxStops));
  }
  StopMatcher matcher;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty() || stops[i].size() > kMaxStopBytes) {
      return absl::InvalidArgumentError(
          FormattedString("stop string %d has %d bytes, allowed is 1 to %d", i,
                          stops[i].size(), kMaxStopBytes));
    }
    std::vector<int32_t> border = Borders(stops[i]);
    matcher.stops_.push_back({std::move(stops[i]), std::move(border)});
  }
  return matcher;
}

int32_t StopMatcher::Advance(char byte) {
  int32_t found = -1;
  for (size_t i = 0; i < stops_.size(); ++i) {
    Stop& stop = stops_[i];
    stop.matched = NextMatched(stop.text, stop.border, stop.matched, byte);
    if (static_cast<size_t>(stop.matched) < stop.text.size()) continue;
    if (found < 0 || stop.text.size() > stops_[found].text.size()) {
      found = static_cast<int32_t>(i);
    }
  }
  return found;
}

StopResult StopMatcher::Push(std::string_view text) {
  if (stop_index_ >= 0) return {"", stop_index_};
  StopResult result;
  result.text = std::exchange(held_, {});
  if (stops_.empty()) {
    result.text += text;
    return result;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    stop_index_ = Advance(text[i]);
    if (stop_index_ < 0) continue;
    result.text += text.substr(0, i + 1);
    result.text.resize(result.text.size() - stops_[stop_index_].text.size());
    result.stop_index = stop_index_;
    return result;
  }
  result.text += text;
  int32_t hold = 0;
  for (const Stop& stop : stops_) hold = std::max(hold, stop.matched);
  held_ = result.text.substr(result.text.size() - hold);
  result.text.resize(result.text.size() - hold);
  return result;
}

std::string StopMatcher::Finish() { return std::exchange(held_, {}); }

void StopMatcher::Reset() {
  for (Stop& stop : stops_) stop.matched = 0;
  held_.clear();
  stop_index_ = -1;
}

}  // namespace inlay
