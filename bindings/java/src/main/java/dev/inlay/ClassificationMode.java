package dev.inlay;

/** What the scores of a model's labels are, of their logits. */
public enum ClassificationMode {
  /** There are none: the request generates. */
  NONE,
  /** As the model's files say; where they do not, {@link #SIGMOID} of a single label and {@link #LOGITS} of several. */
  DEFAULT,
  /** The logits. */
  LOGITS,
  /** Of each logit. */
  SIGMOID,
  /** Over the labels. */
  SOFTMAX
}
