package dev.inlay;

/** Why a request ended. */
public enum FinishReason {
  /** An end-of-sequence token, a stop token or a stop string. */
  STOP,
  /** The limit of tokens, or the context is full. */
  LENGTH,
  CANCELLED,
  /** {@link Event.Finished#error} says which. */
  ERROR
}
