package dev.inlay;

import java.util.List;
import java.util.Optional;

/** What a request produced. The last one of every request is {@link Finished}. Arrays are not copied: do not change them. */
public sealed interface Event {

  /**
   * Tokens of one or several steps, and the text that became certain: whole code points; it can lag behind the tokens, and either may
   * be empty.
   *
   * @param bytes the raw bytes of the tokens, for those who join text themselves
   * @param logprobs one for each token, where asked for
   */
  record Tokens(int[] ids, String text, byte[] bytes, List<TokenLogprobs> logprobs) implements Event {}

  /** The logits of one position of the session. */
  record Logits(long position, float[] logits) implements Event {}

  /** The log-probability of the prompt token at {@code position + i} is {@code scores[i]}. */
  record Scores(long position, float[] scores) implements Event {}

  /** The vector of the whole log that {@link RequestOptions#embedding} asked for. */
  record Embedding(float[] vector) implements Event {}

  /** Of each label, in the order of the model's config.json, what {@link RequestOptions#classification} asked for. */
  record Classification(float[] logits, float[] scores) implements Event {}

  /**
   * The end. Times are microseconds from submit.
   *
   * @param error why it failed, where {@code reason} is ERROR
   * @param stopToken the token it stopped at; -1: none
   * @param stopString index of the stop string it stopped at; -1: none
   * @param promptTokens of the input and the log before it
   * @param cachedTokens of these, not computed again
   * @param generatedTokens chosen, a stop token included
   * @param firstTokenMicros 0: there was none
   */
  record Finished(FinishReason reason, Optional<InlayException> error, int stopToken, int stopString, long promptTokens,
      long cachedTokens, long generatedTokens, long queueMicros, long firstTokenMicros, long totalMicros) implements Event {}

  /** A token's natural logarithm of its probability by the model alone (before bias, penalties and temperature). */
  record Logprob(int token, float logprob) {}

  /** The chosen token's, and those of the likeliest ones. */
  record TokenLogprobs(Logprob chosen, List<Logprob> alternatives) {}
}
