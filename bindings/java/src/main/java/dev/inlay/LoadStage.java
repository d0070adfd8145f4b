package dev.inlay;

/** What loading is at. */
public enum LoadStage {
  CONFIG,
  TOKENIZER,
  WEIGHTS,
  READY
}
