package dev.inlay;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.List;

/** Text as it crosses: UTF-8. */
final class Text {
  private Text() {}

  static byte[] bytes(String text) {
    return text.getBytes(UTF_8);
  }

  /** For what C reads up to a NUL. */
  static byte[] terminated(String text, String name) {
    if (text.indexOf('\0') >= 0) throw new IllegalArgumentException(name + " contains a NUL character");
    return bytes(text);
  }

  static byte[][] terminated(List<String> texts, String name) {
    return texts.stream().map(text -> terminated(text, name)).toArray(byte[][]::new);
  }

  static String string(byte[] bytes) {
    return new String(bytes, UTF_8);
  }
}
