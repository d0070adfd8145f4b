package dev.inlay;

import java.time.Duration;
import java.util.Objects;

/** What Java can hold and C cannot. Ranges are the library's to check. */
final class Check {
  private Check() {}

  static long notNegative(long value, String name) {
    if (value < 0) throw new IllegalArgumentException(name + " is " + value + ", allowed: 0 and more");
    return value;
  }

  /** In microseconds, rounded up so that no time becomes "none". */
  static long micros(Duration duration, String name) {
    Objects.requireNonNull(duration, name);
    if (duration.isNegative()) throw new IllegalArgumentException(name + " is negative: " + duration);
    if (duration.getSeconds() > Long.MAX_VALUE / 2_000_000) return Long.MAX_VALUE;
    return duration.getSeconds() * 1_000_000 + (duration.getNano() + 999) / 1000;
  }
}
