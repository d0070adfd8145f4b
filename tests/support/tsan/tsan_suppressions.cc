// What ThreadSanitizer takes for a race and is none; its library asks for this
// at start, so it must be visible to it.
// absl::Status counts its references in a header, which is instrumented, and
// takes the last one back in the distribution's library, which is not: the
// order that the count makes is not seen. What errno says and time zones are
// tables that the library makes at their first use.
#define INLAY_VISIBLE __attribute__((visibility("default")))
extern "C" INLAY_VISIBLE const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*Status::Unref\n"
         "race:absl::*StrError\n"
         "race:absl::*LoadTimeZone\n";
}
