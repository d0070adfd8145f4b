package dev.inlay;

/**
 * What a snapshot brought back.
 *
 * @param numTokens in the log
 * @param numRestored of these, tokens whose KV is there again; the others are computed again when the session goes on
 * @param note why not all; empty otherwise
 */
public record RestoreInfo(long numTokens, long numRestored, String note) {
  RestoreInfo(InlayRestoreInfo from) {
    this(from.getNum_tokens(), from.getNum_restored(), Text.string(from.getNote()));
  }
}
