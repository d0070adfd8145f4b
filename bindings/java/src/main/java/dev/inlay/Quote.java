package dev.inlay;

/**
 * What a request would need if it were submitted now.
 *
 * @param fits its KV fits the cache if nothing else were there
 * @param fitsNow also beside what runs now
 * @param reserved memory for all of it was set aside (see {@link Session#quote(Input, RequestOptions, boolean)})
 * @param promptTokens of the input and the log before it
 * @param cachedTokens of these, not to be computed again
 * @param kvBytes that it comes to hold at its longest
 * @param newKvBytes of these, not shared with what is cached
 * @param firstTokenMicros estimate, behind what is queued now
 */
public record Quote(boolean fits, boolean fitsNow, boolean reserved, long promptTokens, long cachedTokens, long kvBytes,
    long newKvBytes, long firstTokenMicros) {
  Quote(InlayQuote from) {
    this(from.getFits() != 0, from.getFits_now() != 0, from.getReserved() != 0, from.getPrompt_tokens(),
        from.getCached_tokens(), from.getKv_bytes(), from.getNew_kv_bytes(), from.getFirst_token_us());
  }
}
