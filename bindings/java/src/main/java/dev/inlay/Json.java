package dev.inlay;

import java.util.List;
import java.util.Map;

/** Writes JSON (RFC 8259) of plain values. */
final class Json {
  private Json() {}

  static String write(Object value) {
    StringBuilder out = new StringBuilder();
    write(value, out);
    return out.toString();
  }

  private static void write(Object value, StringBuilder out) {
    if (value == null || value instanceof Boolean || isNumber(value)) {
      out.append(value);
    } else if (value instanceof CharSequence text) {
      quote(text, out);
    } else if (value instanceof List<?> list) {
      String separator = "[";
      for (Object element : list) {
        out.append(separator);
        write(element, out);
        separator = ",";
      }
      out.append(list.isEmpty() ? "[]" : "]");
    } else if (value instanceof Map<?, ?> map) {
      String separator = "{";
      for (Map.Entry<?, ?> entry : map.entrySet()) {
        out.append(separator);
        quote(String.valueOf(entry.getKey()), out);
        write(entry.getValue(), out.append(':'));
        separator = ",";
      }
      out.append(map.isEmpty() ? "{}" : "}");
    } else {
      throw new IllegalArgumentException("no JSON of a " + value.getClass().getName() + ": " + value);
    }
  }

  private static boolean isNumber(Object value) {
    return value instanceof Number number && Double.isFinite(number.doubleValue());
  }

  private static void quote(CharSequence text, StringBuilder out) {
    out.append('"');
    for (int i = 0; i < text.length(); ++i) {
      char c = text.charAt(i);
      switch (c) {
        case '"' -> out.append("\\\"");
        case '\\' -> out.append("\\\\");
        case '\n' -> out.append("\\n");
        default -> {
          if (c < 0x20) {
            out.append(String.format("\\u%04x", (int) c));
          } else {
            out.append(c);
          }
        }
      }
    }
    out.append('"');
  }
}
