package dev.inlay;

/** Which logits come as events. */
public enum LogitsMode {
  NONE,
  /** Those that the first token is chosen from. */
  LAST,
  /** Of every prompt token computed. */
  ALL,
  /** Of the positions listed. */
  POSITIONS,
  /** Of every choice. */
  GENERATED
}
