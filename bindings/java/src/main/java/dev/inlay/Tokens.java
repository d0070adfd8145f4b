package dev.inlay;

import java.util.Arrays;

/** Reads arrays whose length the library tells. */
final class Tokens {
  private Tokens() {}

  interface Reader {
    int read(int[] tokens, long[] count);
  }

  /** Again where there turn out to be more. */
  static int[] read(Reader reader, int capacity) {
    long[] count = new long[1];
    while (true) {
      int[] tokens = new int[capacity];
      reader.read(tokens, count);
      if (count[0] <= capacity) return Arrays.copyOf(tokens, (int) count[0]);
      capacity = Math.toIntExact(count[0]);
    }
  }
}
