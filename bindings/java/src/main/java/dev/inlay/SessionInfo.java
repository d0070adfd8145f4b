package dev.inlay;

/**
 * Where a session stands.
 *
 * @param busy a request runs
 * @param numTokens in the log
 * @param numCached of these, tokens whose KV is in memory
 */
public record SessionInfo(boolean busy, long numTokens, long numCached) {
  SessionInfo(InlaySessionInfo from) {
    this(from.getBusy() != 0, from.getNum_tokens(), from.getNum_cached());
  }
}
