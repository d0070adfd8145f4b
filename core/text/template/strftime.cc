#include "core/text/template/strftime.h"

#include <string>

#include "memory/formatted_string.h"
#include "memory/status.h"

namespace inlay::tmpl {
namespace {

constexpr std::string_view kMonths[] = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::string_view kDays[] = {"Sunday",    "Monday",   "Tuesday",
                                      "Wednesday", "Thursday", "Friday",
                                      "Saturday"};

// Sunday is 0.
int DayOfWeek(const absl::CivilDay& day) {
  return (static_cast<int>(absl::GetWeekday(day)) + 1) % 7;
}

// ISO 8601: week 1 holds the year's first Thursday.
std::pair<int64_t, int> IsoWeek(const absl::CivilDay& day) {
  const int from_monday = (DayOfWeek(day) + 6) % 7;
  const absl::CivilDay thursday = day - from_monday + 3;
  return {thursday.year(), (absl::GetYearDay(thursday) - 1) / 7 + 1};
}

std::string Padded(int64_t value, int width, char pad, char flag) {
  if (flag == '-') return FormattedString("%d", value);
  if (flag == '_') pad = ' ';
  return pad == '0' ? FormattedString("%0*d", width, value)
                    : FormattedString("%*d", width, value);
}

// Conversions that stand for others; empty for those that do not.
std::string_view Composite(char conversion) {
  switch (conversion) {
    case 'D':
    case 'x':
      return "%m/%d/%y";
    case 'F':
      return "%Y-%m-%d";
    case 'T':
    case 'X':
      return "%H:%M:%S";
    case 'R':
      return "%H:%M";
    case 'r':
      return "%I:%M:%S %p";
    case 'c':
      return "%a %b %e %H:%M:%S %Y";
    default:
      return "";
  }
}

bool NumericField(const absl::CivilSecond& t, char conversion, char flag,
                  std::string& out) {
  const absl::CivilDay day(t);
  const int weekday = DayOfWeek(day);
  const int yearday = absl::GetYearDay(day);
  const int hour12 = t.hour() % 12 == 0 ? 12 : t.hour() % 12;
  struct Field {
    char conversion;
    int64_t value;
    int width;
    char pad;
  };
  const Field fields[] = {
      {'Y', t.year(), 1, '0'},
      {'C', t.year() / 100, 2, '0'},
      {'y', t.year() % 100, 2, '0'},
      {'G', IsoWeek(day).first, 1, '0'},
      {'g', IsoWeek(day).first % 100, 2, '0'},
      {'m', t.month(), 2, '0'},
      {'d', t.day(), 2, '0'},
      {'e', t.day(), 2, ' '},
      {'H', t.hour(), 2, '0'},
      {'k', t.hour(), 2, ' '},
      {'I', hour12, 2, '0'},
      {'l', hour12, 2, ' '},
      {'M', t.minute(), 2, '0'},
      {'S', t.second(), 2, '0'},
      {'f', 0, 6, '0'},
      {'j', yearday, 3, '0'},
      {'u', weekday == 0 ? 7 : weekday, 1, '0'},
      {'w', weekday, 1, '0'},
      {'U', (yearday + 6 - weekday) / 7, 2, '0'},
      {'W', (yearday + 6 - (weekday + 6) % 7) / 7, 2, '0'},
      {'V', IsoWeek(day).second, 2, '0'},
  };
  for (const Field& field : fields) {
    if (field.conversion != conversion) continue;
    out = Padded(field.value, field.width, field.pad, flag);
    return true;
  }
  return false;
}

bool NamedField(const absl::CivilSecond& t, char conversion, std::string& out) {
  const std::string_view month = kMonths[t.month() - 1];
  const std::string_view day =
      kDays[static_cast<size_t>(DayOfWeek(absl::CivilDay(t)))];
  switch (conversion) {
    case 'a':
      out = day.substr(0, 3);
      return true;
    case 'A':
      out = day;
      return true;
    case 'b':
    case 'h':
      out = month.substr(0, 3);
      return true;
    case 'B':
      out = month;
      return true;
    case 'p':
      out = t.hour() < 12 ? "AM" : "PM";
      return true;
    case 'P':
      out = t.hour() < 12 ? "am" : "pm";
      return true;
    case 'n':
      out = "\n";
      return true;
    case 't':
      out = "\t";
      return true;
    case '%':
      out = "%";
      return true;
    case 'z':
    case 'Z':
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status Strftime(const absl::CivilSecond& time, std::string_view format,
                      TextSink& out) {
  for (size_t pos = 0; pos < format.size() && !out.full(); ++pos) {
    if (format[pos] != '%') {
      out.Append(format[pos]);
      continue;
    }
    ++pos;
    char flag = 0;
    if (pos < format.size() && (format[pos] == '-' || format[pos] == '_')) {
      flag = format[pos++];
    }
    if (pos >= format.size()) {
      return absl::InvalidArgumentError("strftime: the format ends in '%'");
    }
    const std::string_view composite = Composite(format[pos]);
    if (!composite.empty()) {
      INLAY_RETURN_IF_ERROR(Strftime(time, composite, out));
      continue;
    }
    std::string field;
    if (!NumericField(time, format[pos], flag, field) &&
        !NamedField(time, format[pos], field)) {
      return absl::InvalidArgumentError(
          FormattedString("strftime: unknown conversion '%%%c'", format[pos]));
    }
    out.Append(field);
  }
  return out.status();
}

}  // namespace inlay::tmpl
