package dev.inlay;

/** INLAY_TEXT_*. */
final class TextFlags {
  static final int ADD_SPECIAL = 1;
  static final int PARSE_SPECIAL = 2;
  static final int SKIP_SPECIAL = 4;

  private TextFlags() {}

  static int of(boolean addSpecial, boolean parseSpecial) {
    return (addSpecial ? ADD_SPECIAL : 0) | (parseSpecial ? PARSE_SPECIAL : 0);
  }
}
