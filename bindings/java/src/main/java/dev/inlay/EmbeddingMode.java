package dev.inlay;

/** How the last hidden states of a log's tokens become its vector. */
public enum EmbeddingMode {
  /** Not at all: the request generates. */
  NONE,
  /** As the model's files say; where they do not, {@link #MEAN} of an encoder and {@link #LAST} of others. */
  DEFAULT,
  MEAN,
  /** The first token's. */
  CLS,
  /** The last token's. */
  LAST
}
