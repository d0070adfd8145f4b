package dev.inlay;

import java.util.Arrays;
import java.util.ArrayList;
import java.util.List;

/**
 * All that a request generated.
 *
 * @param text without stop strings
 * @param tokens with the token it stopped at
 * @param logprobs one for each token, where asked for
 * @param finished why it ended, counts and times
 */
public record Generation(String text, int[] tokens, List<Event.TokenLogprobs> logprobs, Event.Finished finished) {
  public FinishReason reason() {
    return finished.reason();
  }

  /** Joins events. */
  static final class Builder {
    private final StringBuilder text = new StringBuilder();
    private final List<Event.TokenLogprobs> logprobs = new ArrayList<>();
    private int[] tokens = new int[64];
    private int numTokens;

    void add(Event.Tokens event) {
      text.append(event.text());
      logprobs.addAll(event.logprobs());
      int[] ids = event.ids();
      if (numTokens + ids.length > tokens.length) tokens = Arrays.copyOf(tokens, 2 * (numTokens + ids.length));
      System.arraycopy(ids, 0, tokens, numTokens, ids.length);
      numTokens += ids.length;
    }

    Generation build(Event.Finished finished) {
      return new Generation(text.toString(), Arrays.copyOf(tokens, numTokens), List.copyOf(logprobs), finished);
    }
  }
}
