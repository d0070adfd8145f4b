package dev.inlay;

/** What an engine computes on. */
public enum Backend {
  /** A GPU where CUDA can be had, otherwise the CPU. */
  AUTO,
  CPU,
  CUDA
}
