package dev.inlay;

/**
 * Where a named prefix stands.
 *
 * @param numCached of its tokens, those whose KV is in memory
 * @param kvBytes of its tokens: what pinning it holds
 */
public record PrefixInfo(boolean pinned, long numTokens, long numCached, long kvBytes) {
  PrefixInfo(InlayPrefixInfo from) {
    this(from.getPinned() != 0, from.getNum_tokens(), from.getNum_cached(), from.getKv_bytes());
  }
}
